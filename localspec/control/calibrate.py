"""The first measurements of a pair, before an answer: passes of the target by rows, passes of the draft by one.

A time budget decides how many widths are measured, those first that show the staircase with the fewest passes: kernels
take rows by four or eight, and two may cost more than four. What is left out is measured at later loads, or learned
from real passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from localspec.control.cost import Costs
from localspec.control.row_costs import SIZES, RowCosts, lone_rows
from localspec.protocols import Cancel, Cancelled

BUDGET = 0.5  # seconds for the widths of the target, and as much for one row and its rival
DRAFT_BUDGET = 0.1
TAKES = 3  # passes of a width, of which the fastest counts; the first lays the graph out anew
LEAST = 2  # of them whatever they take
WIDTHS = 2  # measured whatever they take: from one alone nothing follows about drafts, nor about a draft's reading
PAIRS = 5  # passes of one row and of its rival: the two are a few percent apart, and takes scatter by as much
CLOSE = 1.05  # times one row: what costs more than that by a first look is no rival
READ = 32  # rows of a pass that stands for reading the prompt
ORDER = (1, 4, 2, 8, 3, 5, 6, 7, 9, 16, *(rows for rows in SIZES if rows > 9 and rows != 16))
NARROW = 9  # rows: widths up to here are worth half a second of a later load


class Timed(Protocol):
    """A backend that can time itself."""

    def time_rows(self, rows: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Stoppable:
    """A backend that, once it is to stop, raises Cancelled instead of making another pass: a slow one takes seconds."""

    backend: Timed
    cancel: Cancel

    def time_rows(self, rows: int) -> float:
        """Return the seconds of a pass of `rows`."""
        if self.cancel():
            raise Cancelled
        return self.backend.time_rows(rows)


def calibrate(target: Timed, draft: Timed | None, clock: Callable[[], float], budget: float = BUDGET) -> Costs:
    """Return what a pass costs, in seconds. Both caches are empty, and have room for the widest."""
    times = _times(target, ORDER, clock, budget, WIDTHS)
    times.update(_in_turns(target, times, clock, budget))
    drafts = None if draft is None else _times(draft, (1, READ), clock, DRAFT_BUDGET, WIDTHS)
    return Costs.of_times(times, drafts, READ)


def is_worth_more(costs: Costs, budget: float = BUDGET) -> bool:
    """Whether too few widths are known to plan with, or narrow ones are missing and one of them fits the budget."""
    rows = costs.at(0)
    if len(rows.measured()) < WIDTHS:
        return True
    return (1 + LEAST) * rows.of(1) <= budget and any(_missing(rows, NARROW))


def calibrate_more(target: Timed, costs: Costs, clock: Callable[[], float], budget: float = BUDGET) -> None:
    """Add widths that are missing to `costs`. The cache is empty."""
    rows = costs.at(0)
    rows.add(_times(target, _missing(rows), clock, budget))
    costs.guess()


def _in_turns(
    backend: Timed, times: Mapping[int, float], clock: Callable[[], float], budget: float
) -> dict[int, float]:
    """Return the seconds of one row and of the rows that might stand for one, taken in turns; none if none might."""
    rival = lone_rows(times, CLOSE)
    if rival == 1:
        return {}
    began, takes = clock(), [(backend.time_rows(1), backend.time_rows(rival))]
    while len(takes) < PAIRS and clock() - began <= budget:
        takes.append((backend.time_rows(1), backend.time_rows(rival)))
    one, other = zip(*takes, strict=True)
    return {1: median(one), rival: median(other)}


def _missing(costs: RowCosts, widest: int = max(SIZES)) -> list[int]:
    known = costs.measured()
    return [rows for rows in ORDER if rows not in known and rows <= widest]


def _times(
    backend: Timed, sizes: Iterable[int], clock: Callable[[], float], budget: float, least: int = 1
) -> dict[int, float]:
    """Return seconds by rows, for as many sizes as the budget allows; `least` of them whatever they take."""
    backend.time_rows(1)  # the very first pass may read the weights from the disk
    began, found = clock(), dict[int, float]()
    for rows in sizes:
        takes: list[float] = []
        while len(takes) < LEAST or (len(takes) < TAKES and clock() - began <= budget):
            takes.append(backend.time_rows(rows))
        found[rows] = min(takes[1:])
        if len(found) >= least and clock() - began > budget:
            break
    return found
