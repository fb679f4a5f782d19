"""One fault has one exit code, whatever command or option meets it."""

from pathlib import Path

import pytest

from tests.cli.harness import assert_advice, assert_one_line, needs_pair, run_engine

pytestmark = needs_pair
RUN, BENCH = ("run", "-m", "storyteller", "-n", "1", "hi"), ("bench", "storyteller")
TAKE_TEXT = [
    (*RUN, "-f", "{}"),
    (*RUN, "-s", "@{}"),
    (*RUN, "--suffix", "@{}"),
    (*RUN, "--prediction", "@{}"),
    (*RUN, "--grammar", "@{}"),
    (*RUN, "--schema", "@{}"),
    (*RUN, "--choices", "@{}"),
    (*RUN, "--template", "{}"),
    (*RUN, "--verifier", "wss://127.0.0.1:9", "--verifier-ca", "{}"),
    (*RUN, "--verifier", "ws://127.0.0.1:9", "--verifier-key-file", "{}"),
    (*BENCH, "--suite", "{}"),
    (*BENCH, "--baseline", "{}"),
    ("rank", "storyteller", "hi", "--items", "{}"),
    ("rank", "storyteller", "hi", "--items", "a,b", "-s", "@{}"),
    ("serve", "storyteller", "--api-key-file", "{}"),
    ("serve", "storyteller", "--ssl-certfile", "{}"),
    ("heads", "train", "storyteller", "--prompts", "{}"),
    ("early-exit", "tune", "storyteller", "--prompts", "{}"),
]
WRITE = [
    (*RUN, "--log-file", "{}"),
    ("logs", "export", "-o", "{}"),
    (*BENCH, "--json", "{}"),
    (*BENCH, "--markdown", "{}"),
    (*BENCH, "--plots", "{}"),
]


def _typed(args: tuple[str, ...], path: Path) -> list[str]:
    return [each.format(path) for each in args]


@pytest.mark.parametrize("args", TAKE_TEXT, ids=" ".join)
def test_a_file_that_is_no_text(args: tuple[str, ...], tmp_path: Path) -> None:
    """Bytes where a text belongs are 2, a file that is not there is 3; both name the file."""
    path = tmp_path / "found.txt"
    assert_advice(assert_one_line(run_engine(*_typed(args, path)), 3, path.name))
    path.write_bytes(b"\xff\x01\x9c\x00\x00" * 200)
    assert_advice(assert_one_line(run_engine(*_typed(args, path)), 2, path.name))


@pytest.mark.parametrize("args", WRITE, ids=" ".join)
def test_a_file_that_cannot_be_written(args: tuple[str, ...], tmp_path: Path) -> None:
    """It is 7, and the line names the file."""
    if args[0] == "logs":
        assert run_engine(*RUN).returncode == 0
    path = tmp_path / "no" / "out.md"
    assert_advice(assert_one_line(run_engine(*_typed(args, path)), 7, "out.md"))


def test_a_number_that_a_chat_has_not_listed(tmp_path: Path) -> None:
    """It is 3 in a chat of a script, too."""
    done = run_engine("chat", "--plain", "storyteller", stdin=b"/resume 77\n")
    assert done.returncode == 3
    assert b"77 is the number of a list" in done.stderr
