"""How words, standard input and files become one prompt."""

import codecs
import json
import math
import os
import subprocess
from pathlib import Path

import click
import pytest

from localspec.bench.whole_text import read_text
from localspec.cli.file_names import kept
from localspec.cli.option_sources import Integer, Length, Number
from localspec.conversations.records import Attachment
from localspec.errors import NotFoundError, PromptTooLongError, UsageError
from localspec.sanitize import decoded
from localspec.settings.declaration import declaration
from localspec.settings.request import LoadSettings
from localspec.settings.values import unescape
from localspec.ui.inputs import Inputs, compose, read_parts, read_prompt, text_or_file
from tests.cli.harness import FAKE, TIMEOUT, assert_one_line, environment, run


def test_words_alone() -> None:
    assert compose("hello", [], is_raw=False) == "hello"


def test_data_goes_before_the_words_in_a_fence() -> None:
    assert compose("explain", [Attachment("", "a\nb\n")], is_raw=False) == "```\na\nb\n```\n\nexplain"


def test_data_alone_is_the_prompt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Inputs, "stdin", lambda *_, **__: "Once\n")
    assert read_parts((), (), Inputs(100)) == ("Once", [])
    (tmp_path / "empty").touch()
    with pytest.raises(NotFoundError, match="empty holds no text"):
        read_parts((), ("-", str(tmp_path / "empty")), Inputs(100))
    assert read_parts(("explain",), (), Inputs(100)) == ("explain", [Attachment("", "Once\n")])


def test_files_keep_their_names() -> None:
    assert compose("", [Attachment("/x/notes.md", "n")], is_raw=False) == "```notes.md\nn\n```"


def test_raw_joins_without_fences() -> None:
    assert compose(" upon", [Attachment("", "Once")], is_raw=True) == "Once upon"


def test_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\0b\xff\xfec")
    inputs = Inputs(100)
    assert inputs.file(str(tmp_path / "f")) == "a\ufffdb\ufffd\ufffdc"
    assert "2 invalid UTF-8 and 1 NUL" in inputs.warnings[0].message


