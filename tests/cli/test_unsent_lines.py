"""The line chat loses nothing that was typed: Ctrl-C, a kill and the end of a terminal leave it for the next chat."""

import signal
import termios
from functools import partial
from pathlib import Path

import pytest

from tests.cli.harness import TIMEOUT, Terminal, wait_for

BACK = "what was not sent the last time is back"


def chat(home: Path, *args: str, shown: str = "You:", **env: str) -> Terminal:
    """Open a line chat whose files are in `home`, and wait for a line that is shown."""
    env = {"LOCALSPEC_HOME": str(home), "LOCALSPEC_SAVE": "1", **env}
    terminal = Terminal(["chat", "--plain", "--no-stats", *args], env=env)
    terminal.wait_for(lambda: terminal.lines[-1:] == [shown])
    return terminal


def kept(home: Path) -> str:
    return "".join(file.read_text() for file in (home / "state" / "unsent").glob("[0-9]*"))


def type_and_keep(terminal: Terminal, home: Path, text: str, whole: str) -> None:
    terminal.type(text)
    terminal.wait_for(lambda: kept(home) == f"{whole}\n")


def asks_again(terminal: Terminal, n: int) -> bool:
    """Whether an empty prompt stands there, the `n`th one."""
    return terminal.text.count("You:") == n and terminal.lines[-1] == "You:"


