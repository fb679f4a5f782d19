"""The line on top: the pair, where it runs, how full the context is, and whether the conversation is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from textual.content import Content
from textual.widgets import Static

from localspec.engine.events import Loaded
from localspec.sanitize import sanitize, shortened

METER = 8  # cells of the context's bar
SHORTEST = 12  # cells of the pair's name that stay where there is no room
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
        width = self.size.width
        right = _right(self._top)
        left = _left(self._top, width)
        over = left.cell_length + 1 + right.cell_length - width
        if over > 0:
            left = _left(_shortened(self._top, over), width)
        gap = width - left.cell_length - right.cell_length
        if gap < 1:
            state = Content.styled(f" {self._top.state} ", "$accent") if self._top.state else Content("")
            left = left.truncate(max(0, width - state.cell_length), ellipsis=True)
            return Content.assemble(left, " " * (width - left.cell_length - state.cell_length), state)
        return Content.assemble(left, " " * gap, right)


def _shortened(top: Top, over: int) -> Top:
    """Return the line with a name that is `over` cells shorter, down to SHORTEST: the figures matter more."""
    name = sanitize(top.name)
    return replace(top, name=shortened(name, max(SHORTEST, Content(name).cell_length - over)))


def _left(top: Top, width: int) -> Content:
    parts = [(" localspec ", "bold $primary"), (sanitize(top.name), "bold")]
    loaded = top.loaded
    if loaded is not None:
        if width >= 100:
            quants = loaded.target.quant + (f" + {loaded.draft.quant}" if loaded.draft else "")
            parts.append((f" {sanitize(quants)} · {sanitize(', '.join(loaded.target.devices))}", "$muted"))
        share = top.used / loaded.n_ctx
        filled = round(METER * share)
        style = "$warning" if share >= WARNING_SHARE else "$muted"
        bar = f" {'━' * filled}{'─' * (METER - filled)}" if width >= 72 else ""
        parts.append((f" · ctx {top.used}/{loaded.n_ctx}{bar} {share:.0%}", style))
        if top.memory and width >= 90:
            parts.append((f" · {_size(top.memory)}", "$muted"))
    return Content.assemble(*parts)


def _right(top: Top) -> Content:
    parts = [(f"{top.state} ", "$accent")] if top.state else []
    if top.saved:
        parts.append((f"{'●' if top.saved == 'autosaved' else '○'} {top.saved} ", "$muted"))
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