ENCODED = [
    b"Zeile\r\nzwei",
    b"\xef\xbb\xbf" + b"Zeile\nzwei",
    *("Zeile\r\nzwei".encode(name) for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")),
    codecs.BOM_UTF16_BE + "Zeile\r\nzwei".encode("utf-16-be"),
]


@pytest.mark.parametrize("data", ENCODED, ids=[data[:8].hex() for data in ENCODED])
def test_line_ends_marks_and_encodings_are_no_part_of_a_text(data: bytes, tmp_path: Path) -> None:
    """The same text from standard input, from -f, as an attachment, as a system message and as a suite of a bench."""
    (tmp_path / "f").write_bytes(data)
    path, inputs = str(tmp_path / "f"), Inputs(100)
    assert inputs.file(path) == inputs.regular(path) == "Zeile\nzwei"
    assert text_or_file("--system", f"@{path}") == "Zeile\nzwei"
    assert read_text(tmp_path / "f", said="f", hint="") == "Zeile\nzwei"
    assert not inputs.warnings
    told = run("run", "--raw", "--json", stdin=data, env={"FAKE_WARN": ""})
    assert json.loads(told.stdout)["warnings"] == []


@pytest.mark.parametrize("data", [b"a\0", b"ab\0c", b"\0a\0b\0\0", "日本".encode(), "Ā\0".encode()])
def test_a_zero_byte_does_not_make_utf_16(data: bytes) -> None:
    assert decoded(data) == data.decode()


def test_a_lone_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `cat`, `llm` and others have it; beside other words it is a word."""
    monkeypatch.setattr(Inputs, "stdin", lambda *_, **__: "from a pipe\n")
    assert read_parts(("-",), (), Inputs(100)) == ("from a pipe", [])
    assert read_prompt(("-",), (), Inputs(100), is_raw=True) == "from a pipe"
    assert read_parts(("-", "one"), (), Inputs(100))[0] == "- one"


def test_one_rule_for_the_newline_at_the_end(tmp_path: Path) -> None:
    """A file and standard input give the same raw prompt; before words the newline stays."""
    (tmp_path / "f").write_text("Once upon\n")
    path = str(tmp_path / "f")
    assert read_prompt((), (path,), Inputs(100), is_raw=True) == "Once upon"
    assert read_prompt((), (path, path), Inputs(100), is_raw=True) == "Once upon\nOnce upon"
    assert read_prompt(("a time",), (path,), Inputs(100), is_raw=True) == "Once upon\na time"
    assert compose("", [Attachment("", "two\n\n")], is_raw=True) == "two\n"
    assert text_or_file("--system", f"@{path}") == "Once upon"


def test_timeout_counts_the_wait_for_standard_input(tmp_path: Path) -> None:
    """Also where a pipe is named by -f and nobody opens its other end; what is left is for the answer."""
    os.mkfifo(tmp_path / "pipe")
    for words in (["-n", "3", "hi"], ["-f", str(tmp_path / "pipe"), "hi"]):
        with subprocess.Popen(["sleep", str(2 * TIMEOUT)], stdout=subprocess.PIPE) as silent:
            done = subprocess.run(
                [*FAKE, "run", "--no-save", "--timeout", "0.5", *words],
                stdin=silent.stdout, capture_output=True, env=environment(), timeout=TIMEOUT,
            )  # fmt: skip
            silent.kill()
        assert_one_line(done, 124, "reading the prompt took longer than --timeout 0.5")
    told = run("run", "--json", "--timeout", "60", stdin=b"hi")
    assert json.loads(told.stdout)["finish_reason"] == "stop"


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
    with pytest.raises(UsageError, match="is no text"):
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


def test_a_pipe_of_bytes_is_refused_as_a_file_is(tmp_path: Path) -> None:
    done = run("run", "what is this?", stdin=bytes(range(256)) * 8)
    assert_one_line(done, 2, "standard input is no text", "pipe a text in")
    (tmp_path / "b.dat").write_bytes(bytes(range(256)) * 8)
    assert_one_line(run("run", "hi", "-f", f"{tmp_path}/b.dat"), 2, "b.dat is no text")
    assert b"replaced by" in run("run", "--no-save", "hi", stdin=b"one wrong \xff byte").stderr


@pytest.mark.parametrize("how", [("run", "hi", "-f"), ("run", "hi", "--system")])
def test_a_large_file_that_is_no_text_is_told_as_that(tmp_path: Path, how: tuple[str, ...]) -> None:
    """Its length was blamed, and a larger limit offered."""
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF\3\0\0\0" * 2000)
        file.truncate((16 << 20) + 1)
    name = f"@{path}" if "--system" in how else str(path)
    assert_one_line(run(*how, name), 2, "model.gguf is no text")


def test_a_context_may_be_typed_in_thousands() -> None:
    for typed, meant in (("8k", 8192), ("8192", 8192), ("2K", 2048)):
        assert Length().convert(typed, None, None) == declaration(LoadSettings, "ctx").typed(typed) == meant
        assert run("run", "--no-save", "--ctx", typed, "hi").returncode == 0


LIMITS = "it must be at least 0 and at most 100"


@pytest.mark.parametrize(
    ("kind", "text", "read"),
    [
        (Integer(0, 100), "0", 0),
        (Integer(0, 100), "100", 100),
        (Integer(0, 100), "-1", f"-1 is out of range: {LIMITS}"),
        (Integer(0, 100), "101", f"101 is out of range: {LIMITS}"),
        (Integer(0, 100), "1.5", "'1.5' is not an integer"),
        (Integer(), "-7", -7),
        (Number(0, 100, is_above=True), "0.5", 0.5),
        (Number(0, 100, is_above=True), "100", 100.0),
        (Number(0, 100, is_above=True), "0", "0 is out of range: it must be more than 0 and at most 100"),
        (Number(0, 100, is_above=True), "100.5", "100.5 is out of range: it must be more than 0 and at most 100"),
        (Number(0, 100), "nan", "'nan' is not a number"),
        (Number(), "inf", math.inf),
        (Length(), "8x", "'8x' is not a number of tokens, such as 8192 or 8k"),
    ],
)
def test_a_number_has_its_limits(kind: Number, text: str, read: float | str) -> None:
    try:
        value = kind.convert(text, None, None)
    except click.BadParameter as error:
        value = error.message
    assert value == read


def piped(text: bytes) -> str:
    """Return what the shell has for <(command): the descriptor of a pipe that is open for reading."""
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    return f"/dev/fd/{read}"


FORMS = {
    "--schema": b"name, age int",
    "--grammar": b'root ::= "yes" | "no"',
    "--choices": b"yes\nno\n",
    "--template": b"{{ messages[-1].content }}",
    "--corpus": b"some text",
    "--verifier-ca": b"certificates",
    "--verifier-key-file": b"secret",
}


@pytest.mark.parametrize("option", FORMS)
def test_an_option_takes_a_pipe_of_the_shell(option: str) -> None:
    done = run("run", "--no-save", "hi", option, piped(FORMS[option]))
    assert (done.returncode, done.stderr.count(b"cannot")) == (0, 0), done.stderr.decode()


@pytest.mark.parametrize("option", ["--system", "--prediction", "--suffix"])
def test_a_text_of_an_option_comes_through_a_pipe(option: str) -> None:
    done = run("run", "--no-save", "hi", option, f"@{piped(b'You are terse.')}")
    assert done.returncode == 0, done.stderr.decode()


def test_a_pipe_is_kept_for_other_processes_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other end may be written to: then it is an output, and nothing is read."""
    name = kept(f"@{piped(b'text')}", "--system")
    told = subprocess.run(["cat", name.removeprefix("@")], capture_output=True, check=True)
    assert told.stdout == b"text"
    read, write = os.pipe()
    assert kept(f"/dev/fd/{write}", "--log-file") == f"/dev/fd/{write}"
    os.close(read)
    os.close(write)
    assert kept("/dev/fd/99999", "--system") == "/dev/fd/99999"
    monkeypatch.setattr("localspec.cli.file_names.LONGEST", 3)
    with pytest.raises(PromptTooLongError, match="--system /dev/fd/"):
        kept(piped(b"text"), "--system")
