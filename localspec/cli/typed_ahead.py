"""What a person types while an answer comes. A terminal throws that away with Ctrl-C, unless it is told not to."""

from __future__ import annotations

import os
import re
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from localspec.cli.console import is_terminal

_LOCAL, _CHARACTERS = 3, 6  # places in what tcgetattr returns
_KEYS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)|[\x00-\x08\x0b-\x1f\x7f]")  # that are no text


@contextmanager
def kept() -> Iterator[None]:
    """Let what is typed in the block outlive Ctrl-C: it stays for the next reader."""
    if not is_terminal(sys.stdin):
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    _set(before[_LOCAL] | termios.NOFLSH)
    try:
        yield
    finally:
        with suppress(termios.error, OSError):  # the terminal has gone
            now = termios.tcgetattr(sys.stdin)
            _set(now[_LOCAL] & ~termios.NOFLSH | before[_LOCAL] & termios.NOFLSH)


def taken() -> str:
    """Take what was typed and not read, and return its text. Safe in a signal handler."""
    found = b""
    with suppress(termios.error, OSError):
        before = termios.tcgetattr(sys.stdin)
        _set(before[_LOCAL] & ~termios.ICANON, wait=0)  # else nothing is there before Enter
        try:
            while part := os.read(sys.stdin.fileno(), 1 << 12):
                found += part
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
    return _KEYS.sub("", found.decode("utf-8", "replace").replace("\r", "\n")).rstrip("\n")


def _set(local: int, wait: int | None = None) -> None:
    """Set the terminal's local modes, and with `wait` how many characters a read waits for."""
    modes = termios.tcgetattr(sys.stdin)
    modes[_LOCAL] = local
    if wait is not None:
        modes[_CHARACTERS][termios.VMIN] = modes[_CHARACTERS][termios.VTIME] = wait
    termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)
