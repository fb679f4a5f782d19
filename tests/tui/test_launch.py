"""The theme follows the terminal's background."""

from __future__ import annotations

import os
import pty
import threading

import pytest

from localspec.tui.launch import GRACE, QUESTION, STUCK, _ask, darkness


@pytest.mark.parametrize(
    ("answer", "is_dark"),
    [
        (b"\x1b]11;rgb:0000/0000/0000\x1b\\", True),
        (b"\x1b]11;rgb:ffff/ffff/ffff\x07\x1b[?62c", False),
        (b"\x1b]11;rgb:ff/fa/f0\x07", False),
        (b"\x1b]11;rgb:28/2c/34\x07", True),
        (b"\x1b]11;rgb:0/0/f\x07", True),
        (b"\x1b[?62;4c", None),
        (b"", None),
        (b"\x1b]11;nonsense\x07", None),
    ],
)
def test_an_answer_is_read(answer: bytes, is_dark: bool | None) -> None:
    assert darkness(answer) is is_dark


@pytest.mark.parametrize("answer", [b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62c", b"\x1b[?62c", b""])
def test_a_terminal_is_asked_and_left_as_it_was(answer: bytes) -> None:
    import termios

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


def test_the_app_has_longer_to_leave_than_a_terminal_that_takes_nothing() -> None:
    assert GRACE >= 1.0 > STUCK
