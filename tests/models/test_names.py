"""Names of models and pairs: one canonical spelling, strict refusal, and no other exception for any text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.models.names import (
    Alias,
    DraftChoice,
    HubName,
    PairName,
    PathName,
    check_file_name,
    parse,
    parse_draft,
    parse_model,
)


def nothing_exists(_path: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("storyteller", "storyteller"),
        ("StoryTeller", "storyteller"),
        ("qwen3-8b+none", "qwen3-8b+none"),
        ("qwen3-8b+auto", "qwen3-8b+auto"),
        ("My Mod+Ä (1)", "my mod+ä (1)"),
        ("./a.gguf+~/b.gguf", "./a.gguf+~/b.gguf"),
        ("a b:c@d.gguf", "a b:c@d.gguf"),
        ("~user/x.gguf", "~user/x.gguf"),
        ("C:\\m\\x.gguf", "C:\\m\\x.gguf"),
        ("\\\\host\\share\\x.gguf", "\\\\host\\share\\x.gguf"),
        ("hf:org/repo", "hf:org/repo"),
        ("org/repo", "hf:org/repo"),
        ("HF:org/repo:q4_k_m", "hf:org/repo:Q4_K_M"),
        ("hf://Org/Re.po-GGUF@v1.0:ud-q4_k_xl", "hf:Org/Re.po-GGUF@v1.0:UD-Q4_K_XL"),
        ("hf.co/org/repo", "hf:org/repo"),
        ("huggingface.co/org/repo:Q8_0", "hf:org/repo:Q8_0"),
        ("https://huggingface.co/org/repo/", "hf:org/repo"),
        ("https://huggingface.co/org/repo/tree/main", "hf:org/repo@main"),
        ("https://huggingface.co/org/repo/blob/main/a/b.gguf", "hf:org/repo@main/a/b.gguf"),
        ("https://huggingface.co/org/repo/resolve/abc/b.gguf?download=true", "hf:org/repo@abc/b.gguf"),
        ("hf:org/repo@refs/pr/12/x.gguf", "hf:org/repo@refs/pr/12/x.gguf"),
        ("hf:org/repo/Q4_K_M/x y (1).gguf+org/draft:Q8_0", "hf:org/repo/Q4_K_M/x y (1).gguf+hf:org/draft:Q8_0"),
    ],
)
def test_one_canonical_spelling(text: str, canonical: str) -> None:
    name = parse(text, exists=nothing_exists)
    assert str(name) == canonical
    assert parse(canonical, exists=nothing_exists) == name


def test_what_the_parts_are() -> None:
    pair = parse("hf:o/r@abc:q8_0+./d.gguf", exists=nothing_exists)
    assert pair == PairName(HubName("o/r", "abc", "Q8_0"), PathName("./d.gguf"))
    assert parse("x", exists=nothing_exists) == PairName(Alias("x"), DraftChoice.UNSET)
    assert parse("x+none", exists=nothing_exists).draft is DraftChoice.NONE


def test_files_of_doubtful_names() -> None:
    """What exists is a path; its spelling then says so."""
    there = {"a+b.gguf", "models/x", "org/repo"}
    assert str(parse("models/x", exists=there.__contains__)) == "./models/x"
    assert str(parse("README", exists=lambda name: name == "README")) == "./README"
    assert str(parse("README", exists=nothing_exists)) == "readme"
    assert str(parse("a+b.gguf+none", exists=there.__contains__)) == "a+b.gguf+none"
    assert parse("org/repo", exists=there.__contains__).target == PathName("./org/repo")
    assert parse("hf:org/repo", exists=there.__contains__).target == HubName("org/repo")


REFUSED = [
    *("", " ", "+", "a+", "+b", "a+b+c", "a++b", "x" * 65, "n" * 10_000, "n" * 20_000, "-x", " a", "a "),
    *("x\x1b[2J", "x\n", "\0", "\ud800", "a\u202eb"),
    *("hf:", "hf:org", "hf:org/", "hf:org//repo", "hf:/repo", "hf:../..", "hf:org/..", "org/repo:../../x", "hf:a/b/c"),
    *(
        "hf:org/repo@",
        "hf:org/repo:",
        "hf:org/repo@..",
        "hf:org/repo@a/b:Q8_0",
        "hf:org/repo@a b",
        "hf:-a/b",
        "hf:a--b/c",
    ),
    *("hf:org/repo/../x.gguf", "hf:org/repo//x.gguf", "hf:org/repo/x.bin", "hf:org/repo/C:\\x.gguf", "hf:org/re po"),
    *("hf:org/repo/a\nb.gguf", "hf:org/repo/a+b.gguf", f"hf:org/repo/{'x' * 400}.gguf", f"hf:org/{'r' * 100}"),
    *("https://u:p@host/m.gguf", "file:///x.gguf", "http://h/m", "https://example.com/o/r", "ftp://h/x.gguf", "s3:x/y"),
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: ascii(text)[:30])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, exists=nothing_exists)
    said = caught.value.message + caught.value.hint
    assert caught.value.hint
    assert said.isprintable()
    assert len(said) < 600


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        parse("https://user:secret@host/m.gguf", exists=nothing_exists)
    assert "secret" not in caught.value.message + caught.value.hint


def test_one_model_is_no_pair() -> None:
    with pytest.raises(UsageError, match="'a\\+none' is a pair, and a draft is one model"):
        parse_draft("a+none", exists=nothing_exists)
    assert parse_draft("a+b.gguf", exists=lambda name: name == "a+b.gguf") == PathName("a+b.gguf")
    assert parse_model("a.gguf", exists=nothing_exists) == PathName("a.gguf")
    with pytest.raises(UsageError, match="is a pair"):
        parse_model("a.gguf+none", exists=nothing_exists)
    assert parse_model("/b/a+b.gguf", exists=nothing_exists, is_whole=True) == PathName("/b/a+b.gguf")


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


@pytest.mark.parametrize(
    "name",
    [
        "../x.gguf",
        "a/../../b.gguf",
        "/etc/x",
        "C:\\x",
        "\\\\host\\s",
        "a\x1b.gguf",
        "a\nb",
        "",
        "a//b",
        ".",
        "é" * 200,
        "./x",
    ],
)
def test_names_of_files_that_are_not_safe(name: str) -> None:
    assert check_file_name(name)


@pytest.mark.parametrize("name", ["x.gguf", "Q4_K_M/x-00001-of-00002.gguf", "ä b (1).gguf", "...gguf"])
def test_names_of_files_that_are(name: str) -> None:
    assert not check_file_name(name)


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
