"""The line on top: the pair, where it runs, how full the context is, and whether the conversation is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from textual.content import Content
from textual.widgets import Static

from localspec.engine.events import Loaded
from localspec.sanitize import sanitize, shortened

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
    def __init__(self) -> None:
        super().__init__(markup=False, id="top")
        self._top: Top | None = None

    def show(self, top: Top) -> None:
        if top != self._top:
            self._top = top
            self.refresh()

    def render(self) -> Content:
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
    if pid is None:
        return 0
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
