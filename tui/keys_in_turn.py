"""Keys in the order in which they came.

Textual runs the action of a key in a task of the app, once the key has bubbled up to it. The characters after that key
are written meanwhile by the field's own task: of "hello", Backspace, X in one burst the X goes first. So a field runs
the actions of its own keys itself, and a screen those of its keys behind the messages that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

from textual.events import Key
from textual.screen import Screen
from textual.widget import Widget

if TYPE_CHECKING:
    _Field = Widget
else:
    _Field = object  # Textual takes styles from the first base that is a widget


def in_turn(action: Callable[..., object]) -> Callable[..., None]:
    """Let an action of a screen wait its turn among the screen's messages, as what a field told of its text."""

    @wraps(action)
    def hand_over(screen: Screen[object], *parameters: object) -> None:
        screen.call_later(action, screen, *parameters)

    return hand_over


class KeysInTurn(_Field):
    """A field that acts on its own keys, also those that its class inherits, as they come."""

    async def _on_key(self, event: Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if not binding.priority and await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
