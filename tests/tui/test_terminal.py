"""The chat on a real terminal: a real run, every way it may end, and what reaches the terminal of hostile text."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localspec.conversations.store import Store
from localspec.tui.background import QUESTION
from tests.cli.harness import FAKE, PAIR, REAL, TIMEOUT, Terminal, children, localspec, needs_pair

BEGUN = b"\x1b[?1049h"
# What Textual begins: alternate screen, mouse, focus reports, bracketed paste, a hidden cursor.
ENDED = [b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?1006l", b"\x1b[?1004l", b"\x1b[?2004l", b"\x1b[?25h"]


def chat(tmp_path: Path, *args: str, program: list[str] | None = None, **env: str) -> Terminal:
    more: dict[str, Any] = {} if program is None else {"program": program}
    home = {"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_NO_HISTORY": "1"}
    terminal = Terminal(["chat", *args], env={**home, **env}, columns=120, rows=40, **more)
    terminal.wait_for(lambda: has(terminal, "Ask something") and has(terminal, "ctx 0/"))
    return terminal


def has(terminal: Terminal, text: str) -> bool:
    return any(text in line for line in terminal.screen.display)


def say(terminal: Terminal, text: str, n: int) -> None:
    """Send a message and wait for the line below the `n`th answer."""
    terminal.type(f"{text}\r")
    terminal.wait_for(
        lambda: sum(bool(re.search("tokens · |demonstration · ", line)) for line in terminal.screen.display) >= n
    )


def test_quiet_for_good_is_no_wish_for_lines(tmp_path: Path) -> None:
    """Which -q on the command line is."""
    terminal = chat(tmp_path, LOCALSPEC_QUIET="1")
    terminal.type("\x11")
    assert terminal.wait() == 0
    lines = Terminal(["chat", "-q"], env={"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_NO_HISTORY": "1"})
    lines.wait_for(lambda: lines.lines[-1:] == ["You:"])
    lines.type("\x04")
    assert lines.wait() == 0
    assert BEGUN not in lines.output


def test_an_answer_of_the_terminal_in_two_parts_is_not_typed(tmp_path: Path) -> None:
    """The first part is read before the screen is drawn, the second by the chat."""
    terminal = Terminal(["chat"], env={"LOCALSPEC_HOME": str(tmp_path)}, columns=120, rows=40)
    terminal.wait_for(lambda: QUESTION in terminal.output)
    terminal.type("early\x1b]11;rgb:ffff/ff")
    terminal.wait_for(lambda: has(terminal, "early"))
    terminal.type("ff/ffff\x1b\\\x1b[?62;4c and late")
    terminal.wait_for(lambda: has(terminal, "early and late"))
    terminal.type("\x11")
    assert terminal.wait() == 0


@needs_pair
def test_a_conversation_whose_file_was_replaced_says_so(tmp_path: Path) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_NO_HISTORY": "1"}
    file = tmp_path / "t.gguf"
    shutil.copy(PAIR / "target-q8_0.gguf", file)
    assert localspec("run", "-m", f"{file}+none", "-n", "2", "Once", env=env).returncode == 0
    shutil.copy(PAIR / "draft-q8_0.gguf", file)
    terminal = chat(tmp_path, "-c", program=REAL)
    terminal.wait_for(lambda: has(terminal, "t.gguf is another file than the one that answered in this conversation"))
    terminal.type("\x11")
    assert terminal.wait() == 0


@needs_pair
def test_a_real_chat_of_three_turns(tmp_path: Path) -> None:
    terminal = chat(tmp_path, "-n", "24", "--seed", "3", "--method", "draft-model", program=REAL)
    for n, text in enumerate(("Once upon a time", "The fox said", "And then"), 1):
        say(terminal, text, n)
    for told in ("SPEED", "GUESSES", "● autosaved"):  # figures may come a moment after the text
        terminal.wait_for(partial(has, terminal, told))
    terminal.type("\x1bOR\x1bOR")  # F3 twice
    terminal.wait_for(lambda: has(terminal, "⟦corrected⟧"))
    passes = next(line for line in terminal.screen.display if "PASSES" in line)
    assert int(re.findall(r"PASSES (\d+)", passes)[0]) >= 5
    terminal.type("\x1bOS")  # F4: the last question again, plainly and with speculation
    terminal.wait_for(lambda: has(terminal, "race · done") and has(terminal, "✓ "))  # one text, or a fork at a tie
    terminal.type("\x1b")  # back
    terminal.wait_for(lambda: has(terminal, "SPEED"))
    terminal.type("\x11")  # Ctrl+Q
    assert terminal.wait() == 0
    with sqlite3.connect(tmp_path / "data" / "conversations.db") as database:
        rows = database.execute("SELECT role, finish, length(text) > 0 FROM message ORDER BY id").fetchall()
    assert rows == [("user", "sent", 1), ("assistant", "length", 1)] * 3


@pytest.mark.parametrize("state", ["idle", "streaming"])
@pytest.mark.parametrize(
    ("end", "code"), [("quit", 0), ("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129), ("SIGQUIT", 131)]
)
def test_the_terminal_is_left_as_it_was(end: str, code: int, state: str, tmp_path: Path) -> None:
    terminal = chat(tmp_path, FAKE_PAUSE="0.05", FAKE_PASSES=json.dumps(["word "] * 500))
    if state == "streaming":
        terminal.type("go\r")
        terminal.wait_for(lambda: has(terminal, "word word word"))
    if end == "quit":
        terminal.type("\x11")
    else:
        terminal.signal(signal.Signals[end])
    assert terminal.wait() == code
    rest = terminal.output[terminal.output.rindex(BEGUN) :]
    assert all(sequence in rest for sequence in ENDED), [each for each in ENDED if each not in rest]
    assert terminal.after == terminal.before
    assert not terminal.screen.cursor.hidden
    assert b"Traceback" not in rest


def test_a_terminal_that_takes_nothing_does_not_keep_the_process(tmp_path: Path) -> None:
    terminal = chat(tmp_path, FAKE_PAUSE="0.001", FAKE_PASSES=json.dumps(["word "] * 5000))
    terminal.type("go\r")
    terminal.stall()
    terminal.signal(signal.SIGTERM)
    assert terminal.process.wait(TIMEOUT) == 143


def test_a_terminal_that_goes_without_a_signal_ends_the_chat(tmp_path: Path) -> None:
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    terminal = chat(tmp_path, program=[sys.executable, "-c", ignoring, *FAKE])
    terminal.close()
    assert terminal.process.wait(TIMEOUT) == 129


@needs_pair
def test_a_killed_engine_is_a_card_and_the_terminal_is_clean(tmp_path: Path) -> None:
    terminal = chat(tmp_path, "-n", "8", program=REAL)
    (engine,) = children(terminal.process.pid)
    os.kill(engine, signal.SIGKILL)
    terminal.wait_for(lambda: has(terminal, "was killed (SIGKILL)") and has(terminal, "Restart the engine"))
    say(terminal, "Once upon", 1)  # which starts it again
    terminal.type("\x11")
    assert terminal.wait() == 0
    assert terminal.after == terminal.before
    assert all(sequence in terminal.output for sequence in ENDED)


def test_a_kill_of_everything_leaves_what_was_kept_while_the_answer_came(tmp_path: Path) -> None:
    terminal = chat(tmp_path, FAKE_PAUSE="0.05", FAKE_PASSES=json.dumps([f"word{n} " for n in range(500)]))
    terminal.type("go\r")
    terminal.wait_for(lambda: has(terminal, "word1 "))
    with sqlite3.connect(tmp_path / "data" / "conversations.db") as database:
        terminal.wait_for(lambda: "word5 " in kept(database))
        terminal.signal(signal.SIGKILL)
        terminal.wait()
        text = kept(database)
    assert text.startswith("word0 word1 word2 word3 word4 word5 ")
    assert "word499 " not in text


def test_an_answer_is_kept_while_an_editor_has_the_terminal(tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    wait = 'until [ -e "$0.done" ]; do sleep 0.1; done'
    editor.write_text(f'trap "echo INTERRUPTED" INT; echo EDITING; {wait}; printf more >> "$1"')
    passes = json.dumps([f"word{n} " for n in range(500)])
    terminal = chat(tmp_path, FAKE_PAUSE="0.05", FAKE_PASSES=passes, EDITOR=f"sh {editor}")
    terminal.type("go\r")
    terminal.wait_for(lambda: has(terminal, "word3 "))
    terminal.type("half, ")
    terminal.wait_for(lambda: has(terminal, "half, "))
    terminal.type("\x07")  # Ctrl+G
    terminal.wait_for(lambda: has(terminal, "EDITING"))
    terminal.type("\x03")  # the editor's
    terminal.wait_for(lambda: has(terminal, "INTERRUPTED"))
    drawn = len(terminal.output)
    with sqlite3.connect(tmp_path / "data" / "conversations.db") as database:
        first = kept(database)
        terminal.wait_for(lambda: len(kept(database)) > len(first) + 300)
    assert len(terminal.output) == drawn
    (tmp_path / "editor.sh.done").touch()
    terminal.wait_for(lambda: has(terminal, "half, more") and has(terminal, "SPEED"))
    terminal.type("\x03")  # stops the answer
    terminal.wait_for(lambda: has(terminal, "stopped"))
    terminal.type("\x11")
    assert terminal.wait() == 0


@needs_pair
def test_what_is_asked_for_when_going_on_is_kept(tmp_path: Path) -> None:
    """As in the line chat: what follows is answered by that pair, under that system message."""
    other = tmp_path / "other.gguf"
    os.link(PAIR / "target-q8_0.gguf", other)
    for args in ([], ["-c", "--system", "Be brief.", "-m", f"{other}+none"]):
        terminal = chat(tmp_path, *args)
        say(terminal, "go", 1)
        terminal.type("\x11")
        assert terminal.wait() == 0
    with Store.open(tmp_path / "data" / "conversations.db") as store:
        (kept_one,) = store.conversations()
        assert (kept_one.system, kept_one.pair) == ("Be brief.", f"{other}+none")


def test_an_editor_that_fails_gives_the_terminal_back(tmp_path: Path) -> None:
    terminal = chat(tmp_path, EDITOR="false")
    terminal.type("half, ")
    terminal.wait_for(lambda: has(terminal, "half, "))
    terminal.type("\x07")
    terminal.wait_for(lambda: has(terminal, "false left with status 1"))
    terminal.type("more")
    terminal.wait_for(lambda: has(terminal, "half, more"))
    terminal.type("\x11")
    assert terminal.wait() == 0


def kept(database: sqlite3.Connection) -> str:
    """Return what is kept of the answer."""
    text: str = database.execute("SELECT text FROM message WHERE role = 'assistant'").fetchone()[0]
    return text


def test_nothing_of_a_hostile_answer_is_obeyed_by_the_terminal(tmp_path: Path) -> None:
    evil = [
        "\x1b]52;c;RVZJTA==\x07",
        "\x1b]8;;http://evil\x1b\\",
        "\x1b]0;evil\x07",
        "\x9b2J",
        "\x1bc",
        "\u202e",
        "\ufeff",
    ]
    evil += ["[/INST]", "[@click=app.quit]x[/]", "\x1b[6n", "`\x1b[31m`\n\n```\n\x1b]52;c;RVZJTA==\x07\n```\n\nfin."]
    pieces = [piece for text in evil for piece in (text[:1], text[1:]) if piece]
    terminal = chat(tmp_path, FAKE_PASSES=json.dumps(pieces))
    say(terminal, "go", 1)
    terminal.type("\x1bOR\x1bOR")
    terminal.wait_for(lambda: has(terminal, "⟦corrected⟧"))
    terminal.type("\x11")
    assert terminal.wait() == 0
    output = terminal.output
    for sequence in (b"\x1b]52", b"\x1b]8;", b"\x1b]0;evil", b"\xc2\x9b", b"\x1bc", b"\xe2\x80\xae", b"\x1b[6n"):
        assert sequence not in output, sequence
    assert "␛]52;c;RVZJTA==".encode() in output


def wait_for_shell(terminal: Terminal, after: int = 0) -> None:
    """Wait for a prompt behind so many bytes of output: the shell drops what is typed before it."""
    terminal.wait_for(lambda: b"$ " in terminal.output[after:])


def test_control_z_gives_the_terminal_to_the_shell_and_fg_brings_the_chat_back_whole(tmp_path: Path) -> None:
    home = {"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_NO_HISTORY": "1", "PS1": "$ "}
    bash = ["bash", "--norc", "--noprofile", "-i"]
    terminal = Terminal([], program=bash, env=home, columns=120, rows=40)
    wait_for_shell(terminal)
    terminal.type(f"{sys.executable} -m tests.cli.fakes chat\r")
    terminal.wait_for(lambda: has(terminal, "Ask something") and has(terminal, "ctx 0/"))
    terminal.type("half")
    terminal.wait_for(lambda: has(terminal, "› half"))
    terminal.type("\x1a")
    terminal.wait_for(lambda: has(terminal, "Stopped"))
    for sequence in ENDED:
        assert sequence in terminal.output
    wait_for_shell(terminal, terminal.output.rindex(b"Stopped"))
    terminal.type("echo $((40 + 2))\r")
    terminal.wait_for(lambda: any(line.strip() == "42" for line in terminal.screen.display))
    n = len(terminal.output)
    terminal.type("fg\r")
    terminal.wait_for(lambda: b"half" in terminal.output[n:])  # drawn anew: the chat reads keys again
    terminal.type(" more")
    terminal.wait_for(lambda: has(terminal, "› half more"))
    terminal.type("\x03")
    terminal.wait_for(lambda: has(terminal, "Cleared"))
    terminal.type("\x03")
    terminal.wait_for(lambda: has(terminal, "Ctrl+C again to quit"))
    terminal.type("\x03")
    terminal.wait_for(lambda: terminal.output.count(ENDED[0]) == 2)
    wait_for_shell(terminal, terminal.output.rindex(ENDED[0]))
    terminal.type("echo code $?\r")
    terminal.wait_for(lambda: has(terminal, "code 0"))
    terminal.type("exit\r")
    terminal.wait()


def test_control_z_stays_where_no_shell_could_bring_the_chat_back(tmp_path: Path) -> None:
    terminal = chat(tmp_path)
    terminal.type("\x1a")
    terminal.wait_for(lambda: has(terminal, "There is no shell to go back to"))
    terminal.type("\x11")
    assert terminal.wait() == 0
