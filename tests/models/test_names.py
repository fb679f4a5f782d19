"""Names of models and pairs: one canonical spelling, strict refusal, and no other exception for any text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.models.names import (
    Alias,
    DraftChoice,
    PathName,
    check_file_name,
    parse,
    parse_draft,
    parse_model,
)
from tests.recorded import recorded_expressions


def nothing_exists(_path: str) -> bool:
    return False


def canonical(text: str) -> str:
    return str(parse(text, exists=nothing_exists))


THERE = {"a+b.gguf", "models/x", "org/repo"}.__contains__


FRAGMENTS = [
    *(
        "hf:",
        "hf://",
        "https://huggingface.co/",
        "org",
        "repo",
        "/",
        "@",
        ":",
        "+",
        "auto",
        "none",
        "Q4_K_M",
        "..",
        ".",
    ),
    *("x.gguf", "~", "\\", "C:", "refs/pr/1", "blob", "main", "?", " ", "\0", "\x1b", "-", "--", "é", "\ud800", "%2e"),
]
TEXTS = st.text(max_size=60) | st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=12).map("".join)


@given(TEXTS)
def test_any_text_is_a_name_or_a_usage_error(text: str) -> None:
    try:
        name = parse(text, exists=nothing_exists)
    except UsageError as error:
        said = error.message + error.hint
    else:
        said = ""
        assert parse(str(name), exists=nothing_exists) == name
    assert said.isprintable()


WORDS = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._]{0,10}[A-Za-z0-9])?", fullmatch=True).filter(
    lambda word: ".." not in word
)
HUB = st.builds(
    lambda owner, repo, revision, what: f"hf:{owner}/{repo}{revision}{what}",
    WORDS,
    WORDS,
    st.just("") | WORDS.map("@{}".format),
    st.just("") | st.sampled_from([":Q4_K_M", ":iq2_xs"]) | WORDS.map("/{}.gguf".format),
)
MODELS = HUB | st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True) | WORDS.map("./{}.gguf".format)


@given(MODELS, st.none() | st.sampled_from(["auto", "none"]) | MODELS)
def test_what_is_well_formed_is_taken(target: str, draft: str | None) -> None:
    name = parse(target if draft is None else f"{target}+{draft}", exists=nothing_exists)
    assert parse(str(name), exists=nothing_exists) == name
    assert (name.draft is DraftChoice.UNSET) == (draft is None)


@pytest.mark.parametrize("name", ["README.md", "config.json", "model.safetensors", "Weights"])
def test_a_file_that_exists_is_a_file_whatever_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("text")
    assert parse(name).target == PathName(f"./{name}")
    assert parse(f"storyteller+{name}").draft == PathName(f"./{name}")


def test_a_file_does_not_take_the_name_of_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("storyteller", "qwen3.5-27b", "phi-3-mini"):
        (tmp_path / name).write_text("text")
        assert parse(name).target == Alias(name)


test_what_is_recorded = recorded_expressions(
    __file__, canonical, check_file_name, nothing_exists, parse, parse_draft, parse_model, THERE=THERE
)
