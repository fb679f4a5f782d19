"""Timing a loaded pair: passes of the target by rows, passes of the draft model, empty and deep in a context.

Widths are timed in rounds, so that a processor that changes pace does so for all of them, and the fastest take of each
counts. A time budget ends the rounds; what it leaves out is added at later loads, or learned from real passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from localspec.control.prices import SIZES, Prices, best_decode_rows
from localspec.engine.protocols import Backend, Cancel, Cancelled, Clock
from localspec.tuning import BUDGET

WIDTHS = 2  # measured whatever they take: from one alone nothing follows about drafts, nor about a draft's reading
READ = 32  # rows of a pass of the draft model that stands for reading the prompt
FIRST = (1, 4, 16, 2, 8, 3, 5, 6, 7, 32, 64)  # rows that show the staircase with the fewest passes
ORDER = (*FIRST, *(rows for rows in SIZES if rows not in FIRST))
NARROW = 9  # rows: widths up to here are worth the budget of a later load
ROUNDS = 20  # beyond, nothing new is learned
SHARES = {"empty": 0.5, "deep": 0.25, "draft": 0.15, "deep draft": 0.1}  # of the budget of a survey
DRAFT_SIZES = (1, 2, 4, 8, READ)  # levels of a tree are passes of several rows, reading the prompt one of many
DEEPEST = 2048  # tokens: with more, only reading them takes longer
SHALLOWEST = 128  # with fewer, a context has not grown
STRIDE = 7919  # a prime: tokens differ, or a mixture of experts would be asked for the same ones by every row

Timing = Generator[float, None, dict[int, float]]


class Timed(Backend, Protocol):
    """A backend that can time itself."""

    def time_rows(self, rows: int) -> float:
        """Return the seconds of a pass of `rows`, of which nothing stays in the cache."""
        ...


def time_widths(
    take: Callable[[int], float], sizes: Sequence[int], budget: float, clock: Clock, cancel: Cancel, least: int = 1
) -> Timing:
    """Return the fastest seconds by rows, yielding the share of the budget that is spent.

    The `least` first sizes are taken whatever the budget. Raises Cancelled between passes.
    """

    def taken(rows: int) -> float:
        if cancel():
            raise Cancelled
        return take(rows)

    if sizes:
        taken(sizes[0])  # the very first pass may read the weights from the disk
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


def first_prices(target: Timed, draft: Timed | None, clock: Clock, cancel: Cancel, budget: float = BUDGET) -> Prices:
    """Return what passes cost. Both caches are empty, and have room for the widest."""
    times = _result(time_widths(target.time_rows, _possible(target, ORDER), budget, clock, cancel, WIDTHS))
    drafts = None
    if draft is not None:
        drafts = _result(time_widths(draft.time_rows, (1, READ), budget / 5, clock, cancel, WIDTHS))
    return prices_of(times, drafts)


def add_prices(target: Timed, prices: Prices, clock: Clock, cancel: Cancel, budget: float = BUDGET) -> None:
    """Add widths that are missing to `prices`. The cache is empty."""
    missing = [rows for rows in _possible(target, ORDER) if rows not in prices.measured()]
    prices.renew(_result(time_widths(target.time_rows, [1, *missing], budget, clock, cancel)))


def misses_widths(prices: Prices, budget: float = BUDGET) -> bool:
    """Whether too few widths are known to plan with, or narrow ones are missing and one of them fits the budget."""
    known = prices.measured()
    if len(known) < WIDTHS:
        return True
    return 4 * known[1] <= budget and any(rows not in known for rows in SIZES if rows <= NARROW)


def prices_of(target: dict[int, float], draft: dict[int, float] | None) -> Prices:
    """Return prices made of seconds by rows, measured in empty contexts."""
    decode_rows = best_decode_rows(target)
    one, read = (0.0, 0.0) if draft is None else (draft[1], draft.get(READ, READ * draft[1]) / READ)
    return Prices({**target, 1: target[decode_rows]}, one, read, decode_rows)


@dataclass(frozen=True, slots=True)
class SurveyRequest:
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
    def from_wire(wire: dict[str, Any]) -> SurveyRequest:
        """Rebuild what `dataclasses.asdict` told."""
        return SurveyRequest(**{**wire, "sizes": tuple(wire["sizes"])})


@dataclass(frozen=True, slots=True)
class ModelTimes:
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


def time_model(
    model: Timed, sizes: Sequence[int], budgets: tuple[float, float], clock: Clock, cancel: Cancel, least: int = 1
) -> Generator[float, None, ModelTimes]:
    """Time passes of `sizes` within `budgets` (seconds for empty and deep), yielding the share of what is done.

    The `least` first sizes are taken in any case, at an empty context. The cache must be empty, and is again. Raises
    Cancelled between passes.
    """
    possible = _possible(model, sizes)
    empty = yield from time_widths(model.time_rows, possible, budgets[0], clock, cancel, least)
    if not empty or budgets[1] <= 0.0:
        return ModelTimes(empty, why_not="not asked for")
    widest = max(empty)
    reading = empty[widest] / widest  # seconds a token: a prompt is read in passes at least as wide
    position = int(min(DEEPEST, model.capabilities.n_ctx - max(possible), budgets[1] / 2 / reading))
    if not model.capabilities.can_rollback:
        return ModelTimes(empty, why_not="the model cannot take tokens back")
    if position < SHALLOWEST:
        return ModelTimes(
            empty, why_not=f"{max(position, 0)} tokens are all that the context or the budget has room for"
        )
    try:
        tokens = (np.arange(position, dtype=np.int64) * STRIDE % model.capabilities.n_vocab).tolist()
        model.prefill(tokens, cancel)
        deep = yield from time_widths(model.time_rows, possible, budgets[1] / 2, clock, cancel)
    finally:
        model.truncate(0)
    return ModelTimes(empty, deep, position)


def _possible(model: Timed, sizes: Sequence[int]) -> list[int]:
    return [rows for rows in sizes if rows <= min(model.capabilities.max_rows, model.capabilities.n_ctx)]


def _result(timing: Timing) -> dict[int, float]:
    """Return what a timing returns, whose progress nobody shows."""
    while True:
        try:
            next(timing)
        except StopIteration as done:
            found: dict[int, float] = done.value
            return found
