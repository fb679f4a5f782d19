"""A terminal that is left as it was found, whatever ends the process.

Textual restores it after SIGINT only. So the other signals ask the app to leave, as a key would; and if it does not
within a second, because its loop is stuck, the modes are reset by hand and the process ends. So it does when the
terminal goes without a signal, or while SIGHUP is ignored: Textual would read its end for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

GRACE = 1.0  # seconds for the app to leave by itself
STUCK = 0.2  # seconds for a terminal that takes nothing, as after Ctrl-S
# Mouse modes, focus reports, bracketed paste, synchronised output, alternate screen; keyboard, cursor, colour.
_OFF = (1000, 1002, 1003, 1006, 1015, 1016, 1004, 2004, 2026, 1049)
RESET = b"".join(b"\x1b[?%dl" % mode for mode in _OFF) + b"\x1b[<u\x1b[?25h\x1b[0m"
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


@contextlib.contextmanager
def leaving(leave: Callable[[int], None]) -> Iterator[None]:
    """Call `leave` with the exit code on the first signal; a second one, or a second's silence, ends the process.
    `leave` is called in the main thread between two of its instructions. A signal that was ignored stays ignored."""
    modes = _modes()
    signals: list[int] = []

    def last_resort() -> None:
        resetting = threading.Thread(target=reset, args=(modes,), daemon=True)
        resetting.start()
        resetting.join(STUCK)
        os._exit(128 + signals[0])

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1:
            last_resort()
        timer = threading.Timer(GRACE, last_resort)
        timer.daemon = True
        timer.start()
        leave(128 + number)

    def watch() -> None:
        if _hangs_up():
            time.sleep(GRACE / 2)  # as a rule a signal tells it too
            if not signals and not is_over.is_set():
                on_signal(signal.SIGHUP, None)

    is_over = threading.Event()
    threading.Thread(target=watch, name="hang-up", daemon=True).start()
    before = {}
    for name in _NAMES:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        is_over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _hangs_up() -> bool:
    """Wait until the terminal is gone; False where that cannot be waited for."""
    poll = select.poll()
    poll.register(sys.__stdin__.fileno() if sys.__stdin__ else 0, 0)  # a hang-up is told unasked
    return any(event & select.POLLHUP for _, event in poll.poll())


def reset(modes: list[Any] | None) -> None:
    """Write what ends every mode that Textual begins; safe in a handler and where the terminal is gone."""
    with contextlib.suppress(OSError, ValueError):
        os.write(_terminal(), RESET)
    if modes is not None:
        with contextlib.suppress(OSError, ValueError, termios.error):
            termios.tcsetattr(sys.__stdin__.fileno() if sys.__stdin__ else 0, termios.TCSANOW, modes)


def _terminal() -> int:
    return sys.__stderr__.fileno() if sys.__stderr__ else 2  # where Textual draws


def _modes() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.__stdin__.fileno() if sys.__stdin__ else 0)
    except (OSError, ValueError, termios.error):
        return None
