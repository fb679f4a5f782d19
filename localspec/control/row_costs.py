"""What a pass of the target costs by its number of rows: a staircase, not a line.

Four rows can cost less than two, and the row after a step's edge as much as the whole step before it. So every width is
kept by itself, interpolated only between neighbours. Processors change pace: all widths follow a common drift until
they are measured again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 17, 24, 32, 33, 48, 64)  # rows worth measuring: steps lie between them
NEW = 0.2  # weight of the newest pass in the cost of its width
SHARED = 0.25  # of a width's move, as an exponent: what all widths share, for processors change pace
PLAIN_SHARED = 0.6  # of that of one row: what changed is the machine, more likely than what one row costs on it
INTERRUPTED = 1.25  # times what is known of its width: beyond, other programs took the processor
OUTLIER = 3.0  # a pass that takes longer by this factor was interrupted: its excess is no cost of the width
PADDING = 6  # rows that may be added to a pass
FREE = 0.95  # of the cost without them: less must be gained for certain
LONE = 0.97  # and of a pass of one token, which is all of plain decoding
WORTH = 0.002  # seconds of such a pass: below, it is too short to be told from noise
FIRST = 3  # passes of a width, or plain ones, before one is told from an interrupted one


class RowCosts:
    """Seconds of a target pass by its number of rows, from what was `measured` on; some may be no more than guesses."""

    def __init__(self, measured: Mapping[int, float] | None = None) -> None:
        self._seconds: dict[int, float] = {}
        self._drift = 1.0
        self._drift_then: dict[int, float] = {}  # when a width was last measured
        self._seen: dict[int, int] = {}  # passes by rows: none of a guess, and of what a survey timed enough
        self._lone: float | None = None  # what the last pass of one row took
        self._follows_lone = False  # there was none of more rows since
        self._known: list[int] = []
        self._padding: dict[int, int] = {}  # rows to rows, as `padded` found them: it is asked for many, every pass
        self.add(measured or {})

    @property
    def is_known(self) -> bool:
        """Whether the cost of one row is known, or guessed at: without it nothing can be compared."""
        return 1 in self._seconds

    def measured(self) -> dict[int, float]:
        """Return the seconds by rows as of now, for widths that were measured."""
        return {rows: self._at(rows) for rows in self._known if rows in self._seen}

    @staticmethod
    def from_wire(wire: dict[str, float]) -> RowCosts:
        """Rebuild from seconds by rows as JSON keeps them; raises ValueError for what is no time."""
        found = RowCosts({int(rows): as_seconds(seconds) for rows, seconds in wire.items()})
        if not all(found._seconds.values()):
            raise ValueError("no pass takes no time")
        return found

    def knows(self, rows: int) -> bool:
        """Whether passes of `rows` were measured often enough to tell one that was interrupted."""
        return self._seen.get(rows, 0) >= FIRST

    def of(self, rows: int) -> float:
        """Return the expected seconds of a pass of `rows`.

        Beyond the widest that is known the cost goes on with its last slope; with one width known, a row costs a pass.
        """
        if rows in self._seconds:
            return self._at(rows)
        above = next((n for n in self._known if n > rows), None)
        below = max((n for n in self._known if n < rows), default=None)
        if below is None:
            assert above is not None, "no pass was ever measured"
            return self._at(above) * rows / above
        if above is not None:
            low, high = self._at(below), self._at(above)
            return low + (high - low) * (rows - below) / (above - below)
        first = max((n for n in self._known if n <= below // 2), default=0)
        slope = (self._at(below) - (self._at(first) if first else 0.0)) / (below - first)
        return self._at(below) + max(slope, 0.0) * (rows - below)

    def add(self, measured: Mapping[int, float]) -> None:
        """Take widths that were measured just now."""
        self._seconds.update(measured)
        self._drift_then.update(dict.fromkeys(measured, self._drift))
        self._seen.update(dict.fromkeys(measured, FIRST))
        self._known = sorted(self._seconds)
        self._padding.clear()

    def guess(self, others: Sequence[RowCosts]) -> None:
        """Fill in what the first of `others` knows of widths not known here, dearer by as much as what both know is.

        What it lacks is taken from the next, on the level that was found so far: else wider passes could seem cheaper.
        """
        found = self.measured()
        for theirs in (other.measured() for other in others):
            dearer = [found[rows] / theirs[rows] for rows in found if theirs.get(rows)]
            factor = median(dearer) if dearer else 1.0
            found = {rows: factor * seconds for rows, seconds in theirs.items()} | found
        self._seconds = found
        self._drift_then = dict.fromkeys(self._seconds, self._drift)
        self._known = sorted(self._seconds)
        self._padding.clear()

    def padded(self, rows: int) -> int:
        """Return how many rows a pass of `rows` should have: as many, or a few more where those cost less."""
        if rows not in self._padding:
            self._padding[rows] = self._padded(rows)
        return self._padding[rows]

    def _padded(self, rows: int) -> int:
        if rows <= 1:
            return rows
        wider = [n for n in self._known if rows < n <= rows + PADDING]
        best = min(wider, key=self._at, default=rows)
        return best if best != rows and self._at(best) < FREE * self.of(rows) else rows

    @property
    def of_each(self) -> float:
        """Seconds of a row among many, as in reading: by the width at which a row costs least."""
        return min((self._at(rows) / rows for rows in self._known), default=0.0)

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a pass: the sooner, the fewer there were of its width."""
        if rows == 1:
            seconds = self._believed(seconds)
        self._follows_lone = rows == 1
        seen = self._seen.get(rows, 0)
        if rows not in self._seconds:
            self._seconds[rows] = seconds
            self._known = sorted(self._seconds)
        else:
            expected = self._at(rows)
            seconds = min(seconds, OUTLIER * expected)
            new = max(NEW, 1.0 / (2 + seen))
            self._seconds[rows] = (1 - new) * expected + new * seconds
            moved = 1.0 + new * (min(seconds / expected, INTERRUPTED) - 1.0)  # an interruption is of one pass
            self._drift *= moved ** (PLAIN_SHARED if rows == 1 else SHARED)
        self._drift_then[rows] = self._drift
        self._seen[rows] = seen + 1
        if rows > 1 or 2 not in self._seconds:  # all others drift alike, and two rows may be guessed at by one
            self._padding.clear()

    def _believed(self, seconds: float) -> float:
        """Return what to learn from a pass of one row: that it takes longer than is known only where the last did too.

        Every draft is credited with that price, and it is seldom measured: one that was interrupted, and too dear for
        long, would make drafts that lose look like gains. That it takes less is learned where the last did too, which
        leaves noise no side, or where drafts lie between the two: a price that was right then may be too high by now.
        """
        last, self._lone = self._lone, seconds
        if 1 not in self._seconds:
            return seconds
        known = self._at(1)
        if seconds < known and not self._follows_lone:
            return seconds
        return median((seconds, known, last)) if last is not None else min(seconds, known)

    def _at(self, rows: int) -> float:
        return self._seconds[rows] * (self._drift / self._drift_then[rows])


def lone_rows(seconds: Mapping[int, float], share: float = LONE) -> int:
    """Return how many rows a pass of one token should have, by the seconds of a pass by rows: mostly one.

    Where weights are taken four rows at a time by one kernel and singly by another, four rows can take less time: less
    than `share` of one row's is asked for.
    """
    rival = min((rows for rows in seconds if 1 < rows <= 1 + PADDING), key=seconds.__getitem__, default=1)
    return rival if seconds[1] >= WORTH and seconds[rival] < share * seconds[1] else 1


def as_seconds(value: object) -> float:
    """Read a time; raises ValueError for what is none."""
    seconds = float(str(value))
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{value} is no time")
    return seconds