def test_control_c_that_comes_with_a_look_at_the_line_does_not_leave(tmp_path: Path) -> None:
    """On a busy machine both signals wait for the process; the chat ended with code 130."""
    terminal = chat(tmp_path)
    type_and_keep(terminal, tmp_path, "some words", "some words")
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGALRM, signal.SIGCONT):
        terminal.process.send_signal(number)
    terminal.wait_for(lambda: asks_again(terminal, 2))
    assert "Up brings it back" in terminal.text
    assert kept(tmp_path) == "some words\n"
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_a_file_that_waits_for_the_message_is_kept_as_a_mention(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("Tangerine.")
    terminal = chat(tmp_path)
    terminal.type(f"/read {notes}\r")
    terminal.wait_for(lambda: "took notes.md" in terminal.text and asks_again(terminal, 2))
    type_and_keep(terminal, tmp_path, "What", f'What\n@"{notes}"')
    terminal.signal(signal.SIGKILL)
    terminal.wait()
    assert kept(tmp_path) == f'What\n@"{notes}"\n'


def test_control_c_takes_what_is_typed_and_only_on_an_empty_line_leaves(tmp_path: Path) -> None:
    """A second Ctrl-C with words before it took the words and the chat with them."""
    terminal = chat(tmp_path)
    for words in ("first words", "other words"):
        n = terminal.text.count("You:")
        type_and_keep(terminal, tmp_path, words, words)
        terminal.type("\x03")
        terminal.wait_for(partial(asks_again, terminal, n + 1))
    assert terminal.text.count("Up brings it back") == 2
    terminal.type("\x1b[A\x1b[A")
    terminal.wait_for(lambda: terminal.lines[-1] == "You: first words")
    terminal.type("\r")
    terminal.wait_for(lambda: "a king." in terminal.text and terminal.lines[-1] == "You:")
    assert kept(tmp_path) == "", "what was sent is not unsent"
    type_and_keep(terminal, tmp_path, "last words", "last words")
    terminal.type("\x03")
    terminal.wait_for(lambda: terminal.lines[-1] == "You:")
    terminal.type("\x03")
    assert terminal.wait() == 0
    again = chat(tmp_path, shown="You: last words")
    assert BACK in again.text
    again.type("\x03")
    again.wait_for(lambda: again.lines[-1] == "You:")
    again.type("\x04")
    assert again.wait() == 0
    assert kept(tmp_path) == "", "it was cleared as it was found"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_the_end_of_the_process_leaves_a_message_of_several_lines(tmp_path: Path, number: signal.Signals) -> None:
    terminal = chat(tmp_path)
    terminal.type("one\\\r")
    terminal.wait_for(lambda: terminal.lines[-1] == " ...")
    type_and_keep(terminal, tmp_path, "two", "one\ntwo")
    terminal.signal(number)
    terminal.wait()
    again = chat(tmp_path, shown="two")
    assert "You: one\ntwo" in again.text
    again.type("\r")
    again.wait_for(lambda: "a king." in again.text and again.lines[-1] == "You:")
    again.type("/history\r")
    again.wait_for(lambda: again.text.count("You: one\ntwo\nAssistant:") == 2)
    again.type("\x04")
    assert again.wait() == 0
    wait_for(lambda: kept(tmp_path) == "")


def test_quotes_that_are_open_come_back_open(tmp_path: Path) -> None:
    terminal = chat(tmp_path)
    terminal.type('"""one\r')
    terminal.wait_for(lambda: terminal.lines[-1] == "...")
    type_and_keep(terminal, tmp_path, "two", '"""one\ntwo')
    terminal.signal(signal.SIGKILL)
    terminal.wait()
    again = chat(tmp_path, shown="two")
    again.type('\rthree"""\r')
    again.wait_for(lambda: "a king." in again.text and again.lines[-1] == "You:")
    again.type("/history\r")
    again.wait_for(lambda: "You: one\ntwo\nthree\nAssistant:" in again.text)
    again.type("\x04")
    assert again.wait() == 0


def test_nothing_is_kept_of_a_chat_that_is_not_kept(tmp_path: Path) -> None:
    terminal = chat(tmp_path, "--no-save")
    terminal.type("secret")
    terminal.wait_for(lambda: terminal.lines[-1] == "You: secret")
    terminal.signal(signal.SIGTERM)
    assert terminal.wait() == 143
    assert kept(tmp_path) == ""


def test_a_terminal_that_is_closed_leaves_what_was_typed(tmp_path: Path) -> None:
    """The end of the terminal ended the line too, and the file with what was kept of it was removed."""
    terminal = chat(tmp_path)
    terminal.type("one\\\r")
    terminal.wait_for(lambda: terminal.lines[-1] == " ...")
    type_and_keep(terminal, tmp_path, "two", "one\ntwo")
    terminal.close()
    assert terminal.process.wait(TIMEOUT) == 129
    assert kept(tmp_path) == "one\ntwo\n"


def test_what_is_typed_while_an_answer_comes_outlives_the_control_c_that_stops_it(tmp_path: Path) -> None:
    """Nothing of it is sent: it may have been meant for the answer that is stopped. What follows is typed behind it."""
    terminal = chat(tmp_path, FAKE_PAUSE="30")
    terminal.type("hello\r")
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.type("a whole line\rhalf\x1b[D of\x7f a lin\x03e")
    terminal.wait_for(lambda: terminal.lines[-2:] == ["You: a whole line", "half o a line"])
    assert terminal.text.count("Assistant:") == 1
    terminal.wait_for(lambda: kept(tmp_path) == "a whole line\nhalf o a line\n")
    terminal.type("\x03")
    terminal.wait_for(lambda: terminal.lines[-1] == "You:")
    terminal.type("\x04")
    assert terminal.wait() == 0
    terminal.assert_clean()


def test_the_terminal_throws_nothing_away_while_an_answer_comes_and_is_as_before_afterwards(tmp_path: Path) -> None:
    """A second Ctrl-C ends a deaf engine; what was typed between the two stays as well. A kill restores the modes."""
    is_heard = tmp_path / "heard"
    terminal = chat(tmp_path, FAKE_PAUSE="3", FAKE_DEAF="1", FAKE_CANCELS=str(is_heard))
    assert not terminal.modes & termios.NOFLSH
    terminal.type("hello\r")
    terminal.wait_for(lambda: "Once" in terminal.text)
    assert terminal.modes & termios.NOFLSH
    terminal.type("one \x03")
    wait_for(is_heard.exists)
    terminal.type("two\x03")
    terminal.wait_for(lambda: terminal.lines[-1] == "You: one two")
    assert not terminal.modes & termios.NOFLSH
    terminal.type("\x15again\r")
    terminal.wait_for(lambda: terminal.text.count("Once") == 2)
    terminal.type("three")
    terminal.signal(signal.SIGTERM)
    assert terminal.wait() == 143
    assert terminal.after[3] == terminal.before[3]
    assert kept(tmp_path) == "three\n"
