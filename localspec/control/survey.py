"""Timing a model on demand: every width of a pass, at an empty context and deep in one.

Widths are timed in rounds, so that a processor that changes pace does so for all of them, and the fastest take of each
counts. A time budget ends the rounds; what it leaves out is left out, and said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from localspec.control.calibrate import READ, Timed
from localspec.control.cost import Costs, span
from localspec.control.row_costs import SIZES, RowCosts
from localspec.protocols import Backend, Cancel, Cancelled, Clock

ROUNDS = 20  # beyond, nothing new is learned
SHARES = {"empty": 0.5, "deep": 0.25, "draft": 0.15, "deep draft": 0.1}  # of the budget
DRAFT_SIZES = (1, 2, 4, 8, READ)  # levels of a tree are passes of several rows, reading the prompt one of many
DEEPEST = 2048  # tokens: with more, only reading them takes longer
SHALLOWEST = 128  # with fewer, a context has not grown
STRIDE = 7919  # a prime: tokens differ, or a mixture of experts would be asked for the same ones by every row


@dataclass(frozen=True, slots=True)
class Survey:
    """What is to be timed, in how many seconds. `sizes` are the target's widths; `is_kept`: the profile learns it.

    The first `least` of them are timed whatever that takes. Without `sizes` nothing is timed, and the profile is asked
    for what it knows.
    """

    seconds: float = 10.0
    sizes: tuple[int, ...] = SIZES
    is_deep: bool = True
    is_kept: bool = False
    least: int = 1

    @staticmethod
    def from_wire(wire: dict[str, Any]) -> Survey:
        """Rebuild what `dataclasses.asdict` told."""
        return Survey(**{**wire, "sizes": tuple(wire["sizes"])})


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a pass by rows, at an `empty` context and with `position` tokens in it (`deep`).

    `why_not` says why the second is missing, "" if it is not.
    """

    empty: dict[int, float]
    deep: dict[int, float] = field(default_factory=dict)
    position: int = 0
    why_not: str = ""

    def to_wire(self) -> dict[str, Any]:
        """Return milliseconds by rows as a JSON object."""
        return {
            "ms": [[rows, 1e3 * seconds] for rows, seconds in sorted(self.empty.items())],
            "deep_ms": [[rows, 1e3 * seconds] for rows, seconds in sorted(self.deep.items())],
            "position": self.position,
            "why_not_deep": self.why_not,
        }


class Surveyed(Backend, Timed, Protocol):
    """A backend that can time itself."""


def time_model(
    model: Surveyed,
    sizes: Sequence[int],
    budgets: tuple[float, float],
    clock: Clock,
    cancel: Cancel,
    least: int = 1,
) -> Generator[float, None, Times]:
    """Time passes of `sizes` within `budgets` (seconds for empty and deep), yielding the share of what is done.

    The `least` first sizes are taken in any case, at an empty context. The cache must be empty, and is again. Raises
    Cancelled between passes.
    """
    possible = [rows for rows in sizes if rows <= min(model.traits.max_rows, model.traits.n_ctx)]
    empty = yield from _rounds(model.time_rows, possible, budgets[0], clock, cancel, least)
    if not empty or budgets[1] <= 0.0:
        return Times(empty, why_not="not asked for")
    widest = max(empty)
    reading = empty[widest] / widest  # seconds a token: a prompt is read in passes at least as wide
    position = int(min(DEEPEST, model.traits.n_ctx - max(possible), budgets[1] / 2 / reading))
    if not model.traits.can_rollback:
        return Times(empty, why_not="the model cannot take tokens back")
    if position < SHALLOWEST:
        return Times(empty, why_not=f"{max(position, 0)} tokens are all that the context or the budget has room for")
    try:
        model.prefill(_tokens(position, model.traits.n_vocab), cancel)
        deep = yield from _rounds(model.time_rows, possible, budgets[1] / 2, clock, cancel)
    finally:
        model.truncate(0)
    return Times(empty, deep, position)


def costs(target: Times, draft: Times | None) -> Costs:
    """Return what a profile keeps of the times."""
    found = Costs.of_times(target.empty, None if draft is None else draft.empty, READ)
    if span(target.position):  # within the first span the empty context stands for all
        found.by_length[span(target.position)] = RowCosts(target.deep)
    return found


def _rounds(
    take: Callable[[int], float], sizes: Sequence[int], budget: float, clock: Clock, cancel: Cancel, least: int = 1
) -> Generator[float, None, dict[int, float]]:
    """Return the fastest seconds by rows; the `least` first sizes are taken whatever the budget."""

    def taken(rows: int) -> float:
        if cancel():
            raise Cancelled
        return take(rows)

    began, found = clock(), dict[int, float]()
    for number in range(ROUNDS):
        for i, rows in enumerate(sizes):
            spent = clock() - began
            expected = 2 * found.get(rows, max(found.values(), default=0.0))
            if len(found) >= least and spent + expected > budget:
                return found
            taken(rows)  # the first pass of a width lays the graph out anew
            found[rows] = min(taken(rows), found.get(rows, math.inf))
            yield min(1.0, max(spent / max(budget, 1e-9), (number * len(sizes) + i) / (ROUNDS * len(sizes))))
    return found


def _tokens(n: int, n_vocab: int) -> list[int]:
    found: list[int] = (np.arange(n, dtype=np.int64) * STRIDE % n_vocab).tolist()
    return found
