"""What every screen over the chat has in common: it goes once, and takes no other screen with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.await_complete import AwaitComplete

if TYPE_CHECKING:
    from textual.screen import Screen

    _Screen = Screen[Any]
else:
    _Screen = object  # not a Screen: style sheets and bindings are inherited from the first base that is one


class OverChat(_Screen):
    """A screen that is dismissed only while it is the one shown.

    Textual gives the result of the screen that asks, and removes the one on top. Keys wait in a busy screen, so that a
    second Esc can come when that screen is gone, or has another one over it: then it does nothing.
    """

    def dismiss(self, result: object = None) -> AwaitComplete:
        """Give `result` to whoever opened this screen and go, if it is shown."""
        is_shown = self.app.screen_stack[-1:] == [self]  # `is_current` is also true behind a dialog
        return super().dismiss(result) if is_shown else AwaitComplete()
