"""What passes cost on this machine, in seconds: measured at load, corrected by every pass.

    price(rows) = plain x ratio[rows]

`plain` is the second fastest of the last five plain passes; `ratio` is one table by rows, for the cost of a pass is a
staircase: four rows can cost less than two. A machine that changes pace moves all prices through `plain` alone. So does
a text that grows, unless it was measured how much more the passes of each width cost deep in a context: attention makes
wide passes grow faster. Ratios are kept as those of an empty context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.control.chain import best_length
from localspec.tuning import CLAMP, DOUBT, FASTER, NEW, PADDED, SHORT, WORTH

MAX_ROWS = 128  # rows of a pass
LONGEST_CHAIN = 16  # tokens, where chains of all lengths are compared
DEEP = 512  # tokens: of fewer, noise is more than growth
NEAR = 64  # tokens: prices that are as far from the last ones are computed anew
WELL_KNOWN = 3  # passes of a width; one that was timed counts as many


class Average:
    """A moving average. `seen` counts what it was made of: the first few count alike, then the newest NEW."""

    def __init__(self, value: float = 0.0, seen: int = 0) -> None:
        self.value = value
        self.seen = seen

    def observe(self, value: float) -> None:
        if self.value > 0.0:
            value = min(value, CLAMP * self.value)
        self.seen += 1
        self.value += max(NEW, 1.0 / self.seen) * (value - self.value)

    def follow(self, value: float) -> None:
        """Take one more value as it is: of what may be negative no limit is known."""
        self.seen += 1
        self.value += max(WORTH, 1.0 / self.seen) * (value - self.value)


class Prices:
    """Seconds of the target's passes by rows, of a draft token, and of reading one token into the draft model.

    `rows` are seconds measured just now in an empty context, 1 among them or nothing; `decode_rows` is how many rows a
    pass of one token has early in a context, and `rows[1]` its seconds. `width` is that of the last pass;
    until it `is_steady`, a pass costs `change` seconds more. `reads_singly`: the draft model reads two tokens faster in
    two passes. `calibrated` is when somebody asked for a measurement, in seconds since 1970.
    """

    def __init__(
        self,
        rows: Mapping[int, float] | None = None,
        draft: float = 0.0,
        read: float = 0.0,
        decode_rows: int = 1,
        *,
        change: float = 0.0,
        reads_singly: bool = False,
        calibrated: float = 0.0,
        growth: Mapping[int, float] | None = None,
    ) -> None:
        self.draft = Average(draft, draft > 0.0)
        self.read = Average(read, read > 0.0)
        self.decode_rows = decode_rows
        self.change = change
        self.width, self.is_steady = 1, True
        self.reads_singly = reads_singly
        self.calibrated = calibrated
        self._replays = False
        self.others = 0  # answers whose rows are in the next pass, too
        self.growth = dict(growth or {})  # by rows: the part of its price in an empty context that a token adds
        self._depth = 0  # tokens in the context
        self._ratios: dict[int, Average] = {}
        self._known: list[int] = []
        self._plain: tuple[float, ...] = ()  # seconds of the latest plain passes
        self.plain = math.nan  # seconds of a plain pass, its sampling included; see `_took`
        self.is_known = False  # whether a plain pass was measured: without one nothing can be compared
        self.renew(rows or {})

    def measured(self) -> dict[int, float]:
        return {rows: self.of(rows) for rows in self._known} if self.is_known else {}

    def renew(self, rows: Mapping[int, float]) -> None:
        """Take seconds by rows that were measured just now, those of one row among them or known already."""
        if 1 in rows:
            self._took(rows[1])
        if rows:
            plain = rows.get(1, self.plain)
            self._ratios |= {n: Average(seconds / plain, WELL_KNOWN) for n, seconds in rows.items()}
        self._changed()

    def grow(self, empty: Mapping[int, float], deep: Mapping[int, float], depth: int) -> None:
        """Take what passes cost with `depth` tokens more; without one row, or of few tokens, nothing follows."""
        known = {n: max(deep[n] / empty[n] - 1.0, 0.0) / depth for n in deep if n in empty} if depth >= DEEP else {}
        self.growth = known if 1 in known else {}
        self._changed()

    def at(self, depth: int) -> None:
        if self.growth and abs(depth - self._depth) > max(NEAR, self._depth // 16):
            self._depth = depth
            self._changed()

    def _grown(self, rows: int) -> float:
        if not self.growth:
            return 1.0
        widths = sorted(self.growth)
        growth = float(np.interp(rows, widths, [self.growth[n] for n in widths]))
        return (1.0 + growth * self._depth) / (1.0 + self.growth[1] * self._depth)

    def of(self, rows: int) -> float:
        return self.plain * self.ratio(rows)

    def ratio(self, rows: int) -> float:
        return float(self._table[0][rows])

    def beyond(self, n: int) -> NDArray[np.float64]:
        """Return the seconds beyond a plain pass of passes that verify 1 to `n` tokens, padded where that gains."""
        return self._changed_to(self.steady(n))

    def steady(self, n: int) -> NDArray[np.float64]:
        """Return the same without the change of width: what passes of one width cost, one after the other."""
        if self.others:  # llama.cpp splits a pass in which answers have different numbers of rows
            return self.plain * self._table[1][1 : n + 1]
        return self.plain * (self._table[1][2 : n + 2] - 1.0)

    @contextmanager
    def beside(self, n: int) -> Iterator[None]:
        """Let passes within this have rows of `n` other answers, too."""
        self.others = n
        try:
            yield
        finally:
            self.others = 0

    @property
    def least(self) -> float:
        """Seconds of a drafted token in the cheapest pass there is: no token less likely than its price pays."""
        return self.plain * self._least

    @cached_property
    def _least(self) -> float:
        return float(((self._table[1][2:] - 1.0) / np.arange(1, MAX_ROWS)).min())

    def worst(self, n: int) -> NDArray[np.float64]:
        """Return the seconds beyond a plain pass that such passes may cost before they are begun."""
        if self.others:
            return DOUBT * self.steady(n) + self.replay
        return self._changed_to(self.plain * (DOUBT * self._table[1][2 : n + 2] - 1.0), DOUBT) + self.replay

    @property
    def replay(self) -> float:
        """Seconds that a pass takes longer after a draft that was rejected whole: it reads one token again."""
        return self.plain * (DOUBT * self.ratio(2) - 1.0) if self._replays else 0.0

    def padded(self, rows: int) -> int:
        """Return how many rows a pass of `rows` should have: as many, or more where those cost less."""
        full, cheapest = self._table
        can_keep = self.change and self.is_steady and 1 < rows <= self.width
        if can_keep and self.plain * (full[self.width] - cheapest[rows]) <= self.change:
            return self.width
        if rows <= 1 or cheapest[rows] == full[rows]:
            return rows
        return min((n for n in self._known if rows < n), key=lambda n: float(full[n]))

    def chain(self) -> tuple[float, ...]:
        """Return the prices, in plain passes, of passes that check 0, 1, ... LONGEST_CHAIN guesses, padded."""
        return tuple(self.ratio(self.padded(1 + k)) for k in range(LONGEST_CHAIN + 1))

    def _changed_to(self, beyond: NDArray[np.float64], doubt: float = 1.0) -> NDArray[np.float64]:
        if not self.change:
            return beyond
        changed = beyond + self.change
        if not self.is_steady:
            return changed
        same_width = self.plain * (doubt * self.ratio(self.width) - 1.0)
        changed[: self.width - 1] = np.minimum(changed[: self.width - 1], same_width)
        return changed

    @cached_property
    def _table(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Prices of 0 to MAX_ROWS rows in plain passes: as they are, and with padding where that gains. Between widths
        that are known they lie on the line that joins these. Beyond the widest that is known the last slope goes on;
        where one width is known, a row costs a plain pass."""
        known = [(n, self._ratios[n].value * self._grown(n)) for n in self._known] or [(1, 1.0)]
        last, high = known[-1]
        first, low = next(((n, ratio) for n, ratio in reversed(known) if n <= last // 2), (0, 0.0))
        slope = max((high - low) / (last - first), 0.0)
        rows, ratios = zip((0, 0.0), *known, (MAX_ROWS + 1, high + slope * (MAX_ROWS + 1 - last)), strict=True)
        full = np.interp(np.arange(MAX_ROWS + 1), rows, ratios)
        measured = np.full(MAX_ROWS + 2, np.inf)
        measured[self._known] = full[self._known]
        wider = np.minimum.accumulate(measured[:0:-1])[::-1]  # of n rows: of those with more
        cheapest = np.where(wider < PADDED * full, wider, full)
        cheapest[:2] = full[:2]
        return full, cheapest

    def observe_plain(self, seconds: float) -> None:
        """Learn from a plain pass that followed another: llama.cpp prepares its graph anew when the width changes."""
        if self.is_known:
            seconds = min(seconds, CLAMP * self.plain)
        self._took(*self._plain, seconds)
        if 1 not in self._ratios:
            self.renew({1: seconds})

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a pass of several rows. One that takes far less than its price shows a faster machine: then a
        plain pass takes less, too."""
        known, grown = self._ratios.setdefault(rows, Average()), self._grown(rows)
        if known.seen >= WELL_KNOWN and seconds * FASTER < known.value * grown * self.plain:
            self._took(seconds / (known.value * grown))
        known.observe(seconds / (grown * self.plain))
        self._changed()

    def _took(self, *seconds: float) -> None:
        """Take the seconds of the latest plain passes."""
        self._plain = seconds[-5:]
        self.plain = sorted(self._plain)[len(self._plain) // 3]
        self.is_known = True

    def _changed(self) -> None:
        self._known = sorted(self._ratios)
        self.__dict__.pop("_table", None)
        self.__dict__.pop("_least", None)

    def ran(self, rows: int, *, is_steady: bool) -> None:
        """Take that a pass of `rows` ended, and whether the next one of its width is steady."""
        self.width, self.is_steady = rows, is_steady

    def of_target(self, *, replays: bool) -> Prices:
        self._replays = replays
        return self

    def spell(self, n: float) -> None:
        self.draft.value *= n

    def take(self, other: Prices) -> None:
        self.growth = other.growth or self.growth
        self.renew(other.measured())
        self.draft, self.read, self.decode_rows = other.draft, other.read, other.decode_rows
        self.change, self.reads_singly = other.change, other.reads_singly
        self.calibrated = other.calibrated or self.calibrated

    def complete(self, other: Prices) -> None:
        if other.is_known and not self.is_known:
            self._took(*other._plain)
        self._ratios = {**other._ratios, **self._ratios}
        self.growth = self.growth or other.growth
        self._changed()

    def to_wire(self) -> dict[str, Any]:
        plain = self.plain if self.is_known else 0.0
        rows = {str(n): plain * ratio.value for n, ratio in sorted(self._ratios.items()) if plain and ratio.seen > 1}
        more = {
            "draft": self.draft.value,
            "read": self.read.value,
            "lone": self.decode_rows,
            "change": self.change,
            "singly": self.reads_singly,
            "calibrated": self.calibrated,
            "growth": {str(n): growth for n, growth in self.growth.items()},
        }
        return {"rows": rows, **more}

    @staticmethod
    def from_wire(wire: Any) -> Prices:
        """Rebuild what `to_wire` returned; raises KeyError, TypeError or ValueError for anything else."""
        rows = {int(n): _seconds(seconds) for n, seconds in wire["rows"].items()}
        decode_rows = wire["lone"]
        are_rows = min(rows, default=0) == 1 and max(rows) <= MAX_ROWS and all(rows.values())
        if not are_rows or not isinstance(decode_rows, int) or not 1 <= decode_rows <= MAX_ROWS:
            raise ValueError("not the prices of a machine")
        draft, read, change = (_seconds(wire[key]) for key in ("draft", "read", "change"))
        growth = {int(n): _seconds(part) for n, part in wire.get("growth", {}).items()}
        if growth and 1 not in growth:
            raise ValueError("not how prices grow")
        return Prices(
            rows,
            draft,
            read,
            decode_rows,
            change=change,
            reads_singly=wire["singly"] is True,
            calibrated=_seconds(wire["calibrated"]),
            growth=growth,
        )


def best_chain(target: Prices, draft: float, alpha: float) -> tuple[int, float]:
    """Return the chain length that these costs and this acceptance favour, and its speed over plain decoding. `draft`
    is the cost of a draft token in the unit of `target`. Passes are padded, as in decoding. Length 0, speed 1: no chain
    is faster than none."""
    chances = [alpha**k for k in range(1, LONGEST_CHAIN + 1)]
    k, tokens, price = best_length(chances, target.chain()[1:], draft / target.plain)
    return (k, tokens / price) if tokens > price else (0, 1.0)


def break_even(target: Prices, draft: float) -> float | None:
    """Return the least acceptance, to a hundredth, with which some chain is faster than plain decoding; None: none."""
    return next((i / 100 for i in range(1, 101) if best_chain(target, draft, i / 100)[0]), None)


def best_decode_rows(seconds: Mapping[int, float]) -> int:
    """Return how many rows a pass of one token should have, by seconds by rows: mostly one."""
    rival = min((rows for rows in seconds if rows > 1), key=seconds.__getitem__, default=1)
    return rival if seconds[1] >= SHORT and seconds[rival] < PADDED * seconds[1] else 1


def _seconds(value: object) -> float:
    seconds = float(str(value))
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{value} is no time")
    return seconds
