"""Timing a loaded pair: passes of the target by rows, passes of the draft model, empty and deep in a context.

Widths are timed in rounds, so that a processor that changes pace does so for all of them, and the fastest take of each
counts. A time budget ends the rounds; what it leaves out is added at later loads, or learned from real passes.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from localspec.control.prices import Prices, best_decode_rows
from localspec.engine.events import Returning
from localspec.engine.protocols import Backend, Cancel, Cancelled, Clock
from localspec.settings.sizes import counted
from localspec.tuning import BUDGET, SIZES

WIDTHS = 2  # measured whatever they take: from one alone nothing follows about drafts, nor about a draft's reading
READ = 32  # rows of a pass of the draft model that stands for reading the prompt
FIRST_WIDTHS = (1, 4, 16, 2, 8, 3, 5, 6, 7, 32, 64)  # rows that show the staircase with the fewest passes
ORDER = (*FIRST_WIDTHS, *(rows for rows in SIZES if rows not in FIRST_WIDTHS))
NARROW = 9  # rows: widths up to here are worth the budget of a later load
ROUNDS = 20  # beyond, nothing new is learned
CHANGES = 3  # changes of width that are timed; the middle one counts
SHARES = {"empty": 0.5, "deep": 0.25, "draft": 0.15, "deep draft": 0.1}  # of the budget of a survey
DRAFT_SIZES = (1, 2, 4, 8, READ)  # levels of a tree are passes of several rows, reading the prompt one of many
DEEPEST = 2048  # tokens: with more, only reading them takes longer
SHALLOWEST = 128  # with fewer, a context has not grown
STRIDE = 7919  # a prime: tokens differ, or a mixture of experts would be asked for the same ones by every row

Timing = Generator[float, None, dict[int, float]]


class TimedBackend(Backend, Protocol):
    def time_rows(self, rows: int) -> float:
        """Return the seconds of a pass of `rows`, of which nothing stays in the cache."""


def time_widths(
    model: TimedBackend, sizes: Sequence[int], budget: float, clock: Clock, cancel: Cancel, least: int = 1
) -> Timing:
    """Return the fastest seconds by rows, yielding the share of the budget that is spent. The `least` first sizes are
    taken whatever the budget. Raises Cancelled between passes."""
    settles = model.capabilities.settles

    def taken(rows: int) -> float:
        if cancel():
            raise Cancelled
        return model.time_rows(rows)

    if sizes:
        taken(sizes[0])  # the very first pass may read the weights from the disk
    began, times = clock(), dict[int, float]()
    for number in range(ROUNDS):
        for i, rows in enumerate(sizes):
            spent = clock() - began
            expected = (1 + settles) * times.get(rows, max(times.values(), default=0.0))
            if len(times) >= least and spent + expected > budget:
                return times
            for _ in range(settles):
                taken(rows)  # the first pass of a width lays the graph out anew
            times[rows] = min(taken(rows), times.get(rows, math.inf))
            yield min(1.0, max(spent / max(budget, 1e-9), (number * len(sizes) + i) / (ROUNDS * len(sizes))))
    return times


def time_change(model: TimedBackend, times: Mapping[int, float], cancel: Cancel) -> float:
    """Return the seconds that a lone pass of another width costs beyond the steady times of it and the plain passes. 0
    where the time is steady from the second pass on. Raises Cancelled."""
    settles, rows = model.capabilities.settles, max((n for n in times if 1 < n <= NARROW), default=1)
    if settles == 1 or rows == 1:
        return 0.0
    changes = []
    for _ in range(CHANGES):
        if cancel():
            raise Cancelled
        for _ in range(1 + settles):
            model.time_rows(1)
        wide = model.time_rows(rows) - times[rows]
        changes.append(wide + sum(model.time_rows(1) - times[1] for _ in range(settles)))
    return max(sorted(changes)[CHANGES // 2], 0.0)


def first_prices(
    target: TimedBackend, draft: TimedBackend | None, clock: Clock, cancel: Cancel, budget: float = BUDGET
) -> Prices:
    """Return what passes cost. Both caches are empty, and have room for the widest."""
    times = _result(time_widths(target, _possible(target, ORDER), budget, clock, cancel, WIDTHS))
    target_times, drafts = ModelTimes(times, change=time_change(target, times, cancel), pads=_pads(target)), None
    if draft is not None:
        times = _result(time_widths(draft, (1, READ, 2), budget / 5, clock, cancel, WIDTHS))
        drafts = ModelTimes(times, change=time_change(draft, times, cancel))
    return prices_of(target_times, drafts)


def add_prices(target: TimedBackend, prices: Prices, clock: Clock, cancel: Cancel) -> None:
    missing = [rows for rows in _possible(target, ORDER) if rows not in prices.measured()]
    prices.renew(_result(time_widths(target, [1, *missing], BUDGET, clock, cancel)))


def misses_widths(prices: Prices) -> bool:
    """Whether too few widths are known to plan with, or narrow ones are missing and one of them fits the budget."""
    known = prices.measured()
    if len(known) < WIDTHS:
        return True
    return 4 * known[1] <= BUDGET and any(rows not in known for rows in SIZES if rows <= NARROW)


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """Seconds of a pass by rows, at an `empty` context and with `position` tokens in it (`deep`). `change` are those
    that a lone pass of another width costs beyond its own (see `time_change`). `why_not` says why the second is
    missing, "" if it is not. `pads`: a pass of one token may have more rows."""

    empty: dict[int, float]
    deep: dict[int, float] = field(default_factory=dict)
    position: int = 0
    why_not: str = ""
    change: float = 0.0
    pads: bool = True

    def to_wire(self) -> dict[str, Any]:
        return {
            "ms": [[rows, 1e3 * seconds] for rows, seconds in sorted(self.empty.items())],
            "deep_ms": [[rows, 1e3 * seconds] for rows, seconds in sorted(self.deep.items())],
            "position": self.position,
            "why_not_deep": self.why_not,
            "change_ms": 1e3 * self.change,
        }


def prices_of(target: ModelTimes, draft: ModelTimes | None, calibrated: float = 0.0) -> Prices:
    """Return prices made of what was measured in empty contexts, and of how much the target's passes grow."""
    decode_rows = best_decode_rows(target.empty) if target.pads else 1
    rows = {**target.empty, 1: target.empty[decode_rows]}
    guess = read = 0.0
    reads_singly = False
    if draft is not None:
        guess, read = draft.empty[1], draft.empty.get(READ, READ * draft.empty[1]) / READ
        reads_singly = draft.empty.get(2, 0.0) + draft.change > 2.0 * guess
    prices = Prices(
        rows, guess, read, decode_rows, change=target.change, reads_singly=reads_singly, calibrated=calibrated
    )
    prices.grow(target.empty, target.deep, target.position)
    return prices


