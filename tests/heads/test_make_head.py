"""`train`: from the bundled target to a head that fits it; a run that was ended goes on."""

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from localspec.errors import IncompatibleError, ResourceError, UsageError
from localspec.heads import make_head
from localspec.heads.make_head import _require_space, chosen_kind, head_shape, train, work_folder
from localspec.heads.text_shards import read_shards, shards
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.models.heads import read_head
from localspec.settings.lone_jobs import TrainOptions
from tests.heads.reference import TARGET

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="trains with PyTorch")

PROMPTS = tuple(f"{who} went to the {where}" for who in ("A king", "The fox", "She") for where in ("sea", "wood"))


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainOptions:
    monkeypatch.setattr(make_head, "ANSWER", 40)
    folder, output = tmp_path / "work", tmp_path / "head.gguf"
    return TrainOptions(str(TARGET), str(output), str(folder), PROMPTS, tokens=400, threads=1, gpu="off")


@pytest.mark.slow
@pytest.mark.training
@needs_torch
@pytest.mark.parametrize("kind", ["eagle3", "eagle1", "medusa"])
def test_a_run_that_was_ended_goes_on_and_makes_a_head(options: TrainOptions, kind: str) -> None:
    options = structs.replace(options, kind=kind)
    events = train(options)
    first = next(event for event in events if event["stage"] == "training")
    events.close()
    work = work_folder(options, chosen_kind(kind, model_info(read_model(TARGET))))
    texts, held = (read_shards(shards(work / part)) for part in ("text", "held"))
    assert sum(map(len, texts)) >= 400
    assert [text.own is not None and bool(text.own[-1]) and not text.own[0] for text in held] == [True] * len(held)
    again = list(train(options))
    assert {event["stage"] for event in again} == {"training", "done"}  # no text is written anew
    assert again[-2]["updates"] == again[-2]["of"] == first["of"]
    head = read_head(Path(options.output))
    assert head.info.kind == kind
    assert head.info.trained_for == file_fingerprint(TARGET)
    assert (head.tokens, head.steps) == (sum(map(len, texts)), first["of"])
    assert np.allclose(head.info.accepted, again[-1]["accepted"])
    assert not work.exists()


@pytest.mark.training
@needs_torch
def test_minutes_are_as_many_updates_as_were_timed(options: TrainOptions) -> None:
    events = list(train(structs.replace(options, minutes=1e-9)))
    stages = [event["stage"] for event in events]
    assert stages.index("timing") < stages.index("training")
    assert events[-2]["updates"] == events[-2]["of"] == 1, "one at least"


def test_a_kind_that_does_not_suit_the_target_is_refused() -> None:
    info = model_info(read_model(TARGET))
    other = replace(info, architecture="qwen2")
    assert [chosen_kind("auto", one) for one in (info, other)] == ["eagle3", "eagle1"]
    assert chosen_kind("mtp", info) == "mtp"
    with pytest.raises(IncompatibleError, match="layers of qwen2") as caught:
        chosen_kind("eagle3", other)
    assert caught.value.hint == "--kind eagle1"
    wide = replace(info, architecture="deepseek4")
    assert chosen_kind("auto", wide) == "eagle3"
    with pytest.raises(IncompatibleError, match="last state of deepseek4") as caught:
        chosen_kind("medusa", wide)
    assert caught.value.hint == "--kind eagle3"
    with pytest.raises(IncompatibleError, match="recurrent"):
        chosen_kind("auto", replace(info, is_recurrent=True))


@pytest.mark.training
@needs_torch
def test_what_cannot_be_trained_is_one_error(options: TrainOptions) -> None:
    with pytest.raises(UsageError, match="two prompts"):
        list(train(structs.replace(options, prompts=PROMPTS[:1])))
    with pytest.raises(ResourceError, match="free"):
        list(train(structs.replace(options, tokens=10**12)))
    with pytest.raises(UsageError, match="CUDA"):
        list(train(structs.replace(options, device="cuda")))


def test_training_data_that_the_disk_cannot_hold_is_refused_with_its_size(tmp_path: Path) -> None:
    """Two bytes for each value: three layers and the last state of 192, and a sixteenth more text that is held back."""
    header = read_model(TARGET)
    with pytest.raises(ResourceError, match=re.escape("needs 1632.0 TB")):
        _require_space(tmp_path, head_shape(header, model_info(header), "eagle3"), 10**12)


def test_without_the_packages_it_says_what_to_install(options: TrainOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_head, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="torch") as failure:
        list(train(options))
    assert "pip install" in failure.value.hint


def test_a_head_has_the_sizes_of_its_target() -> None:
    header = read_model(TARGET)
    shape = head_shape(header, model_info(header), "eagle3")
    assert (shape.d, shape.heads, shape.kv_heads, shape.head_width, shape.ff) == (192, 3, 1, 64, 512)
    assert (shape.layers, shape.context, shape.vocab) == ((2, 4, 7), 1024, 4096)
