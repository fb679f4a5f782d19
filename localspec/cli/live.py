"""Text on a terminal while it comes: wrapped at words, with a status line under it.

Where stdout and stderr are one terminal, the line stands one row below the text. Its place is never computed: the
cursor is saved at the text's end, the line is drawn, the cursor restored, and "erase to the end of the screen" removes
it whatever a resize did to it. `ESC D` (index) makes room below and scrolls at the bottom without leaving the column.

The one state that saving does not keep everywhere is a cursor waiting at the right margin for the next character. So
the column is estimated, and near the margin, or once a line holds characters whose width terminals disagree on, the
status stays away until the next line. Invariant: whatever the estimate, no text is lost but on the screen.

`WordWrap` breaks lines at words. A word is held back only near the edge, until it is known whether it fits. Code
between fences stays as it is, so that it can be copied.
"""

import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator

from localspec.cli.console import Console, share_terminal, width, write_out

INTERVAL = 0.1  # seconds between two versions of the line: more is unreadable, and drawing costs tokens
SPARSE = 60.0  # seconds between two lines of a long task where none can be redrawn: a log, a screen reader
MARGIN = 2  # columns before the right edge where the line stays away
ERASE_BELOW = "\x1b[J"
ERASE_LINE = "\r\x1b[K"


class Cursor:
    """The estimated place of the cursor: `column` from 0, `is_sure` until a character of unknown width came."""

    def __init__(self) -> None:
        self.column = 0
        self.is_sure = True

    def feed(self, text: str, columns: int) -> None:
        for char in text:
            if char == "\n":
                self.column, self.is_sure = 0, True
            elif char == "\t":
                self.column = min(columns - 1, (self.column // 8 + 1) * 8)
            else:
                self._advance(char, columns)

    def _advance(self, char: str, columns: int) -> None:
        wide = unicodedata.east_asian_width(char) in "WF"
        if ord(char) > 0x2FF and not wide and not char.isalpha():
            # Marks, joiners, emoji: terminals disagree. Typographic punctuation is narrow everywhere.
            self.is_sure = self.is_sure and 0x2010 <= ord(char) <= 0x2027
        elif wide and ord(char) >= 0x1F000:
            self.is_sure = False
        cells = 1 + wide
        if self.column + cells > columns:
            self.column = 0
        self.column += cells

    def is_clear(self, columns: int) -> bool:
        return self.is_sure and self.column <= columns - MARGIN


class Live:
    """Text to stdout with a status on stderr, where there is a terminal to show it on. `write` and `status` may be
    called in any order; `erase` before anything else is printed. What `is_long` tells its status elsewhere too, as a
    line now and then."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, *, is_long: bool = False) -> None:
        self._is_on = console.is_live
        self._is_shared = self._is_on and share_terminal()
        self._console = console
        self._clock = clock
        self._cursor = Cursor()
        self._has_text = False
        self._line = ""
        self._eraser = ""  # what removes the line that is on the screen
        self._drawn_at = -INTERVAL
        self._is_sparse = is_long and not (self._is_on or console.quiet)
        self._told_at = clock()

    def write(self, text: str, *, bare: str | None = None) -> None:
        if not text:
            return
        if not self._is_shared:
            write_out(text)
            return
        columns = width()
        eraser, self._has_text = self._taken(), True
        self._cursor.feed(text if bare is None else bare, columns)
        # One write for erasing, text and line: no flicker, and never half of it.
        write_out(eraser + text + self._drawn(columns))

    @property
    def is_due(self) -> bool:
        if self._is_sparse:
            return self._clock() - self._told_at >= SPARSE
        return self._is_on and self._clock() - self._drawn_at >= INTERVAL

    def status(self, line: str) -> None:
        if self._is_on:
            self._line, self._drawn_at = line, self._clock()
            to_terminal(self._taken() + self._drawn(width()))
        elif self._is_sparse and self.is_due:
            self._told_at = self._clock()
            self._console.say(line)

    def erase(self) -> None:
        """Remove the line; it stays away until the next `status`. Safe in a signal handler."""
        self._line = ""
        eraser = self._taken()
        if eraser:
            to_terminal(eraser)

    def _taken(self) -> str:
        eraser, self._eraser = self._eraser, ""
        return eraser

    def _drawn(self, columns: int) -> str:
        # The last column stays free: a full row would leave the cursor waiting at the margin, and wrap on a resize.
        line = self._console.paint(self._line[: max(0, columns - 1)], "dim", sys.stderr)
        if not self._line:
            return ""
        if not (self._is_shared and self._has_text):
            self._eraser = ERASE_LINE
            return ERASE_LINE + line
        if not self._cursor.is_clear(columns):
            return ""
        self._eraser = ERASE_BELOW
        return f"\x1bD\x1b[A\x1b7\x1b[B\r{line}\x1b8"


def to_terminal(text: str) -> None:
    """Write to stderr past Python's buffer; also called from signal handlers."""
    try:
        sys.stdout.flush()
        os.write(sys.stderr.fileno(), text.encode(errors="replace"))
    except (OSError, ValueError):
        pass


ROOM = 24  # columns: a word that begins with so many left is written at once, as few words are longer
FENCES = ("```", "~~~")
BEGIN = 32  # characters of a line that are kept to find a fence
SGR = re.compile(r"\x1b\[[0-9;]*m")
_TOKENS = re.compile(rf"{SGR.pattern}|.", re.DOTALL)


class WordWrap:
    def __init__(self) -> None:
        self._column = 0
        self._held = ""  # of the word at the edge, with its colours
        self._held_cells = 0
        self._is_open = False  # the last word was written at once and may go on
        self._line = ""  # the first characters of the line, before any wrapping
        self._is_code = False

    def feed(self, text: str, columns: int) -> str:
        return "".join(self._written(text, columns - 1))  # a full last column would leave the cursor at the margin

    def finish(self, columns: int) -> str:
        return "".join(self._word(columns - 1))

    def _written(self, text: str, columns: int) -> Iterator[str]:
        for token in _TOKENS.findall(text):
            if len(self._line) < BEGIN:
                self._line += token
            if token == "\n":
                yield from self._word(columns)
                yield token
                self._is_code ^= self._line.lstrip().startswith(FENCES)
                self._line, self._column, self._is_open = "", 0, False
            elif self._is_code:
                yield token
            elif cells(token) == 0:
                if self._held:
                    self._held += token
                else:
                    yield token
            else:
                yield from self._placed(token, columns)

    def _placed(self, char: str, columns: int) -> Iterator[str]:
        n = cells(char)
        if char in " \t" or n == 2:
            yield from self._word(columns)
            if self._column + n > columns:
                yield "\n"
                self._column = 0
                if char == " ":  # the break stands in its place
                    return
            yield char
            self._column = (self._column // 8 + 1) * 8 if char == "\t" else self._column + n
        elif self._is_open or (not self._held and self._column + ROOM <= columns):
            self._is_open = True
            yield char
            self._column = self._column % (columns + 1) + 1  # the terminal breaks a longer one
        else:
            self._held += char
            self._held_cells += 1
            if self._held_cells > columns:
                yield from self._word(columns)
                self._is_open = True

    def _word(self, columns: int) -> Iterator[str]:
        self._is_open = False
        if not self._held:
            return
        if self._column and self._column + self._held_cells > columns:
            yield "\n"
            self._column = 0
        yield self._held
        self._column = (self._column + self._held_cells - 1) % (columns + 1) + 1
        self._held, self._held_cells = "", 0


def cells(token: str) -> int:
    if len(token) > 1 or unicodedata.category(token) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(token) in "WF" else 1
