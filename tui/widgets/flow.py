"""A long plain text that grows: wrapped line by line, drawn only where it is seen.

What Markdown widgets cost with a text of ten thousand lines, or with one line of a megabyte, no screen can pay.
"""

from __future__ import annotations

from rich.segment import Segment
from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

WRAPPED = 4096  # characters of a line that are wrapped together


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

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        if width != self._width and width > 0:
            self._width = width
            self._wrap_from(0)
        return len(self._rows)

    def render_line(self, y: int) -> Strip:
        style = self.visual_style.rich_style
        row = self._rows[y] if 0 <= y < len(self._rows) else ""
        return Strip([Segment(row, style)]).adjust_cell_length(self.size.width, style)


def wrap(line: str, width: int) -> list[str]:
    return [row.plain for row in Content(line).wrap(width)] or [""]
