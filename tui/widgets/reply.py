"""The text of an answer: Markdown while it is of a size that Markdown can be, plain rows beyond that.

While text comes it is appended piece by piece, which can differ from what the whole would look like (a table's cells,
a fence's end); so at the end the whole is parsed once more. Nothing here parses markup.

Also here: a long plain text that grows: wrapped line by line, drawn only where it is seen.

What Markdown widgets cost with a text of ten thousand lines, or with one line of a megabyte, no screen can pay.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from localspec.conversations.export import MAX_CHARACTERS, MAX_LINE, is_plain, parser

if TYPE_CHECKING:
    from textual.widgets import Markdown


WRAPPED = 4096  # characters of a line that are wrapped together


class ReplyText(Vertical):
    """Text that is safe to show already. `append` while it comes, `finish` when it is whole."""

    DEFAULT_CSS = """
    ReplyText { height: auto; }
    ReplyText Markdown { padding: 0 2; margin: 0; background: transparent; }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._text = text
        self._line = 0  # characters since the last newline
        self._markdown: Markdown | None = None
        self._flow: Flow | None = None

    def compose(self) -> ComposeResult:
        if is_plain(self._text):
            self._flow = Flow(self._text)
            yield self._flow
        else:
            made = parser()  # one for all pieces: else every piece makes its own
            self._markdown = markdown()(self._text, open_links=False, parser_factory=lambda: made)
            yield self._markdown

    @property
    def is_plain(self) -> bool:
        """Whether the text is too long for Markdown."""
        return self._flow is not None

    async def append(self, text: str) -> None:
        """Add a piece."""
        self._text += text
        end = text.rfind("\n")
        self._line = self._line + len(text) if end < 0 else len(text) - end - 1
        if self._flow is not None:
            self._flow.append(text)
        elif self._markdown is not None:
            if len(self._text) > MAX_CHARACTERS or self._line > MAX_LINE or is_plain(text):
                await self._turn_plain()
            else:
                await self._markdown.append(text)

    async def finish(self) -> None:
        if self._markdown is None:
            return
        if is_plain(self._text):
            await self._turn_plain()
        else:
            await self._markdown.update(self._text)

    async def _turn_plain(self) -> None:
        if self._markdown is not None:
            await self._markdown.remove()
        self._markdown, self._flow = None, Flow(self._text)
        await self.mount(self._flow)


def markdown() -> type[Markdown]:
    """Import the widget: late, since the first screen, which is waited for, has no answer."""
    from textual.widgets import Markdown

    return Markdown


def prepare() -> None:
    """Do what an answer would otherwise wait for: import the widget, compile the parser's expressions, find garbage.

    What is there now is there to stay, and is not looked through again: that takes 50 ms, in the middle of an answer.
    """
    markdown()
    parser().parse("www.example.org")
    gc.collect()
    gc.freeze()


class Flow(Widget):
    """Text that is only ever appended to. It must be safe to show already."""

    DEFAULT_CSS = "Flow { height: auto; width: 1fr; padding: 0 2; }"

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._lines: list[str] = [""]
        self._rows: list[str] = []
        self._first_row: list[int] = []  # of each line that was wrapped
        self._width = 0
        self.append(text)

    def append(self, text: str) -> None:
        """Add to the end."""
        if not text:
            return
        at = len(self._lines) - 1
        first, *rest = text.expandtabs(4).split("\n")
        self._lines[-1] += first
        self._lines += rest
        self._split(at)
        self._wrap_from(at)
        self.refresh(layout=True)

    def _split(self, at: int) -> None:
        """Cut lines that are too long to be wrapped anew with every piece that comes."""
        if all(len(line) <= WRAPPED for line in self._lines[at:]):
            return
        cut: list[str] = []
        for line in self._lines[at:]:
            cut += [line[i : i + WRAPPED] for i in range(0, len(line), WRAPPED)] or [""]
        self._lines[at:] = cut

    def _wrap_from(self, at: int) -> None:
        if not self._width:
            return
        del self._rows[self._first_row[at] if at < len(self._first_row) else len(self._rows) :]
        del self._first_row[at:]
        for line in self._lines[at:]:
            self._first_row.append(len(self._rows))
            self._rows += wrap(line, self._width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of rows at `width`."""
        if width != self._width and width > 0:
            self._width = width
            self._wrap_from(0)
        return len(self._rows)

    def render_line(self, y: int) -> Strip:
        style = self.visual_style.rich_style
        row = self._rows[y] if 0 <= y < len(self._rows) else ""
        return Strip([Segment(row, style)]).adjust_cell_length(self.size.width, style)


def wrap(line: str, width: int) -> list[str]:
    """Return `line` in rows of at most `width` cells, broken after spaces where there are any."""
    rows, row, used = [], "", 0
    for word in _words(line):
        cells = cell_len(word)
        if used + cells > width and row:
            rows.append(row)
            row, used = "", 0
        while cells > width:
            fits = _fitting(word, width)
            rows.append(word[:fits])
            word = word[fits:]
            cells = cell_len(word)
        row += word
        used += cells
    return [*rows, row] if row or not rows else rows


def _words(line: str) -> list[str]:
    words, start = [], 0
    while start < len(line):
        end = line.find(" ", start)
        end = len(line) if end < 0 else end + 1
        words.append(line[start:end])
        start = end
    return words


def _fitting(word: str, width: int) -> int:
    """Return how many characters of `word` fit, at least one."""
    if len(word) == cell_len(word):
        return width
    used = 0
    for i, char in enumerate(word):
        used += cell_len(char)
        if used > width:
            return max(1, i)
    return len(word)
