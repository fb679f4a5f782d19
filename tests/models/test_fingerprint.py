"""Equal fingerprints mean interchangeable vocabularies; whatever makes a difference makes another fingerprint."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import model_info
from localspec.models.gguf.vocab import fingerprint
from localspec.models.pair_check import check_pair
from tests.models.gguf_files import File, model, words


def of(folder: Path, file: File, name: str = "m") -> str:
    header = read_header(file.write(folder / f"{name}.gguf"))
    return fingerprint(header, model_info(header).vocab)


CHANGES: dict[str, Callable[[File], File]] = {
    "a token": lambda f: f.set("tokenizer.ggml.tokens", "arr[str]", [*words(15), "x"]),
    "a size": lambda f: f.set("tokenizer.ggml.tokens", "arr[str]", words(15)),
    "a token's type": lambda f: f.set("tokenizer.ggml.token_type", "arr[i32]", [*[1] * 15, 4]),
    "a merge": lambda f: f.set("tokenizer.ggml.merges", "arr[str]", ["a c"]),
    "the cut between two strings": lambda f: f.set("tokenizer.ggml.merges", "arr[str]", ["a", " b"]),
    "bos": lambda f: f.set("tokenizer.ggml.bos_token_id", "u32", 2),
    "eos": lambda f: f.set("tokenizer.ggml.eos_token_id", "u32", 2),
    "eot": lambda f: f.set("tokenizer.ggml.eot_token_id", "u32", 2),
    "add-bos": lambda f: f.set("tokenizer.ggml.add_bos_token", "bool", False),
    "add-eos": lambda f: f.set("tokenizer.ggml.add_eos_token", "bool", True),
    "the kind": lambda f: f.set("tokenizer.ggml.model", "str", "t5"),
    "the pre-tokenizer": lambda f: f.set("tokenizer.ggml.pre", "str", "qwen2"),
    "scores": lambda f: f.set("tokenizer.ggml.scores", "arr[f32]", [0.5] * 16),
}
HARMLESS: dict[str, Callable[[File], File]] = {
    "the model's name": lambda f: f.set("general.name", "str", "other"),
    "a template": lambda f: f.set("tokenizer.chat_template", "str", "{{ x }}"),
    "padding": lambda f: f.set("tokenizer.ggml.padding_token_id", "u32", 3),
    "a default that is written out": lambda f: f.set("tokenizer.ggml.add_eos_token", "bool", False),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_matters_changes_it(tmp_path: Path, change: Callable[[File], File]) -> None:
    assert of(tmp_path, model()) != of(tmp_path, change(model()))


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_does_not_matter_does_not(tmp_path: Path, change: Callable[[File], File]) -> None:
    assert of(tmp_path, model()) == of(tmp_path, change(model(width=64)))


VOCABULARIES = st.builds(
    lambda swaps, bos, adds: (swaps, bos, adds),
    st.dictionaries(st.integers(0, 15), st.sampled_from(["x", "y", "w3"]), max_size=2),
    st.integers(0, 2),
    st.booleans(),
)


def build(swaps: dict[int, str], bos: int, adds: bool) -> File:
    tokens = words(16)
    for at, text in swaps.items():
        tokens[at] = text if text not in tokens else tokens[at]
    file = model(tokens).set("tokenizer.ggml.bos_token_id", "u32", bos)
    return file.set("tokenizer.ggml.add_bos_token", "bool", adds)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VOCABULARIES, VOCABULARIES)
def test_equal_fingerprints_make_a_pair(
    tmp_path: Path, one: tuple[dict[int, str], int, bool], other: tuple[dict[int, str], int, bool]
) -> None:
    """The shortcut never says yes where the comparison token by token says no."""
    prints, infos = [], []
    for name, vocabulary in (("a", one), ("b", other)):
        path = build(*vocabulary).write(tmp_path / f"{name}.gguf")
        header = read_header(path)
        infos.append(model_info(header))
        prints.append(fingerprint(header, infos[-1].vocab))
    if prints[0] == prints[1]:
        assert check_pair(*infos).fits
    if build(*one).build() == build(*other).build():
        assert prints[0] == prints[1]
