"""The line chat with a scripted worker: turns, commands, interruptions, a dead engine."""

import os
import signal
from pathlib import Path

import pytest

from localspec.errors import WorkerDiedError
from tests.cli.harness import (
    FAKE,
    REAL,
    Terminal,
    children,
    is_running,
    localspec,
    needs_pair,
    run_engine,
    wait_for,
    wait_until_idle,
)
from tests.cli.talking import ANSWER, Talk


@pytest.fixture
def talk(capsys: pytest.CaptureFixture[str]) -> Talk:
    return Talk(capsys)


def test_an_engine_that_died_idle_loads_again_and_answers(talk: Talk) -> None:
    talk.say("one")
    talk.worker.died_idle = WorkerDiedError("The engine was ended by SIGKILL while idle")
    assert talk.say("two") == f"You: two\nAssistant: {ANSWER}\n"
    assert talk.errors == "localspec: warning: The engine was ended by SIGKILL while idle; the engine starts again\n"
    assert talk.code == 0
    assert len(talk.worker.loads) == 2
    assert talk.sent == [("user", "one"), ("assistant", ANSWER), ("user", "two")]


def test_one_message_that_is_too_long_costs_the_next_one_nothing(talk: Talk) -> None:
    talk.say("one", "two")
    talk.worker.max_messages = 0
    talk.say("too long")
    assert "the context holds 1024" in talk.errors
    assert len(talk.worker.requests) == 3
    assert talk.worker.requests[-1].shorten
    talk.worker.max_messages = 9
    talk.say("three")
    assert [content for _, content in talk.sent] == ["one", ANSWER, "two", ANSWER, "three"]


def chat_terminal(**env: str) -> Terminal:
    terminal = Terminal(["chat", "--plain", "--no-stats"], env=env)
    terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
    return terminal


def ready(terminal: Terminal, n: int) -> bool:
    """Whether the prompt for message `n` stands there, waiting."""
    return terminal.text.count("You:") == n and terminal.lines[-1] == "You:"


@pytest.mark.parametrize("env", [{"ACCESSIBLE": "1"}, {"TERM": "dumb"}, {"LOCALSPEC_PLAIN": "1"}])
def test_bare_on_a_terminal_that_is_not_to_be_filled_is_the_line_chat(env: dict[str, str]) -> None:
    terminal = Terminal([], env=env)
    terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_on_a_terminal() -> None:
    terminal = chat_terminal()
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    talk = terminal.lines[terminal.lines.index("You: Hello") :]
    assert talk == ["You: Hello", f"Assistant: {ANSWER}", "You:"]
    terminal.type("\x04")
    assert terminal.wait() == 0
    terminal.assert_clean()


def test_control_c_stops_the_answer_and_not_the_chat() -> None:
    terminal = chat_terminal(FAKE_PAUSE="30")
    terminal.type("Hello\n")
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.type("\x03")
    terminal.wait_for(lambda: ready(terminal, 2))
    assert ANSWER not in terminal.text
    terminal.type("/bye\n")
    assert terminal.wait() == 0


def test_a_second_control_c_ends_a_deaf_engine_and_not_the_chat(tmp_path: Path) -> None:
    is_heard = tmp_path / "heard"
    terminal = chat_terminal(FAKE_PAUSE="30", FAKE_DEAF="1", FAKE_CANCELS=str(is_heard))
    terminal.type("Hello\n")
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.type("\x03")
    wait_for(is_heard.exists)  # two signals at once are one
    terminal.type("\x03")
    terminal.wait_for(lambda: ready(terminal, 2))
    assert "the engine was ended" in terminal.text
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_control_c_at_the_prompt() -> None:
    terminal = chat_terminal()
    wait_until_idle(terminal.process)  # CPython's input() notices a signal only once it waits for a key
    terminal.type("\x03")
    terminal.wait_for(lambda: ready(terminal, 2))
    assert "again or Ctrl-D" in terminal.text
    wait_until_idle(terminal.process)
    terminal.type("\x03")
    assert terminal.wait() == 0
    terminal.assert_clean()


