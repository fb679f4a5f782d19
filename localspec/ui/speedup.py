"""The speed of an answer beside plain decoding: each pass against the plain passes nearest to it.

docs/figures.md has the definition in plain words. Times are milliseconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

# Student's t at 97.5 %, for 1 to 9 degrees of freedom; 1.96 + TAIL / dof comes close for more.
T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
TAIL = 2.7
MEDIAN = 1.25  # standard error of a median of normal values over that of their mean
MAD = 1.4826  # standard deviation of normal values over the median of their distances from the middle
WIDEST = 100.0  # of an interval, in logarithms: a few passes that were interrupted for seconds leave all open
MIN_SPREAD = 1e-9  # of an interval, in logarithms: more than rounding
ENOUGH = 5  # passes of a kind, for their median to leave interruptions out
FEWEST, PLACES = 8, 4  # measured plain passes, and places of the answer that they are in
NEAREST = 8  # plain passes that a pass is compared with
PLACE = 8  # passes of a place: a longer run of plain ones is several
STEADY = 1.2  # times the pace of the stretch before: more is another pace


@dataclass(frozen=True, slots=True)
class Comparison:
    """Plain milliseconds a token over an answer's, with the 95 % interval `low` to `high`. All three are ratios.
    `why_not` says in words why no claim is made, whatever the ratio is; "" where there is one."""

    factor: float
    low: float
    high: float
    why_not: str = ""

    @property
    def holds_one(self) -> bool:
        return self.low <= 1.0 <= self.high


@dataclass(frozen=True, slots=True)
class Timed:
    """A decoding pass. `kind`: its drafter, its rows, and how many passes before it had as many. `rest_ms` are its
    milliseconds but for drafting. `is_again`: the pass before had the same drafter. `plain_ms`: those of plain
    decoding, where it measured them; `place`: in which place of plain passes it was."""

    kind: tuple[str, int, int]
    draft_ms: float
    rest_ms: float
    is_again: bool
    plain_ms: float | None
    place: int


@dataclass(slots=True)
class Passes:
    """The decoding passes of an answer, in their order."""

    settles: int = 0
    all: list[Timed] = field(default_factory=list)
    n_plain: int = 0  # measured plain passes
    places: int = 0  # where they are
    _alike: int = 0  # passes of as many rows, up to the last
    _run: int = 0  # plain passes, one after the other, up to the last
    _place: int = 0
    _last_place: int = -1

    @property
    def n(self) -> int:
        return len(self.all)

    def settle(self, n: int) -> None:
        self.settles = n

    def add(self, drafter: str, rows: int, draft_ms: float, rest_ms: float, plain_ms: float | None = None) -> None:
        """Take the next pass. A drafter that was not asked in the pass before may have had text to read first, a whole
        prompt even. Its time counts in full, for a median would leave the reading out."""
        before = self.all[-1].kind if self.all else ("", 0, 0)
        alike = self._alike if rows == before[1] else 0
        self._alike = min(alike + 1, self.settles)
        self._run = 0 if drafter else self._run + 1
        self._place += self._run % PLACE == 1 or bool(drafter)
        if plain_ms is not None:
            self.n_plain += 1
            self.places += self._place != self._last_place
            self._last_place = self._place
        is_again = bool(drafter) and drafter == before[0]
        self.all.append(Timed((drafter, rows, alike), draft_ms, rest_ms, is_again, plain_ms, self._place))

    @property
    def is_enough(self) -> bool:
        return self.n_plain >= FEWEST and self.places >= PLACES

    def compare(self, tokens: int) -> Comparison | None:
        if not self.is_enough:
            return None
        at = [index for index, timed in enumerate(self.all) if timed.plain_ms is not None]
        plain = [timed.plain_ms for timed in self.all if timed.plain_ms is not None]
        if min(plain) <= 0.0:
            return None
        near = [_near(plain, rank) for rank in range(len(plain) + 1)]
        local = [near[bisect_left(at, index)] for index in range(self.n)]  # ms of a plain pass, beside each pass
        costs = _Costs.of(self.all, local)
        places = _paces(self.all, at, plain)
        stretches = _stretches(self.all, costs)
        usual = max(_usual([each / local[index] - 1.0 for index, each in zip(at, plain, strict=True)]), costs.usual)
        within = math.hypot(MEDIAN * usual / math.sqrt(len(plain)), costs.error(usual)) * _t(min(len(plain), self.n))
        between = math.hypot(_drift(places), _drift(stretches)) * _t(len(places) - 1)
        factor, reach = tokens / costs.sum, math.exp(min(max(within, between, MIN_SPREAD), WIDEST))
        is_steady = all(max(a, b) <= STEADY * min(a, b) for paces in (places, stretches) for a, b in pairwise(paces))
        why_not = "" if is_steady else "the machine changed its pace"
        return Comparison(factor, factor / reach, factor * reach, why_not)


@dataclass(frozen=True, slots=True)
class _Costs:
    """Passes in plain passes of their neighbourhood, by kind, and drafting likewise. `full`: drafting that counts in
    full."""

    rest: dict[tuple[str, int, int], list[float]]
    draft: dict[tuple[str, int], list[float]]
    full: float

    @staticmethod
    def of(passes: Sequence[Timed], local: Sequence[float]) -> _Costs:
        costs, full = _Costs({}, {}, 0.0), 0.0
        for timed, ms in zip(passes, local, strict=True):
            costs.rest.setdefault(timed.kind, []).append(timed.rest_ms / ms)
            if timed.is_again:
                costs.draft.setdefault(timed.kind[:2], []).append(timed.draft_ms / ms)
            else:
                full += timed.draft_ms / ms
        return _Costs(costs.rest, costs.draft, full)

    @property
    def sum(self) -> float:
        """Plain passes that all took, each counted at the median of its kind."""
        return self.full + sum(len(kind) * median(kind) for kind in (*self.rest.values(), *self.draft.values()))

    @property
    def usual(self) -> float:
        return _usual([distance for kind in self.rest.values() for distance in _distances(kind)])

    def error(self, usual: float) -> float:
        """Return the relative standard error of `sum`. A pass scatters by `usual`, with interruptions by all there is.
        The median of a few passes of a kind does not leave interruptions out: their error is that of a mean."""
        all_told, squares = _all_told([distance for kind in self.rest.values() for distance in _distances(kind)]), 0.0
        for kind in self.rest.values():
            relative = MEDIAN * usual if len(kind) >= ENOUGH else max(usual, all_told)
            squares += len(kind) * (relative * median(kind)) ** 2
        return math.sqrt(squares) / self.sum


def shown_after(figure: float | None, passes: int) -> float | None:
    """Return a rate or a share where enough passes stand behind it for people to be told of it, else None."""
    return figure if passes >= FEWEST else None


def median(values: Iterable[float]) -> float:
    """Return the middle of some numbers, of two the mean. `statistics` has it too, and takes 10 ms to import."""
    ranked = sorted(values)
    middle, is_odd = divmod(len(ranked), 2)
    return ranked[middle] if is_odd else (ranked[middle - 1] + ranked[middle]) / 2


def _near(plain: Sequence[float], rank: int) -> float:
    first = max(0, min(rank - NEAREST // 2, len(plain) - NEAREST))
    return median(plain[first : first + NEAREST])


def _paces(passes: Sequence[Timed], at: Sequence[int], plain: Sequence[float]) -> list[float]:
    places = groupby(zip(at, plain, strict=True), key=lambda pair: passes[pair[0]].place)
    timed = [sorted(ms for _, ms in place) for _, place in places]
    return [place[(len(place) - 1) // 2] for place in timed]  # of two passes the one that was not interrupted


def _stretches(passes: Sequence[Timed], costs: _Costs) -> list[float]:
    """Return how long passes with a draft took between two places, over the median of their kind in the whole answer.
    The median is of milliseconds: costs are already relative to neighbours. Stretches of few passes are left out."""
    usual: dict[tuple[str, int, int], list[float]] = {}
    for timed in passes:
        if timed.kind[0] and len(costs.rest[timed.kind]) >= ENOUGH:
            usual.setdefault(timed.kind, []).append(timed.rest_ms)
    medians = {kind: median(times) for kind, times in usual.items()}
    stretches: list[list[float]] = [[]]
    for timed in passes:
        if timed.plain_ms is not None or len(stretches[-1]) >= 2 * PLACE:
            stretches.append([])
        if timed.kind in medians:
            stretches[-1].append(timed.rest_ms / medians[timed.kind])
    return [median(stretch) for stretch in stretches if len(stretch) >= PLACE // 2]


def _drift(paces: Sequence[float]) -> float:
    steps = [math.log(b / a) ** 2 for a, b in pairwise(paces) if a > 0.0 < b]
    return math.sqrt(sum(steps) / (2 * len(steps)) / len(paces)) if steps else 0.0


def _distances(values: Sequence[float]) -> list[float]:
    """Return how far values are from their median, relative to it; [] for one value alone. What their own median takes
    away from the distances is given back, and with an odd number its own 0 left out."""
    n, middle = len(values), median(values)
    if n < 2 or middle <= 0.0:
        return []
    distances = sorted(abs(value / middle - 1.0) for value in values)[n % 2 :]
    return [math.sqrt(n / (n - 1)) * distance for distance in distances]


def _usual(distances: Sequence[float]) -> float:
    return MAD * median(abs(distance) for distance in distances) if distances else 0.0


def _all_told(distances: Sequence[float]) -> float:
    return math.sqrt(sum(distance**2 for distance in distances) / len(distances)) if distances else 0.0


def _t(dof: int) -> float:
    return T[dof - 1] if dof <= len(T) else 1.96 + TAIL / dof
