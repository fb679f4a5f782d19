"""A text in which a word that is wider than the line, such as a path, is broken between its parts."""

from __future__ import annotations

import re
from typing import Any

from rich.cells import cell_len
from textual.content import Content
from textual.events import Resize
from textual.visual import VisualType
from textual.widgets import Static

from localspec.ui.columns import hung

_WORD = re.compile(r"\S+")
BREAKS = re.compile(r"(?<=/)"), re.compile(r"(?<=[-_+:,&?=])|(?=\.)")  # where a word may go on, the first if it has one


def pieces(word: str, width: int) -> list[str]:
    """Return a word in pieces of at most `width` cells, broken behind a slash, else at another of `BREAKS`."""
    made, at = [], 0
    while (end := _line_end(word, at, width)) < len(word):
        ends = [
            [place for match in each.finditer(word, at + 2, end + 1) if (place := match.start()) <= end]
            for each in BREAKS
        ]
        cut = next((places[-1] for places in ends if places), end)
        made.append(word[at:cut])
        at = cut
    return [*made, word[at:]] if word else made


def _line_end(word: str, at: int, width: int) -> int:
    """Return where a line of `width` cells ends that begins at `at`: one character behind it at least."""
    for n in range(at, len(word)):
        width -= cell_len(word[n])
        if width < 0:
            return max(n, at + 1)
    return len(word)


def folded(text: Content, width: int) -> Content:
    """Return a text with line ends in the words that are wider than a line of `width` cells."""
    cuts = []
    for word in _WORD.finditer(text.plain) if width > 0 else ():
        at = word.start()
        for piece in pieces(word[0], width)[:-1]:
            at += len(piece)
            cuts.append(at)
    return Content("\n").join(text.divide(cuts)) if cuts else text


class Folded(Static):
    """Folds its text to its width; `is_table`: lines go on below the place where the text behind a label begins."""

    is_table = False

    def __init__(self, text: Content | None = None, **attributes: Any) -> None:
        self._whole = text or Content("")
        super().__init__(self._whole, markup=False, **attributes)

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        assert isinstance(content, Content)
        self._whole = content
        super().update(self._fit(), layout=layout)

    def on_resize(self, _event: Resize) -> None:
        fit = self._fit()
        if fit.plain != self.content_plain:
            super().update(fit)

    def _fit(self) -> Content:
        width, text = self.content_size.width, self._whole
        if self.is_table and width > 0:
            text = Content("\n".join(hung(line, width) for line in text.plain.split("\n")))
        return folded(text, width)

    @property
    def content_plain(self) -> str:
        return self.content.plain if isinstance(self.content, Content) else str(self.content)
