"""Sound GGUF files that are no language model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.errors import IncompatibleError
from localspec.models.gguf.architectures import KNOWN, NOT_GENERATORS, RECURRENT
from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import model_info
from tests.models.gguf_files import File, assert_fails, model

OTHER_KINDS: dict[str, tuple[Callable[[], File], str]] = {
    "LoRA": (lambda: model().set("general.type", "str", "adapter"), "LoRA adapter"),
    "projector by type": (lambda: model().set("general.type", "str", "mmproj"), "projector"),
    "projector by architecture": (lambda: File().set("general.architecture", "str", "clip"), "projector"),
    "importance matrix": (lambda: File().set("general.type", "str", "imatrix"), "importance matrix"),
    "encoder": (lambda: model(arch="bert"), "encoder"),
    "diffusion": (lambda: model(arch="dream"), "diffusion"),
    "causal switched off": (lambda: model().set("llama.attention.causal", "bool", False), "embeddings"),
    "pooled": (lambda: model().set("llama.pooling_type", "u32", 3), "embeddings"),
    "vocabulary only": (lambda: model().with_tensors(data=b""), "without weights"),
    "unknown architecture": (lambda: model(arch="new\x1b"), r"'new\x1b', which this llama.cpp does not know"),
    "unknown rope scaling": (
        lambda: model().set("llama.rope.scaling.type", "str", "spiral\x1b"),
        r"'spiral\x1b', which this llama.cpp",
    ),
    "a lone part": (lambda: model().set("split.count", "u16", 2), "one of 2 parts"),
}


@pytest.mark.parametrize(("make", "text"), OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_a_sound_file_that_is_no_language_model_is_incompatible(
    tmp_path: Path, make: Callable[[], File], text: str
) -> None:
    error = assert_fails(make().write(tmp_path / "other.gguf"), IncompatibleError, text)
    assert error.exit_code == 6


def test_the_assistant_of_gemma_4_is_told_as_what_it_is(tmp_path: Path) -> None:
    """It drafts from another model's states, so that "the model itself" would be no advice."""
    file = model(arch="gemma4-assistant").write(tmp_path / "assistant.gguf")
    error = assert_fails(file, IncompatibleError, "the assistant of a Gemma 4 model")
    assert error.hint.startswith("it cannot be used yet")


def test_known_architectures_can_be_given() -> None:
    assert {"llama", "qwen3", "gemma3", "mamba", "gpt-oss"} <= KNOWN
    assert RECURRENT <= KNOWN
    assert {name for name in NOT_GENERATORS if name not in KNOWN} == {"controlvector", "imatrix"}


def test_an_architecture_is_refused_if_the_given_set_lacks_it(tmp_path: Path) -> None:
    header = read_header(model().write(tmp_path / "m.gguf"))
    with pytest.raises(IncompatibleError):
        model_info(header, known=frozenset({"qwen2"}))
