"""Commands on terminals of 80 and 60 columns: no word is broken, no figure cut."""

import json
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from localspec.cli.console import broken
from localspec.models.catalog import load_catalog
from localspec.ui.columns import hung
from tests.cli.harness import PAIR, REAL, Terminal, needs_pair, run

TARGET = str(PAIR / "target-q8_0.gguf")
LONG = "Answer in one sentence of plain English, and name the file and its line whenever there is one to be named."
LICENCES = {"licence", *(model.license for model in load_catalog().models.values() if model.license)}
COMMANDS = [
    ("plan", TARGET, "--offline", "--ram", "8G"),
    ("ps",),
    ("run", "-m", "qwen3-8b", "--offline", "hi"),
    ("config", "preset"),
    ("config", "show"),
    ("explain",),
    ("explain", "block"),
    ("explain", "draft-model"),
    ("methods",),
    ("show", TARGET),
    ("pairs", "show", "storyteller"),
    ("heads", "list"),
    ("drafts", "list"),
    ("logs",),
    ("logs", "search", "evening"),
    ("run", "-m", TARGET, "--shcema", "x", "Why is the sky blue?"),
    ("pairs", "list"),
    ("ls",),
    ("doctor", "storyteller"),
    ("race", TARGET, "-n", "4", "--seed", "1", "--temp", "0", "Once upon a time"),
    ("demo", TARGET),
    ("--help",),
    ("run", "--help"),
    ("pairs", "--help"),
]

# Each command in a fork, which saves the imports; behind its output a mark and its exit code.
MARK = "@@@"
FORKS = f"""
import importlib, json, os, pkgutil, sys
import localspec.cli
for module in pkgutil.walk_packages(localspec.cli.__path__, "localspec.cli."):
    importlib.import_module(module.name)
for args in json.loads(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        sys.argv, code = ["localspec", *args], 0
        try:
            localspec.cli.main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    print({MARK!r}, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def shown_lines(output: bytes) -> list[str]:
    """Return what stays on a terminal: a status is erased."""
    text = re.sub(r"[^\n]*(\x1b\[K|\x1b\[J)", "", output.decode())
    return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[78DM])", "", text).replace("\r", "").split("\n")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home with a preset and a conversation."""
    home = str(tmp_path_factory.mktemp("home"))
    env = {"LOCALSPEC_HOME": home, "HF_HOME": home, "COLUMNS": ""}
    assert run("config", "preset", "save", "review", "-m", TARGET, "-s", LONG, env=env).returncode == 0
    question = "Why is the sky above the sea so much redder in the evening than at noon, when it is blue all over?"
    assert run("run", "-q", "-n", "1", question, env=env).returncode == 0
    return env


@pytest.fixture(scope="module")
def piped(env: dict[str, str]) -> list[CompletedProcess[bytes]]:
    return [run(*args, env=env) for args in COMMANDS]


@needs_pair
@pytest.mark.parametrize("columns", [80, 60])
def test_no_word_is_broken(columns: int, env: dict[str, str], piped: list[CompletedProcess[bytes]]) -> None:
    program = [sys.executable, "-c", FORKS]
    terminal = Terminal([json.dumps(COMMANDS)], program=program, env=env, columns=columns)
    assert terminal.wait() == 0
    *outputs, rest = re.split(rf"{MARK} (\d+)\r\n".encode(), terminal.output)
    assert rest == b""
    for args, done, output, code in zip(COMMANDS, piped, outputs[::2], outputs[1::2], strict=True):
        assert int(code) == done.returncode, args
        lines = shown_lines(output)
        is_timed = args[0] in ("race", "demo", "doctor")  # whose figures are others each time
        shown, expected = (
            set(re.sub(r"\d+(\.\d+)?|█+", "#", text).split() if is_timed else text.split())
            for text in ("\n".join(lines), (done.stdout + done.stderr).decode())
        )
        lost = expected - shown - (LICENCES if args == ("pairs", "list") else set())
        lost -= set(re.sub(r"-\n *", "-", "\n".join(lines)).split())  # click breaks lines at a hyphen
        lost = {word for word in lost if len(word) < columns - 20 and "/" not in word and ".gguf" not in word}
        assert not lost or args[0] in ("race", "demo"), args  # whose verdict may be another one
        fits = (len(line) <= columns or max(map(len, line.split())) > columns - 20 for line in lines)
        assert all(fits), args


@needs_pair
@pytest.mark.parametrize("columns", [80, 60])
def test_the_figures_of_a_line_chat_fit(columns: int, tmp_path: Path) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path), "COLUMNS": ""}
    chat = Terminal(["chat", "--plain", TARGET, "-n", "12"], program=REAL, env=env, columns=columns)
    chat.wait_for(lambda: "Ctrl-D to leave" in chat.text)
    chat.type("Once upon a time\r")
    chat.wait_for(lambda: "cut off by max-tokens" in chat.text)
    chat.type("/stats\r")
    chat.wait_for(lambda: "peak memory" in chat.text)
    chat.type("/quit\r")
    assert chat.wait() == 0
    figures = shown_lines(chat.output)
    figures = figures[next(i for i, line in enumerate(figures) if line.startswith("  speculation")) :]
    assert max(map(len, figures)) <= columns
    reason = [line for line in figures if line.startswith(" " * 15)]
    assert reason, "a long text goes on below the place where it began"


def test_a_line_goes_on_below_the_text_behind_its_label() -> None:
    line = "  plans    one two three four"
    assert hung(line, len(line)) == line
    assert hung(line, 22) == "  plans    one two\n           three four"
    assert hung(line, 21) == "  plans    one two\n    three four"
    assert hung("a long label of a line   one two", 20) == "a long label of a\n  line   one two"
    assert hung("    one two three", 12) == "    one two\n      three"
    assert hung("/a/very/long/path/of/a/file", 12) == "/a/very/long/path/of/a/file"


def test_a_line_ends_where_the_next_word_has_no_room() -> None:
    assert broken("one two three", 7) == "one two\nthree"
    assert broken("one two three", 6) == "one\ntwo\nthree"
    assert broken("one  two", 5) == "one \ntwo", "blanks stay as many, so that places stay"
    assert broken("a-long-word x", 4) == "a-long-word\nx"
