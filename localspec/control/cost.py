"""What a pass costs: seconds of the target by rows, seconds of the drafter by tokens. Measured, never assumed.

The target's cost is a staircase, not a line: four rows can cost less than two, and the row after a step's edge as much
as the whole step before it. So every width is kept by itself, interpolated only between neighbours. Processors change
pace: all widths follow a common drift until they are measured again. And contexts grow: attention reads all of one, for
every row, so prices are kept by its length in spans that double; until one was measured, the nearest ones' are its
first guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 17, 24, 32, 33, 48, 64)  # rows worth measuring: steps lie between them
NEW = 0.2  # weight of the newest pass in the cost of its width
PACE = 0.05  # and in the drift of all
OUTLIER = 3.0  # a pass that takes longer by this factor was interrupted: its excess is no cost of the width
PADDING = 6  # rows that may be added to a pass
FREE = 0.95  # of the cost without them: less must be gained for certain
LONE = 0.97  # and of a pass of one token, which is all of plain decoding
WORTH = 0.002  # seconds of such a pass: below, it is too short to be told from noise
FIRST = 3  # passes of a width, or plain ones, before one is told from an interrupted one
FORGET = 0.97  # weight of what is known of the drafter, a pass later
SPAN = 256  # tokens: the first span of lengths, where `lone` holds; each of the others is as long as all before it


class RowCosts:
    """Seconds of a target pass by its number of rows, from what was `measured` on; some may be no more than guesses."""

    def __init__(self, measured: Mapping[int, float] | None = None) -> None:
        self._seconds: dict[int, float] = {}
        self._drift = 1.0
        self._drift_then: dict[int, float] = {}  # when a width was last measured
        self._seen: dict[int, int] = {}  # passes by rows: none of a guess, and of what a survey timed enough
        self._lone: float | None = None  # what the last pass of one row took
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
        return RowCosts({int(rows): _time(seconds) for rows, seconds in wire.items()})

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
        seen = self._seen.get(rows, 0)
        if rows not in self._seconds:
            self._seconds[rows] = seconds
            self._known = sorted(self._seconds)
        else:
            expected = self._at(rows)
            seconds = min(seconds, OUTLIER * expected)
            new = max(NEW, 1.0 / (2 + seen))
            self._drift *= math.exp(PACE * math.log(max(seconds, 1e-9) / expected))
            self._seconds[rows] = (1 - new) * expected + new * seconds
        self._drift_then[rows] = self._drift
        self._seen[rows] = seen + 1
        if rows > 1 or 2 not in self._seconds:  # all others drift alike, and two rows may be guessed at by one
            self._padding.clear()

    def _believed(self, seconds: float) -> float:
        """Return what to learn from a pass of one row: that it takes longer than is known only where the last did too.

        Every draft is credited with that price, and it is seldom measured: one that was interrupted, and too dear for
        long, would make drafts that lose look like gains.
        """
        last, self._lone = self._lone, seconds
        if 1 not in self._seconds:
            return seconds
        known = self._at(1)
        return median((seconds, known, last)) if last is not None else min(seconds, known)

    def _at(self, rows: int) -> float:
        return self._seconds[rows] * (self._drift / self._drift_then[rows])


def span(position: int) -> int:
    """Return where the span of lengths begins that `position` lies in."""
    return 0 if position < SPAN else 1 << (position.bit_length() - 1)


def _doublings(begin: int) -> int:
    return (begin // SPAN).bit_length()


def lone_rows(seconds: Mapping[int, float], share: float = LONE) -> int:
    """Return how many rows a pass of one token should have, by the seconds of a pass by rows: mostly one.

    Where weights are taken four rows at a time by one kernel and singly by another, four rows can take less time: less
    than `share` of one row's is asked for.
    """
    rival = min((rows for rows in seconds if 1 < rows <= 1 + PADDING), key=seconds.__getitem__, default=1)
    return rival if seconds[1] >= WORTH and seconds[rival] < share * seconds[1] else 1


def _time(value: object) -> float:
    seconds = float(str(value))
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{value} is no time")
    return seconds


def _begin(value: str) -> int:
    begin = int(value)
    if span(begin) != begin:
        raise ValueError(f"no span of lengths begins at {value}")
    return begin


def _lone(value: object) -> int:
    if not isinstance(value, int) or not 1 <= value <= 1 + PADDING:
        raise ValueError(f"{value} is no width of a pass of one token")
    return value


class DraftCosts:
    """Seconds of a draft of `n` tokens, first + each * n, fitted to recent drafts; `each` is the first guess."""

    def __init__(self, each: float) -> None:
        # Sums over drafts of 1, n, n^2, t and n t; the guess counts like drafts of one and of four tokens.
        self._sums = [2.0, 5.0, 17.0, 5.0 * each, 17.0 * each]
        self._line = self._fitted()  # first and each

    def of(self, n: int) -> float:
        """Return the expected seconds; no draft costs nothing."""
        return self._line[0] + self._line[1] * n if n else 0.0

    def _fitted(self) -> tuple[float, float]:
        ones, ns, squares, ts, products = self._sums
        spread = ones * squares - ns * ns
        mean = ts / max(ns, 1e-9)
        each = (ones * products - ns * ts) / spread if spread > 1e-6 * ones * ones else mean
        each = min(max(each, 0.0), mean)  # a negative first cost is noise
        return max(ts - each * ns, 0.0) / ones, each

    def observe(self, n: int, seconds: float) -> None:
        """Learn from a draft of `n` tokens."""
        expected = self.of(n)
        seconds = min(seconds, OUTLIER * expected) if expected > 0.0 else seconds
        new = (1.0, float(n), float(n * n), seconds, n * seconds)
        self._sums = [FORGET * old + one for old, one in zip(self._sums, new, strict=True)]
        self._line = self._fitted()


@dataclass
class Host:
    """Seconds of a pass that neither model takes: sampling, verifying, telling; more where tokens were drafted."""

    plain: float = 0.0
    drafting: float = 0.0
    seen: int = 0  # plain passes

    def observe(self, seconds: float, *, is_plain: bool) -> None:
        """Learn from a pass; one that was interrupted counts as an ordinary one.

        Of the first plain passes the least counts: any of them may have been interrupted, and a price that is too high
        is credited to every draft.
        """
        known = self.plain if is_plain else self.drafting or self.plain
        seconds = min(seconds, OUTLIER * known) if known else seconds
        known = (1 - NEW) * known + NEW * seconds if known else seconds
        if not is_plain:
            self.drafting = known
            return
        self.seen += 1
        self.plain = known if self.seen > FIRST else min(seconds, self.plain or seconds)


@dataclass
class Costs:
    """What is known of the machine, in seconds: the target's passes, drafts, and reading one token of a long text.

    `read` is the draft model's, and `reading` the target's, as the last prompt had it (0.0: none was long enough).
    `target` is what passes cost at the length of the text that `at` was told last, one of `by_length`, whose keys are
    where spans begin. `lone` is the rows that a pass of one token has early on; its cost is kept as that of one row.
    `calibrated` is when somebody asked for all of it to be measured, in seconds since 1970. `copying` is what reading a
    token takes of who copies from the text (0.0: not measured yet).
    """

    target: RowCosts = field(default_factory=RowCosts)
    draft: DraftCosts = field(default_factory=lambda: DraftCosts(0.0))
    read: float = 0.0
    host: Host = field(default_factory=Host)
    lone: int = 1
    by_length: dict[int, RowCosts] = field(default_factory=dict)
    calibrated: float = 0.0
    reading: float = 0.0
    copying: float = 0.0

    def __post_init__(self) -> None:
        if not self.by_length:
            self.by_length[0] = self.target
        self._guess()

    @staticmethod
    def of_times(target: Mapping[int, float], draft: Mapping[int, float] | None, reading: int) -> Costs:
        """Return what was measured just now in empty contexts: seconds by rows, the draft's of 1 and `reading`."""
        lone = lone_rows(target)
        rows = RowCosts({**target, 1: target[lone]})
        if draft is None:
            return Costs(rows, lone=lone)
        return Costs(rows, DraftCosts(draft[1]), draft.get(reading, reading * draft[1]) / reading, lone=lone)

    def at(self, position: int) -> RowCosts:
        """Go on with the prices of a text of `position` tokens, guessing by the nearest lengths what is not known."""
        begin = span(position)
        if begin not in self.by_length:
            self.by_length[begin] = RowCosts()
            self._guess()
        self.target = self.by_length[begin]
        return self.target

    def _guess(self) -> None:
        for begin, rows in self.by_length.items():
            nearest = sorted(self.by_length, key=lambda one: abs(_doublings(one) - _doublings(begin)))
            rows.guess([self.by_length[one] for one in nearest if one != begin])

    def renew(self, found: Costs) -> None:
        """Take what was measured just now; widths that there was no time for stay."""
        for begin, rows in found.by_length.items():
            self.by_length.setdefault(begin, RowCosts()).add(rows.measured())
        self.draft, self.read = found.draft, found.read
        self.calibrated = found.calibrated or self.calibrated
        if len(found.by_length[0].measured()) > 1:  # one row alone has no rival
            self.lone = found.lone
        self._guess()

    def complete(self, other: Costs) -> None:
        """Take from what another process knows the widths and lengths that are not known here."""
        for begin, rows in other.by_length.items():
            ours = self.by_length.setdefault(begin, RowCosts())
            known = ours.measured()
            ours.add({n: seconds for n, seconds in rows.measured().items() if n not in known})
        self._guess()

    @property
    def plain(self) -> float:
        """Seconds of a plain pass."""
        return self.target.of(1) + self.host.plain

    def rows(self, n: int) -> float:
        """Return the seconds of a pass that verifies `n` draft tokens, their drafting left out."""
        return self.target.of(self.target.padded(1 + n)) + (self.host.drafting or self.host.plain) if n else self.plain

    def widths(self, longest: int, room: int) -> tuple[int, ...]:
        """Return the rows of passes that verify 0 to `longest` tokens; the cache has room for so many nodes."""
        wanted = (self.target.padded(1 + n) for n in range(longest + 1))
        return tuple(rows if rows <= 1 + room else 1 + n for n, rows in enumerate(wanted))

    @staticmethod
    def from_wire(wire: Any) -> Costs:
        """Rebuild what `to_wire` told; raises KeyError, TypeError or ValueError for anything else."""
        by_length = {_begin(begin): RowCosts.from_wire(rows) for begin, rows in wire["target"].items()}
        target = by_length[min(by_length)]
        draft, read, lone = DraftCosts(_time(wire["draft"])), _time(wire["read"]), _lone(wire["lone"])
        return Costs(target, draft, read, lone=lone, by_length=by_length, calibrated=_time(wire["calibrated"]))

    def to_wire(self) -> dict[str, Any]:
        """Return the costs as a JSON object; of drafts, the cost of a token within one of four.

        A width of which few passes were seen is still half a guess, and left out.
        """
        known = {
            str(begin): {str(n): seconds for n, seconds in rows.measured().items() if rows.knows(n)}
            for begin, rows in self.by_length.items()
        }
        target = {begin: rows for begin, rows in known.items() if rows}
        told = {"target": target, "draft": self.draft.of(4) / 4, "read": self.read, "lone": self.lone}
        return {**told, "calibrated": self.calibrated}
