"""Opening the chat: what the command line calls once everything it was told has been found right.

Also here: whether the terminal's background is dark. It is asked (OSC 11), for a moment, before the screen is drawn.

The answer is followed by that to a question every terminal answers (DA1), so that one which does not know the first is
not waited for.

And a terminal that is left as it was found, whatever ends the process.

Textual restores it after SIGINT only. So the other signals ask the app to leave, as a key would; and if it does not
within a second, because its loop is stuck, the modes are reset by hand and the process ends. So it does when the
terminal goes without a signal, or while SIGHUP is ignored: Textual would read its end for ever.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from localspec.chat.pair_loader import ChatWorker
from localspec.chat.state import ChatState
from localspec.settings.declaration import Setting
from localspec.tui.app import LocalspecApp
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.worker_thread import WorkerThread

GRACE = 1.0  # seconds for the app to leave by itself
STUCK = 0.2  # seconds for a terminal that takes nothing, as after Ctrl-S
# Mouse modes, focus reports, bracketed paste, synchronised output, alternate screen; keyboard, cursor, colour.
_OFF = (1000, 1002, 1003, 1006, 1015, 1016, 1004, 2004, 2026, 1049)
RESET = b"".join(b"\x1b[?%dl" % mode for mode in _OFF) + b"\x1b[<u\x1b[?25h\x1b[0m"
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
PATIENCE = 0.15  # seconds; over a slow line the default is taken
QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
_COLOR = re.compile(rb"\x1b\]11;rgb:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")


@dataclass(frozen=True, slots=True)
class ScreenLook:
    """The screen at the start: theme (auto, dark or light), tokens by origin, figures beside the chat."""

    theme: str = "auto"
    has_tokens: bool = False
    has_figures: bool = True


def open_chat(
    worker: ChatWorker,
    state: ChatState,
    *,
    form: Callable[[], Sequence[Setting]] = tuple,
    look: ScreenLook | None = None,
) -> int:
    """Run the chat until it is left; return the exit code.

    `form` returns the settings that the request was made from, each with its origin. Raises the error of an app that
    failed.
    """
    look = look or ScreenLook()
    engine = ChatEngine(state, WorkerThread(worker))
    is_dark, typed = background() if look.theme == "auto" else (look.theme == "dark", "")
    app = LocalspecApp(
        engine,
        is_dark=is_dark,
        typed=typed,
        settings=form,
        has_tokens=look.has_tokens,
        has_figures=look.has_figures,
    )
    try:
        with leaving(app.leave):
            code = app.run()
    finally:
        engine.close()
    if app.bug is not None:
        raise app.bug
    return code or 0


def background() -> tuple[bool, str]:
    """Return whether it is dark, as it is where nothing is known of it, and all that was read: what was typed, too."""
    try:
        answer = _ask(sys.__stdin__.fileno() if sys.__stdin__ else 0, sys.__stderr__.fileno() if sys.__stderr__ else 2)
    except (OSError, ValueError, termios.error):
        answer = b""
    typed = answer.decode("utf-8", "replace").replace("\n", "\r")  # Enter as in raw mode
    told = darkness(answer)
    if told is not None:
        return told, typed
    # rxvt and others tell a number of the 16 colours: 7 and 9 to 15 are light.
    number = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return not (number.isdigit() and (int(number) == 7 or int(number) > 8)), typed


def darkness(answer: bytes) -> bool | None:
    """Return what a terminal's answer says, None if that is nothing."""
    match = _COLOR.search(answer)
    if match is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in match.groups())
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)


def _ask(source: int, sink: int) -> bytes:
    before = termios.tcgetattr(source)
    answer = b""
    try:
        tty.setcbreak(source, termios.TCSANOW)
        os.write(sink, QUESTION)
        deadline = time.monotonic() + PATIENCE
        while not _ATTRIBUTES.search(answer):
            rest = deadline - time.monotonic()
            if rest <= 0 or not select.select([source], [], [], rest)[0]:
                break
            answer += os.read(source, 1024)
    finally:
        termios.tcsetattr(source, termios.TCSANOW, before)
    return answer


@contextlib.contextmanager
def leaving(leave: Callable[[int], None]) -> Iterator[None]:
    """Call `leave` with the exit code on the first signal; a second one, or a second's silence, ends the process.

    `leave` is called in the main thread between two of its instructions. A signal that was ignored stays ignored.
    """
    modes = _modes()
    told: list[int] = []

    def last_resort() -> None:
        resetting = threading.Thread(target=reset, args=(modes,), daemon=True)
        resetting.start()
        resetting.join(STUCK)
        os._exit(128 + told[0])

    def on_signal(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        if len(told) > 1:
            last_resort()
        timer = threading.Timer(GRACE, last_resort)
        timer.daemon = True
        timer.start()
        leave(128 + number)

    def watch() -> None:
        if _hangs_up():
            time.sleep(GRACE / 2)  # as a rule a signal tells it too
            if not told and not is_over.is_set():
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
