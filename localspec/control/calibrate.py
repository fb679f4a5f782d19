"""The first measurement of a pair, before any answer: passes of the target by rows, passes of the draft by one.

A time budget decides how many widths are measured; what is left out is learned from real passes. Widths come in turns,
narrow ones first, since a controller that knows a few can already decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from localspec.control.cost import SIZES, Costs, DraftCosts, RowCosts

BUDGET = 0.5  # seconds for the target
DRAFT_BUDGET = 0.1
TAKES = 3  # passes of a width, of which the fastest counts; the first lays the graph out anew
LEAST = 2  # of them whatever they take: the very first pass may read the weights from the disk
READ = 32  # rows of a pass that stands for reading the prompt


class Timed(Protocol):
    """A backend that can time itself."""

    def time_rows(self, rows: int) -> float: ...


def calibrate(target: Timed, draft: Timed | None, clock: Callable[[], float], budget: float = BUDGET) -> Costs:
    """Return what a pass costs, in seconds; both caches must have room for the widest, and stay as they are."""
    rows = RowCosts(_times(target, SIZES, clock, budget))
    if draft is None:
        return Costs(rows)
    times = _times(draft, (1, READ), clock, DRAFT_BUDGET)
    return Costs(rows, DraftCosts(times[1]), times.get(READ, READ * times[1]) / READ)


def _times(backend: Timed, sizes: Iterable[int], clock: Callable[[], float], budget: float) -> dict[int, float]:
    """Return seconds by rows, for as many sizes as the budget allows; one at least."""
    backend.time_rows(1)
    began, found = clock(), dict[int, float]()
    for rows in sizes:
        takes: list[float] = []
        while len(takes) < LEAST or (len(takes) < TAKES and clock() - began <= budget):
            takes.append(backend.time_rows(rows))
        found[rows] = min(takes[1:])
        if clock() - began > budget:
            break
    return found
