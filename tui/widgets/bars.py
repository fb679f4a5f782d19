"""The line on top: the pair, where it runs, how full the context is, and whether the conversation is kept.

Also here: the line of keys at the bottom. F1 is always on it; of the others as many as the width has room for.

And a line for what the app has to say: the newest notice, or nothing. It has a place of its own and covers nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from textual.app import App
from textual.content import Content
from textual.events import MouseDown, Resize
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from localspec.engine.events import Loaded
from localspec.sanitize import sanitize, shortened
from localspec.tui.widgets.folded import Folded

LASTS = 6.0  # seconds: time to read two lines
FIRST_KEY = "f1"  # it lists the others
GAP = 2  # cells between two keys
METER = 8  # cells of the context's bar
SHORTEST = 24  # cells of the pair's name that stay where there is no room
DETAILS = 5  # of the line on top
WARNING_SHARE = 0.9  # share of the context from which it is shown as a warning


@dataclass(frozen=True, slots=True)
class Top:
    """The content of the line. `memory` is the engine's resident size in bytes, 0 where it is not known."""

    name: str
    loaded: Loaded | None
    used: int
    memory: int
    state: str  # what is going on, in a word or two
    saved: str  # autosaved, not saved, or ""


class TopBar(Static):
    """One row."""

    def __init__(self) -> None:
        super().__init__(markup=False, id="top")
        self._top: Top | None = None

    def show(self, top: Top) -> None:
        """Draw it anew if it has changed."""
        if top != self._top:
            self._top = top
            self.refresh()

    def render(self) -> Content:
        """Return the row: what matters least is left out where there is no room."""
        if self._top is None:
            return Content("")
        width, name = self.size.width, sanitize(self._top.name)
        for detail in range(DETAILS, -2, -1):
            left, right = _left(self._top, detail), _right(self._top, detail)
            over = max(0, left.cell_length + 1 + right.cell_length - width)
            room = Content(name).cell_length - over
            if not over or room >= SHORTEST:
                break
        left = _left(replace(self._top, name=shortened(name, max(SHORTEST, room))), detail) if over else left
        left = left.truncate(max(0, width - 1))
        right = right.truncate(max(0, width - left.cell_length - 1), ellipsis=True)
        return Content.assemble(left, " " * (width - left.cell_length - right.cell_length), right)


def _left(top: Top, detail: int) -> Content:
    """Return the name and the figures; what matters least is there from a greater detail on."""
    brand = " localspec " if detail >= 1 else " "
    parts = [(brand, "bold $primary"), (sanitize(top.name), "bold")]
    loaded = top.loaded
    if loaded is not None and detail >= 1:
        if detail >= 5:
            quants = loaded.target.quant + (f" + {loaded.draft.quant}" if loaded.draft else "")
            parts.append((f" {sanitize(quants)} · {sanitize(', '.join(loaded.target.devices))}", "$muted"))
        share = top.used / loaded.n_ctx
        filled = round(METER * share)
        style = "$warning" if share >= WARNING_SHARE else "$muted"
        bar = f" {'━' * filled}{'─' * (METER - filled)}" if detail >= 3 else ""
        parts.append((f" · ctx {top.used}/{loaded.n_ctx}{bar} {share:.0%}", style))
        if top.memory and detail >= 4:
            parts.append((f" · {_size(top.memory)}", "$muted"))
    return Content.assemble(*parts)


def _right(top: Top, detail: int) -> Content:
    state = top.state if detail >= 0 else top.state.partition(",")[0]  # without how fast it goes
    parts = [(f"{state} ", "$accent")] if state else []
    if top.saved:
        parts.append((f"{'●' if top.saved == 'autosaved' else '○'} {f'{top.saved} ' * (detail >= 2)}", "$muted"))
    return Content.assemble(*parts)


def _size(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"


def resident(pid: int | None) -> int:
    """Return the resident size of a process in bytes, 0 where the system does not say."""
    if pid is None:
        return 0
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class Keys(Widget):
    """F1, then the keys of what has the focus, of the screen and of the app. A click on one presses it."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._line = Content("")
        self._ends: list[tuple[int, str]] = []  # the column where each ends, and its key

    def on_mount(self) -> None:
        """Follow the focus, which brings other keys."""
        self.screen.bindings_updated_signal.subscribe(self, self._renew)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def on_resize(self, event: Resize) -> None:
        self._fill(event.size.width)

    def on_mouse_down(self, event: MouseDown) -> None:
        """Press the key that was clicked on."""
        found = next((key for end, key in self._ends if event.x < end), None)
        if found is not None:
            self.app.simulate_key(found)

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


class NoticeBar(Folded):
    """Shows one notice; without one it is the rule that stands there, or takes no room."""

    def __init__(self) -> None:
        super().__init__(classes="-empty")

    def show(self, text: str, *, is_wrong: bool = False) -> None:
        """Show a notice in place of the last one; "" for none."""
        self.set_class(not text, "-empty")
        self.set_class(is_wrong, "-wrong")
        self.update(Content(text))


class Notices:
    """The present notice, shown on every open screen: when one closes, the one below shows it too."""

    def __init__(self, app: App[int]) -> None:
        self.text = ""
        self._app = app
        self._end: Timer | None = None

    def say(self, text: str, *, is_wrong: bool = False) -> None:
        """Show a notice for a while, in place of the last one."""
        if self._end is not None:
            self._end.stop()
        self._end = self._app.set_timer(LASTS, lambda: self._show(""))
        self._show(sanitize(text), is_wrong=is_wrong)

    def _show(self, text: str, *, is_wrong: bool = False) -> None:
        self.text = text
        for screen in self._app.screen_stack:
            for line in screen.query(NoticeBar):
                line.show(text, is_wrong=is_wrong)
