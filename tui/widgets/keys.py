"""The line of keys at the bottom. F1 is always on it; of the others as many as the width has room for."""

from __future__ import annotations

from textual.content import Content
from textual.events import MouseDown, Resize
from textual.screen import Screen
from textual.widget import Widget

FIRST_KEY = "f1"  # it lists the others
GAP = 2  # cells between two keys


class Keys(Widget):
    """F1, then the keys of what has the focus, of the screen and of the app. A click on one presses it."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._line = Content("")
        self._ends: list[tuple[int, str]] = []  # the column where each ends, and its key

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._renew)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def on_resize(self, event: Resize) -> None:
        self._fill(event.size.width)

    def on_mouse_down(self, event: MouseDown) -> None:
        pressed = next((key for end, key in self._ends if event.x < end), None)
        if pressed is not None:
            self.app.simulate_key(pressed)

    def render(self) -> Content:
        return self._line

    def _renew(self, _screen: Screen[object]) -> None:
        self._fill(self.size.width)

    def _fill(self, width: int) -> None:
        if not self.is_attached:
            return
        shown = [each.binding for each in self.screen.active_bindings.values() if each.binding.show and each.enabled]
        actions = {binding.action: binding for binding in reversed(shown)}  # of several keys the first
        bindings = [binding for binding in shown if actions[binding.action] is binding]
        bindings.sort(key=lambda binding: binding.key != FIRST_KEY)
        self._ends, parts = [], list[Content]()
        used = 1
        for binding in bindings:
            name = self.app.get_key_display(binding)
            part = Content.assemble(
                (name, "bold $footer-key-foreground"), (f" {binding.description}", "$footer-description-foreground")
            )
            used += part.cell_length
            if used > width:
                break
            parts.append(part)
            used += GAP
            self._ends.append((used, binding.key))
        self._line = Content(" ") + Content(" " * GAP).join(parts)
        self.refresh()
