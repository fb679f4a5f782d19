"""Opening the chat: what the command line calls once everything it was told has been found right.

Whether the terminal's background is dark: it is asked (OSC 11), for a moment, before the screen is drawn.

The answer is followed by that to a question every terminal answers (DA1), so that one which does not know the first is
not waited for.
"""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.chat.pair_loader import ChatWorker
from localspec.chat.state import ChatState
from localspec.settings.setting import Setting
from localspec.tui.app import LocalspecApp
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.signals import leaving
from localspec.tui.worker_thread import WorkerThread

PATIENCE = 0.15  # seconds; over a slow line the default is taken
QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
_COLOR = re.compile(rb"\x1b\]11;rgb:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")


@dataclass(frozen=True, slots=True)
class Look:
    """The screen at the start: theme (auto, dark or light), tokens by origin, figures beside the chat.

    `reads_ahead` is as in `ReadingAhead`.
    """

    theme: str = "auto"
    has_tokens: bool = False
    has_figures: bool = True
    reads_ahead: str = "auto"


def open_chat(
    worker: ChatWorker,
    state: ChatState,
    *,
    form: Callable[[], Sequence[Setting]] = tuple,
    look: Look | None = None,
) -> int:
    """Run the chat until it is left; return the exit code.

    `form` returns the settings that the request was made from, each with its origin. Raises the error of an app that
    failed.
    """
    look = look or Look()
    engine = ChatEngine(state, WorkerThread(worker))
    app = LocalspecApp(
        engine,
        is_dark=is_dark() if look.theme == "auto" else look.theme == "dark",
        settings=form,
        has_tokens=look.has_tokens,
        has_figures=look.has_figures,
        reads_ahead=look.reads_ahead,
    )
    try:
        with leaving(app.leave):
            code = app.run()
    finally:
        engine.close()
    if app.bug is not None:
        raise app.bug
    return code or 0


def is_dark() -> bool:
    """Return whether the background is dark; dark where nothing is known of it."""
    try:
        answer = _ask(sys.__stdin__.fileno() if sys.__stdin__ else 0, sys.__stderr__.fileno() if sys.__stderr__ else 2)
    except (OSError, ValueError, termios.error):
        answer = b""
    told = darkness(answer)
    if told is not None:
        return told
    # rxvt and others tell a number of the 16 colours: 7 and 9 to 15 are light.
    number = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return not (number.isdigit() and (int(number) == 7 or int(number) > 8))


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
