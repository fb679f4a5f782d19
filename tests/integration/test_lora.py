"""LoRA adapters on the target: scale 0 is the base model, any draft keeps the adapted distribution, and nothing that
was measured without an adapter is taken for it.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.engine import events
from localspec.errors import IncompatibleError, IntegrityError, NotFoundError
from localspec.session.controllers import remembered
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.jobs import DistributionQuestion
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.integration import pair
from tests.integration.gguf_models import written

RANK = 4
WIDTH, FF, LAYERS = 192, 512, 8  # of the story writer
PROMPT = "Once upon a time there was a king"
NAMES = {  # tensors that are adapted: inputs, outputs
    **{f"blk.{i}.attn_q.weight": (WIDTH, WIDTH) for i in range(LAYERS)},
    **{f"blk.{i}.ffn_down.weight": (FF, WIDTH) for i in range(LAYERS)},
}


def lora(path: Path, *, arch: str = "llama", kind: str = "lora", wide: int = 0, name: str = "", seed: int = 0) -> Path:
    """Write a random adapter of the story writer; `wide` more inputs and another `name` make one that does not fit."""
    rng, writer = np.random.default_rng(seed), gguf.GGUFWriter(path, arch)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", kind)
    writer.add_float32("adapter.lora.alpha", RANK)
    for tensor, (n_in, n_out) in NAMES.items():
        a = rng.normal(size=(RANK, n_in + wide)).astype(np.float32)
        b = rng.normal(size=(n_out, RANK)).astype(np.float32) * 0.02
        writer.add_tensor(f"{name or tensor}.lora_a", a)
        writer.add_tensor(f"{name or tensor}.lora_b", b)
        if name:
            break
    return written(writer, path)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lora(tmp_path_factory.mktemp("lora") / "style.gguf")


def rows(*adapters: tuple[Path, float]) -> np.ndarray:
    options = replace(pair.EXACT, adapters=tuple((str(path), scale) for path, scale in adapters))
    with Model(pair.TARGET, options) as model, LlamaBackend(model) as backend:
        return backend.prefill(model.tokenize(PROMPT, add_bos=True), lambda: False).logits(0).copy()


def test_the_scale_is_how_much_of_it_acts(adapter: Path) -> None:
    base = rows()
    assert np.array_equal(rows((adapter, 0.0)), base)
    full, half = rows((adapter, 1.0)), rows((adapter, 0.5))
    assert np.abs(full - base).max() > np.abs(half - base).max() > 0.1
    twice = rows((adapter, 0.5), (lora(adapter.with_name("again.gguf")), 0.5))
    assert np.abs(twice - full).max() < 0.1 * np.abs(half - full).max(), "two adapters add up, but for rounding"


def test_every_context_of_the_model_has_it(adapter: Path) -> None:
    """llama.cpp sets adapters on contexts, and a growing text moves into another one."""
    options = replace(pair.EXACT, adapters=((str(adapter), 1.0),))
    with Model(pair.TARGET, options) as model, LlamaBackend(model) as one, LlamaBackend(model) as other:
        prompt = model.tokenize(PROMPT, add_bos=True)
        found = [backend.prefill(prompt, lambda: False).logits(0).copy() for backend in (one, other)]
    assert np.array_equal(*found)
    assert np.array_equal(found[0], rows((adapter, 1.0)))


def settings(*adapters: tuple[Path, float], draft: bool = True) -> LoadSettings:
    return LoadSettings(
        str(pair.TARGET), str(pair.DRAFT) if draft else None, lora=tuple((str(path), scale) for path, scale in adapters)
    )


@pytest.fixture(scope="module")
def adapted(adapter: Path) -> Iterator[LoadedPair]:
    session, _ = pair.load_pair(settings((adapter, 1.0)))
    yield session
    session.close()


def text(session: LoadedPair, speculation: Speculation, sampling: Sampling) -> list[int]:
    request = Request(prompt=PROMPT, max_tokens=40, sampling=sampling, speculation=speculation, cold=True)
    told = session.answer(request)
    return [piece.id for event in told if isinstance(event, events.Committed) for piece in event.out]


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(seed=3)])
@pytest.mark.parametrize("speculation", [Speculation(), Speculation(method="draft-model", k=4)])
def test_drafting_keeps_the_adapted_text(adapted: LoadedPair, speculation: Speculation, sampling: Sampling) -> None:
    """The draft model has no adapter: any draft is exact. With a seed the text is plain decoding's, too."""
    plain = text(adapted, Speculation(method="plain"), sampling)
    asked = replace(speculation, verify="coupled") if sampling.seed is not None else speculation
    assert text(adapted, asked, sampling) == plain
    base, _ = pair.load_pair(settings(draft=False))
    assert text(base, Speculation(method="plain"), sampling) != plain
    base.close()


@pytest.mark.parametrize("rule", ["block", "coupled"])
def test_drafting_keeps_the_adapted_distribution(adapted: LoadedPair, rule: str) -> None:
    """Draws of the rule on the adapted model's rows, against what these rows say."""
    request = Request(prompt=PROMPT, speculation=Speculation(method="draft-model", verify=rule))
    question = DistributionQuestion(request, ((),), draws=1500, alpha=1e-6, seed=1)
    (told,) = [event for event in adapted.inspect(question) if isinstance(event, events.Inspected)]
    (trial,) = told.content["trials"]
    assert trial["p_value"] >= 1e-6
    assert trial["accepted_per_pass"] > 0.1


def test_what_was_measured_is_kept_apart(adapted: LoadedPair, adapter: Path) -> None:
    assert adapted.draft is not None
    models = [adapted.target, adapted.draft]
    other = lora(adapter.with_name("b.gguf"), seed=1)
    asked = [settings(), settings((adapter, 1.0)), settings((adapter, 0.5)), settings((other, 1.0))]
    files = {remembered(models, one).file for one in asked}
    assert len(files) == 4
    assert adapted.controllers.profile.file == remembered(models, asked[1]).file


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        ({"arch": "qwen2"}, IncompatibleError, "is for qwen2, and the target is llama"),
        ({"kind": "control_vector"}, IncompatibleError, "is not a LoRA adapter"),
        ({"wide": 8}, IncompatibleError, "does not fit target-q8_0.gguf: .*incorrect shape"),
        ({"name": "blk.99.attn_q.weight"}, IncompatibleError, "does not fit target-q8_0.gguf: .*does not exist"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path: Path, made: dict[str, Any], error: type[Exception], words: str) -> None:
    path = lora(tmp_path / "l.gguf", **made)
    with pytest.raises(error, match=words) as caught:
        pair.load_pair(settings((path, 1.0)))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        pair.load_pair(settings((tmp_path / "none.gguf", 1.0)))
    (tmp_path / "text.gguf").write_text("no GGUF")
    with pytest.raises(IntegrityError):
        pair.load_pair(settings((tmp_path / "text.gguf", 1.0)))
    (tmp_path / "adapter_model.safetensors").write_text("no GGUF")
    with pytest.raises(IntegrityError) as caught:
        pair.load_pair(settings((tmp_path / "adapter_model.safetensors", 1.0)))
    assert caught.value.hint == "--lora FILE, made by llama.cpp's convert_lora_to_gguf.py"
    with pytest.raises(IncompatibleError, match="is not a LoRA adapter"):
        pair.load_pair(settings((pair.DRAFT, 1.0)))
