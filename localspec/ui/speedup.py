"""The speed of an answer beside plain decoding: passes of one kind count at their median time.

docs/figures.md has the definition in plain words. Times are milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

# Student's t at 97.5 %, for 1 to 9 degrees of freedom; 1.96 + TAIL / dof comes close for more.
T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
TAIL = 2.7
MEDIAN = 1.25  # standard error of a median of normal values over that of their mean
MAD = 1.4826  # standard deviation of normal values over the median of their distances from the middle
WIDEST = 100.0  # of an interval, in logarithms: a few passes that were interrupted for seconds leave all open
ENOUGH = 5  # passes of a kind, for their median to leave interruptions out


@dataclass(frozen=True, slots=True)
class Comparison:
    """Plain milliseconds a token over an answer's, with the 95 % interval `low` to `high`. All three are ratios."""

    factor: float
    low: float
    high: float

    @property
    def holds_one(self) -> bool:
        """Whether the interval leaves open which of both was faster."""
        return self.low <= 1.0 <= self.high


@dataclass(slots=True)
class Passes:
    """The decoding passes of an answer, sorted by drafter, number of rows, and how many before it had as many.

    Of those before, `settles` are counted at most: on a GPU the first ones after a change take longer.
    `rest`: by kind, the milliseconds of every pass but for its drafting. `draft`: by kind, those of drafting, where the
    pass before had the same drafter. `full_ms`: the sum of all other drafting.
    """

    rest: dict[tuple[str, int, int], list[float]] = field(default_factory=dict)
    draft: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    settles: int = 0
    full_ms: float = 0.0
    n: int = 0
    _drafter: str = ""  # of the pass before
    _rows: int = 0  # of the pass before
    _alike: int = 0  # passes of as many rows, up to it

    def add(self, drafter: str, rows: int, draft_ms: float, rest_ms: float) -> None:
        """Take the next pass.

        A drafter that was not asked in the pass before may have had text to read first, a whole prompt even. Its time
        counts in full, for a median would leave the reading out.
        """
        self.n += 1
        alike = self._alike if rows == self._rows else 0
        self._rows, self._alike = rows, min(alike + 1, self.settles)
        self.rest.setdefault((drafter, rows, alike), []).append(rest_ms)
        if drafter and drafter == self._drafter:
            self.draft.setdefault((drafter, rows), []).append(draft_ms)
        else:
            self.full_ms += draft_ms
        self._drafter = drafter

    @property
    def ms(self) -> float:
        """Milliseconds of all passes, each counted at the median of its kind."""
        kinds = (*self.rest.values(), *self.draft.values())
        return self.full_ms + sum(len(kind) * median(kind) for kind in kinds)

    def error(self, usual: float, all_told: float) -> float:
        """Return the relative standard error of `ms`. A pass scatters by `usual`, with interruptions by `all_told`.

        The median of a few passes of a kind does not leave interruptions out: their error is that of a mean.
        """
        squares = 0.0
        for kind in self.rest.values():
            one = MEDIAN * usual if len(kind) >= ENOUGH else max(usual, all_told)
            squares += len(kind) * (one * median(kind)) ** 2
        return math.sqrt(squares) / self.ms


def compare(plain: Sequence[float], passes: Passes, tokens: int) -> Comparison | None:
    """Compare plain passes (milliseconds of a token) with the `passes` that decoded `tokens`; None for too few.

    The interval is wide where one of both has few passes, and where passes of one kind differ in time. The scatter is
    that of both sides, so it has more degrees of freedom than the fewer passes less one: their number is assumed.
    """
    n, ms = min(len(plain), passes.n), passes.ms
    if n < 2 or not ms:
        return None
    of_plain = _distances(plain)
    of_passes = [distance for kind in passes.rest.values() for distance in _distances(kind)]
    usual = max(_usual(of_plain), _usual(of_passes))
    error = math.hypot(MEDIAN * usual / math.sqrt(len(plain)), passes.error(usual, _all_told(of_plain + of_passes)))
    factor, reach = median(plain) * tokens / ms, math.exp(min(_t(n) * error, WIDEST))
    return Comparison(factor, factor / reach, factor * reach)


def _distances(values: Sequence[float]) -> list[float]:
    """Return how far values are from their median, relative to it; [] for one value alone.

    What their own median takes away from the distances is given back, and with an odd number its own 0 left out.
    """
    n, middle = len(values), median(values)
    if n < 2 or middle <= 0.0:
        return []
    distances = sorted(abs(value / middle - 1.0) for value in values)[n % 2 :]
    return [math.sqrt(n / (n - 1)) * distance for distance in distances]


def _usual(distances: Sequence[float]) -> float:
    """Return the standard deviation that a few values far off do not change, 0.0 of none."""
    return MAD * median(distances) if distances else 0.0


def _all_told(distances: Sequence[float]) -> float:
    """Return the standard deviation with every value in it, 0.0 of none."""
    return math.sqrt(sum(one**2 for one in distances) / len(distances)) if distances else 0.0


def _t(dof: int) -> float:
    """Return Student's t at 97.5 %."""
    return T[dof - 1] if dof <= len(T) else 1.96 + TAIL / dof
