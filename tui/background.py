"""Whether the terminal's background is dark. It is asked (OSC 11), for a moment, before the screen is drawn.

A question follows that every terminal answers (DA1), so that a terminal without the first is not waited for.
"""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty

PATIENCE = 0.15  # seconds; over a slow line the default is taken
QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
_COLOR = re.compile(rb"\x1b\]11;rgb:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")


def background() -> tuple[bool, str]:
    """Return whether it is dark, as it is where nothing is known of it, and all that was read: what was typed, too."""
    try:
        answer = _ask(sys.__stdin__.fileno() if sys.__stdin__ else 0, sys.__stderr__.fileno() if sys.__stderr__ else 2)
    except (OSError, ValueError, termios.error):
        answer = b""
    typed = answer.decode("utf-8", "replace").replace("\n", "\r")  # Enter as in raw mode
    is_dark = darkness(answer)
    if is_dark is not None:
        return is_dark, typed
    # rxvt and others tell a number of the 16 colours: 7 and 9 to 15 are light.
    number = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return not (number.isdigit() and (int(number) == 7 or int(number) > 8)), typed


def darkness(answer: bytes) -> bool | None:
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
