"""A list of which only those rows are made that are seen: one of a thousand rows costs a key what a short one does."""

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip


class Listing(ScrollView, can_focus=False):
    """Rows of one line with a cursor on one of them. `line` makes row n for a width in cells."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"listing--cursor"}

    class Moved(Message):
        """The cursor is on another row."""

    class Chosen(Message):
        """The row of the cursor was clicked on."""

    def __init__(self, line: Callable[[int, int], Text]) -> None:
        super().__init__()
        self._line = line
        self.row_count = 0
        self.cursor_row = 0

    def fill(self, row_count: int, cursor_row: int) -> None:
        self.row_count, self.cursor_row = row_count, max(0, min(cursor_row, row_count - 1))
        self.virtual_size = Size(0, row_count)
        self._show_cursor()
        self.refresh()

    def move_cursor(self, row: int) -> None:
        row = max(0, min(row, self.row_count - 1))
        if row != self.cursor_row:
            self.cursor_row = row
            self._show_cursor()
            self.refresh()
            self.post_message(self.Moved())

    def text_of(self, row: int) -> Text:
        return self._line(row, self.scrollable_content_region.width)

    def render_line(self, y: int) -> Strip:
        row = y + self.scroll_offset.y
        style = self.rich_style
        if row >= self.row_count:
            return Strip.blank(self.size.width, style)
        if row == self.cursor_row:
            style += self.get_component_rich_style("listing--cursor")
        text = self.text_of(row)
        return Strip(text.render(self.app.console)).extend_cell_length(self.size.width).apply_style(style)

    def on_click(self, click: Click) -> None:
        row = click.y + self.scroll_offset.y
        if row == self.cursor_row < self.row_count:
            self.post_message(self.Chosen())
        elif row < self.row_count:
            self.move_cursor(row)

    def _show_cursor(self) -> None:
        self.scroll_to_region(Region(0, self.cursor_row, 1, 1), animate=False, force=True)
