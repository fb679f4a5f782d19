"""The transcript: messages one below the other, and its own rule of following what comes.

Textual's `anchor` never takes hold again once a person has scrolled while text comes, so this does not use it: the
end is followed while it is in sight (within two rows), a step upwards lets go, End or reaching the end follows again.
"""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget

from localspec.chat.message_tree import Node
from localspec.tui.widgets.message import NEAR, Spoken


class Transcript(VerticalScroll, can_focus=False):
    """The messages. Tells in `Follow` how many rows are below the window since it was let go of."""

    class Follow(Message):
        """How many new rows are out of sight; 0 while the end is followed."""

        def __init__(self, rows: int) -> None:
            super().__init__()
            self.rows = rows

    def __init__(self, *children: Widget, id: str | None = None) -> None:
        super().__init__(*children, id=id)
        self.is_following = True
        self._height = 0  # of the content when it was let go of
        self._held: tuple[Widget, int] | None = None  # a message that stays at this row of the window
        self._is_moving = False  # by itself, and by no person

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        if self._is_moving:
            return
        self._held = None
        if self.max_scroll_y - new <= NEAR:
            self._set_following(True)
        elif new < old:
            self._set_following(False)

    def watch_virtual_size(self) -> None:
        """The content is laid out in another size: stay at its end, or tell how much is below. This is told of by the
        layout itself. Whoever changes a message cannot know when it will have been laid out: its widget asks for that
        in a task of its own, which may come later than any refresh that is waited for."""
        self.call_after_refresh(self._settle)

    def on_resize(self) -> None:
        self.call_after_refresh(self._settle)

    def follow(self) -> None:
        self._held = None
        self._set_following(True)
        self._settle()

    def row_of(self, entry: Node) -> int:
        """Return the row of the window at which a message begins, the nearest one if that is out of sight."""
        rows = [each.virtual_region.y - self.scroll_offset.y for each in self.query(Spoken) if each.entry is entry]
        return max(0, min(sum(rows[:1]), self.size.height - 1))

    def hold(self, entry: Node, row: int) -> None:
        """Let a message begin at this row of the window, until a person scrolls."""
        self._held = next(((each, row) for each in self.query(Spoken) if each.entry is entry), None)
        self._set_following(False)
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        if self._held is not None:
            widget, row = self._held
            self._is_moving = True
            self.scroll_to(y=widget.virtual_region.y - row, animate=False, immediate=True)
            self._is_moving = False
        elif self.is_following:
            self.scroll_end(animate=False, immediate=True)
        else:
            self.post_message(self.Follow(max(0, self.virtual_size.height - self._height)))

    def _set_following(self, is_following: bool) -> None:
        if is_following != self.is_following:
            self.is_following = is_following
            self._height = self.virtual_size.height
            self.post_message(self.Follow(0))
