"""What is known of the machine: seconds of the target by rows, seconds of the drafter by tokens. Measured, not assumed.

Contexts grow, and attention reads all of one for every row: so prices are kept by its length in spans that double;
until one was measured, the nearest ones' are its first guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.control.row_costs import FIRST, NEW, OUTLIER, PADDING, RowCosts, as_seconds, lone_rows

FORGET = 0.97  # weight of what is known of the drafter, a pass later
SPAN = 256  # tokens: the first span of lengths, where `lone` holds; each of the others is as long as all before it
DOUBT = 1.1  # times what is known of a pass: it may take as much, and the account has to hold
UNSURE = 1.25  # and times what is guessed: of a width that was made too seldom at such a length of text


def span(position: int) -> int:
    """Return where the span of lengths begins that `position` lies in."""
    return 0 if position < SPAN else 1 << (position.bit_length() - 1)


def _doublings(begin: int) -> int:
    return (begin // SPAN).bit_length()


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
        self.guess()

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
            self.guess()
        self.target = self.by_length[begin]
        return self.target

    def guess(self) -> None:
        """Guess at each length what is not known there by the nearest lengths that know it."""
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
        self.guess()

    def complete(self, other: Costs) -> None:
        """Take from what another process knows the widths and lengths that are not known here."""
        for begin, rows in other.by_length.items():
            ours = self.by_length.setdefault(begin, RowCosts())
            known = ours.measured()
            ours.add({n: seconds for n, seconds in rows.measured().items() if n not in known})
        self.guess()

    @property
    def plain(self) -> float:
        """Seconds of a plain pass."""
        return self.target.of(1) + self.host.plain

    def rows(self, n: int) -> float:
        """Return the seconds of a pass that verifies `n` draft tokens, their drafting left out."""
        return self.target.of(self.target.padded(1 + n)) + (self.host.drafting or self.host.plain) if n else self.plain

    def worst(self, n: int) -> float:
        """Return the seconds that such a pass has to be expected to take at most.

        What is known at other lengths of text is a guess at this one, and what a pass takes beyond a guess is charged
        in full.
        """
        is_sure = self.target.knows(self.target.padded(1 + n))
        return (DOUBT if is_sure else UNSURE) * self.rows(n)

    def widths(self, longest: int, room: int) -> tuple[int, ...]:
        """Return the rows of passes that verify 0 to `longest` tokens; the cache has room for so many nodes."""
        wanted = (self.target.padded(1 + n) for n in range(longest + 1))
        return tuple(rows if rows <= 1 + room else 1 + n for n, rows in enumerate(wanted))

    @staticmethod
    def from_wire(wire: Any) -> Costs:
        """Rebuild what `to_wire` told; raises KeyError, TypeError or ValueError for anything else."""
        by_length = {_begin(begin): RowCosts.from_wire(rows) for begin, rows in wire["target"].items()}
        target = by_length[min(by_length)]
        draft, read, lone = DraftCosts(as_seconds(wire["draft"])), as_seconds(wire["read"]), _lone(wire["lone"])
        return Costs(target, draft, read, lone=lone, by_length=by_length, calibrated=as_seconds(wire["calibrated"]))

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
