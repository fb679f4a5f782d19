"""How words, standard input and files become one prompt."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from localspec.conversations.attachment import Attachment, fenced
from localspec.errors import NotFoundError, PromptTooLongError, UsageError
from localspec.settings.request import unescape
from localspec.ui.inputs import Inputs, compose, read_parts, read_prompt


def test_words_alone() -> None:
    assert compose("hello", [], is_raw=False) == "hello"


def test_data_goes_before_the_words_in_a_fence() -> None:
    assert compose("explain", [Attachment("", "a\nb\n")], is_raw=False) == "```\na\nb\n```\n\nexplain"


def test_data_alone_is_the_prompt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Inputs, "stdin", lambda *_, **__: "Once\n")
    assert read_parts((), (), Inputs(100)) == ("Once", [])
    (tmp_path / "empty").touch()
    assert read_parts((), ("-", str(tmp_path / "empty")), Inputs(100)) == ("Once", [])
    assert read_parts(("explain",), (), Inputs(100)) == ("explain", [Attachment("", "Once\n")])


def test_files_keep_their_names() -> None:
    assert compose("", [Attachment("/x/notes.md", "n")], is_raw=False) == "```notes.md\nn\n```"


def test_raw_joins_without_fences() -> None:
    assert compose(" upon", [Attachment("", "Once")], is_raw=True) == "Once upon"


@pytest.mark.parametrize("text", ["```", "a\n````\nb", "  ```` python\n```", "`````"])
def test_data_cannot_close_its_fence(text: str) -> None:
    made = fenced(Attachment("", text))
    fence = made.split("\n", 1)[0]
    closing = re.compile(rf"^ {{0,3}}`{{{len(fence)},}}\s*$", re.MULTILINE)
    assert len(closing.findall(made)) == 2  # the first line and the last


def test_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\0b\xff\xfec")
    inputs = Inputs(100)
    assert inputs.file(str(tmp_path / "f")) == "a\ufffdb\ufffd\ufffdc"
    assert "2 invalid UTF-8 and 1 NUL" in inputs.warnings[0].message


def test_arguments_that_are_no_text() -> None:
    inputs = Inputs(100)
    assert inputs.word(os.fsdecode(b"caf\xc3\xa9 \xff")) == "café \ufffd"
    assert len(inputs.warnings) == 1


def test_a_replacement_character_that_was_there_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\ufffd", "utf-8")
    inputs = Inputs(100)
    assert inputs.file(str(tmp_path / "f")) == "\ufffd"
    assert not inputs.warnings


def test_the_limit_holds(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 101)
    with pytest.raises(PromptTooLongError, match="longer than"):
        Inputs(100).file(str(tmp_path / "f"))


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(PromptTooLongError):
        Inputs(1000).file("/dev/zero")


@pytest.mark.parametrize("name", ["nothing-here", "."])
def test_files_that_cannot_be_read(name: str) -> None:
    with pytest.raises(NotFoundError):
        Inputs(100).file(name)


def test_no_prompt_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match="no prompt"):
        read_prompt(("  ",), (), Inputs(100), is_raw=False)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(r"\n\n", "\n\n"), (r"a\tb", "a\tb"), (r"\\n", r"\n"), (r"\x41", "A"), (r"\u00e9", "é"), (r"\d\\", "\\d\\")],
)
def test_escapes(typed: str, meant: str) -> None:
    assert unescape(typed) == meant