def time_model(
    model: TimedBackend,
    sizes: Sequence[int],
    budgets: tuple[float, float],
    clock: Clock,
    cancel: Cancel,
    least: int = 1,
) -> Generator[float, None, ModelTimes]:
    """Time passes of `sizes` within `budgets` (seconds for empty and deep), yielding the share of what is done. The
    `least` first sizes are taken in any case, at an empty context. The cache must be empty, and is again. Raises
    Cancelled between passes."""
    possible = _possible(model, sizes)
    empty = yield from time_widths(model, possible, budgets[0], clock, cancel, least)
    change = time_change(model, empty, cancel)
    if not empty or budgets[1] <= 0.0:
        return ModelTimes(empty, why_not="not asked for", change=change, pads=_pads(model))
    widest = max(empty)
    reading = empty[widest] / widest  # seconds a token: a prompt is read in passes at least as wide
    position = int(min(DEEPEST, model.capabilities.n_ctx - max(possible), budgets[1] / 2 / reading))
    if not model.capabilities.can_rollback:
        return ModelTimes(empty, why_not="the model cannot take tokens back", change=change)
    if model.capabilities.is_head:
        return ModelTimes(empty, why_not="a head reads the states of its target", change=change, pads=_pads(model))
    if position < SHALLOWEST:
        why_not = f"the context or the budget has room for {counted(max(position, 0), 'token')} alone"
        return ModelTimes(empty, why_not=why_not, change=change, pads=_pads(model))
    try:
        tokens = (np.arange(position, dtype=np.int64) * STRIDE % model.capabilities.n_vocab).tolist()
        model.prefill(tokens, cancel)
        deep = yield from time_widths(model, possible, budgets[1] / 2, clock, cancel)
    finally:
        model.truncate(0)
    return ModelTimes(empty, deep, position, change=change, pads=_pads(model))


def _pads(model: TimedBackend) -> bool:
    """Whether a pass can have rows that are not kept: a state would include them."""
    return model.capabilities.max_leaves > 1 or model.capabilities.is_lane


def _possible(model: TimedBackend, sizes: Sequence[int]) -> list[int]:
    return [rows for rows in sizes if rows <= min(model.capabilities.max_rows, model.capabilities.n_ctx)]


def _result(timing: Timing) -> dict[int, float]:
    run = Returning(timing)
    for _ in run:
        pass
    return run.result
