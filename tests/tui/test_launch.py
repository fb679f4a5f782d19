"""The theme follows the terminal's background, and an app that does not leave is ended."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import termios
import threading
from types import SimpleNamespace

import pytest
from textual.app import App

from localspec.tui.background import QUESTION, _ask, background, darkness
from localspec.tui.keyboard import ANSWERS, Keyboard
from localspec.tui.leaving import GRACE, STUCK
from tests.cli.harness import TIMEOUT, Terminal
from tests.recorded import recorded_expressions


@pytest.mark.parametrize("answer", [b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62c", b"\x1b[?62c", b""])
def test_a_terminal_is_asked_and_left_as_it_was(answer: bytes) -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    asked: list[bytes] = []

    def terminal() -> None:
        while b"\x1b[c" not in b"".join(asked):
            asked.append(os.read(master, 100))
        os.write(master, answer)

    thread = threading.Thread(target=terminal)
    thread.start()
    said = _ask(slave, slave)
    thread.join()
    assert b"".join(asked) == QUESTION
    assert said == answer
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize(
    ("before", "between", "after"), [("", "", ""), ("early", "", ""), ("one\ntwo", "\x1b[A", "é"), ("", "x", "")]
)
def test_what_is_typed_before_the_answer_is_kept(
    before: str, between: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read with the answer, and lost. Enter is what a raw terminal sends for it."""
    master, slave = pty.openpty()
    monkeypatch.setattr(sys, "__stdin__", SimpleNamespace(fileno=lambda: slave))
    monkeypatch.setattr(sys, "__stderr__", SimpleNamespace(fileno=lambda: slave))
    os.write(master, before.encode())

    def terminal() -> None:
        asked = b""
        while QUESTION not in asked:
            asked += os.read(master, 100)
        typed = between.encode(), after.encode()
        os.write(master, b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\%b%b\x1b[?62;4c" % typed)

    thread = threading.Thread(target=terminal)
    thread.start()
    is_dark, read = background()
    assert (is_dark, ANSWERS.sub("", read)) == (False, (before + between + after).replace("\n", "\r"))
    thread.join()
    os.close(master)
    os.close(slave)


def test_a_terminal_that_cannot_be_asked_is_dark_and_nothing_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/null") as none:
        monkeypatch.setattr(sys, "__stdin__", none)
        monkeypatch.delenv("COLORFGBG", raising=False)
        assert background() == (True, "")


@pytest.mark.parametrize(
    ("told", "is_dark"),
    [("0;7", False), ("15;8", True), ("0;9", False), ("0;default;15", False), ("15;0", True), ("", True)],
)
def test_without_an_answer_the_number_of_the_colour_decides(
    told: str, is_dark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stdin__", None)
    monkeypatch.setattr("localspec.tui.background._ask", lambda *_: b"")
    monkeypatch.setenv("COLORFGBG", told)
    assert background() == (is_dark, "")


def test_the_app_has_longer_to_leave_than_a_terminal_that_takes_nothing() -> None:
    assert GRACE >= 1.0 > STUCK


DEAF = """
import sys, threading, tty
from localspec.tui import launch
launch.GRACE = float(sys.argv[1])
with launch.leaving(lambda code: print(f"asked to leave with {code}", flush=True)):
    tty.setraw(0)
    print("\\x1b[?1049hready", flush=True)
    while True:
        threading.Event().wait()
"""


@pytest.mark.parametrize(("grace", "signals"), [("0.01", [signal.SIGTERM]), ("3600", [signal.SIGTERM, signal.SIGINT])])
def test_an_app_that_does_not_leave_is_ended(grace: str, signals: list[signal.Signals]) -> None:
    """By its time, or by a second signal; the code is that of the first one, and the terminal is as it was."""
    terminal = Terminal([], program=[sys.executable, "-c", DEAF, grace])
    terminal.wait_for(lambda: "ready" in terminal.text)
    for number in signals[:-1]:
        terminal.signal(number)
        terminal.wait_for(lambda: "leave with 143" in terminal.text)
    terminal.signal(signals[-1])
    assert terminal.wait() == 143
    assert b"\x1b[?1049l" in terminal.output
    assert terminal.after == terminal.before


async def test_what_is_typed_for_the_shell_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual disables the input again when the terminal is the shell's."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    master, slave = pty.openpty()
    monkeypatch.setattr("sys.__stdin__", os.fdopen(slave))
    os.set_blocking(slave, False)
    keyboard = Keyboard(App(), mouse=False)
    for typed in (b"ls\n", b"make\n"):  # left twice, as after a visit to the shell
        keyboard._key_thread = threading.Thread(target=keyboard.run_input_thread, daemon=True)
        keyboard._key_thread.start()
        keyboard.disable_input()
        os.write(master, typed)
        assert select.select([slave], [], [], TIMEOUT)[0], "it comes through the kernel when that has time"
        keyboard.disable_input()
        assert os.read(slave, 100) == typed
    os.close(master)


test_what_is_recorded = recorded_expressions(__file__, darkness)