def test_control_c_ends_what_a_command_does_and_not_the_chat(tmp_path: Path) -> None:
    program = tmp_path / "xclip"
    program.write_text("#!/bin/sh\necho COPYING >/dev/tty\nexec sleep 60\n")
    program.chmod(0o755)
    env = {"DISPLAY": ":9", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    terminal = chat_terminal(**env)
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    terminal.type("/copy\n")
    terminal.wait_for(lambda: "COPYING" in terminal.text)
    terminal.type("\x03")
    terminal.wait_for(lambda: ready(terminal, 3))
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_control_c_in_an_editor_is_the_editors(tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    wait = 'until [ -e "$0.done" ]; do sleep 0.1; done'
    editor.write_text(f'trap "echo INTERRUPTED" INT; echo EDITING; {wait}; echo changed > "$1"')
    terminal = chat_terminal(EDITOR=f"sh {editor}", VISUAL="")
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    terminal.type("/edit\n")
    terminal.wait_for(lambda: "EDITING" in terminal.text)
    terminal.type("\x03")
    terminal.wait_for(lambda: "INTERRUPTED" in terminal.text)
    (tmp_path / "editor.sh.done").touch()
    terminal.wait_for(lambda: ready(terminal, 3))
    terminal.type("/history\n")
    terminal.wait_for(lambda: "changed" in terminal.text)
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_termination_at_the_prompt_restores_the_terminal(tmp_path: Path) -> None:
    terminal = chat_terminal(LOCALSPEC_HOME=str(tmp_path))
    terminal.type("half a mess")
    terminal.wait_for(lambda: "half a mess" in terminal.text)
    terminal.signal(signal.SIGTERM)
    assert terminal.wait() == 143
    assert terminal.after == terminal.before


def test_termination_during_an_answer_ends_the_chat() -> None:
    terminal = chat_terminal(FAKE_PAUSE="5")
    terminal.type("Hello\n")
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.signal(signal.SIGTERM)
    assert terminal.wait() == 143
    terminal.assert_clean()


def test_a_script_of_lines() -> None:
    done = localspec("chat", program=FAKE, stdin=b"one\n/temp 0\n\xff\0\ntwo")
    assert done.returncode == 0
    assert done.stdout.decode().count("Assistant: ") == 3
    assert done.stderr == b""


def test_an_error_on_a_terminal_is_not_the_chats() -> None:
    terminal = chat_terminal(FAKE_DIES="1")
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    terminal.type("\x04")
    assert terminal.wait() == 0


@needs_pair
def test_the_real_engine_may_die_between_two_messages() -> None:
    terminal = Terminal(["chat", "--plain", "--no-stats", "-n", "8", "--temp", "0"], program=REAL)
    terminal.wait_for(lambda: ready(terminal, 1))
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    (engine,) = children(terminal.process.pid)
    os.kill(engine, signal.SIGKILL)
    wait_for(lambda: not is_running(engine))
    terminal.type("Go on\n")
    terminal.wait_for(lambda: ready(terminal, 3))
    assert "SIGKILL" in terminal.text
    assert "while idle; the engine starts again" in "".join(terminal.lines)
    assert terminal.text.count("Assistant: ") == 2
    terminal.type("\x04")
    assert terminal.wait() == 0


@needs_pair
def test_the_real_pair_keeps_the_prefix() -> None:
    done = run_engine("chat", "-n", "12", "--temp", "0", stdin=b"A king\n/stats\nGo on\n/stats\n")
    assert done.returncode == 0, done.stderr
    cached = [line for line in done.stdout.decode().splitlines() if "prompt tokens from the cache" in line]
    assert " 0 of " in cached[0]
    assert " 0 of " not in cached[1]


@needs_pair
def test_the_real_pair_leaves_out_what_has_no_room() -> None:
    story = "Tell me of the king who lived in the forest with his three brothers and the old woman by the fire.\n"
    options = ("-n", "60", "--ctx", "256", "--template", "none", "--temp", "0")
    done = run_engine("chat", *options, stdin=5 * story.encode())
    assert done.returncode == 0, done.stderr
    assert b"the context of 256 tokens is full: " in done.stderr
    assert b"no longer sent; --ctx 512 sends more" in done.stderr
    assert b"tokens with the prompt" not in done.stderr, "no answer was cut short"
