"""Wraps an answer at words on a terminal, while it comes.

A word is held back only near the edge, until it is known whether it fits. Code between fences stays as it is, so that
it can be copied.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

ROOM = 24  # columns: a word that begins with so many left is written at once, as few words are longer
FENCES = ("```", "~~~")
BEGIN = 32  # characters of a line that are kept to find a fence
SGR = re.compile(r"\x1b\[[0-9;]*m")
_TOKENS = re.compile(rf"{SGR.pattern}|.", re.DOTALL)


class WordWrap:
    """Puts line breaks into text that comes in pieces; `columns` may change between two of them."""

    def __init__(self) -> None:
        self._column = 0
        self._held = ""  # of the word at the edge, with its colours
        self._held_cells = 0
        self._is_open = False  # the last word was written at once and may go on
        self._line = ""  # the first characters of the line, before any wrapping
        self._is_code = False

    def feed(self, text: str, columns: int) -> str:
        """Take the next piece; return what can be written."""
        return "".join(self._written(text, columns - 1))  # a full last column would leave the cursor at the margin

    def finish(self, columns: int) -> str:
        """Return what was held back."""
        return "".join(self._word(columns - 1))

    def _written(self, text: str, columns: int) -> Iterator[str]:
        for token in _TOKENS.findall(text):
            if len(self._line) < BEGIN:
                self._line += token
            if token == "\n":
                yield from self._word(columns)
                yield token
                self._end_line()
            elif self._is_code:
                yield token
            elif cells(token) == 0:
                if self._held:
                    self._held += token
                else:
                    yield token
            else:
                yield from self._placed(token, columns)

    def _end_line(self) -> None:
        self._is_code ^= self._line.lstrip().startswith(FENCES)
        self._line, self._column, self._is_open = "", 0, False

    def _placed(self, char: str, columns: int) -> Iterator[str]:
        """Yield a character of the line, or hold it back."""
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
        """Yield the word that was held back, on the next line where it does not fit."""
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
    """Return the columns that a character or a colour takes."""
    if len(token) > 1 or unicodedata.category(token) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(token) in "WF" else 1
