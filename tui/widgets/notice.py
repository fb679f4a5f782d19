"""A line for what the app has to say: the newest notice, or nothing. It has a place of its own and covers nothing."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class Notice(Static):
    """Shows one notice; without one it is the rule that stands there, or takes no room."""

    def __init__(self) -> None:
        super().__init__(markup=False, classes="-empty")

    def show(self, text: str, *, is_wrong: bool = False) -> None:
        """Show a notice in place of the last one; "" for none."""
        self.set_class(not text, "-empty")
        self.set_class(is_wrong, "-wrong")
        self.update(Content(text))
