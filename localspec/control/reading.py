"""What drafters have still to read before they can draft, and how much of that a request pays for.

A target that reads a prompt of a thousand tokens takes its time, with or without a draft. A draft model that reads it
beside the target in a tenth of that time delays the answer by as much and no more, and that is what people accept of a
draft (and what is promised). The rest is charged to the loss account like any loss, and so is all that is read for a
trial of what did not pay.

Who copies from the text reads it too, on the processor and in microseconds a token, which is nothing beside a target
that runs there and is something beside a fast one. Two percent of the target's time for the same tokens are free, as
two percent of all time are; for more it reads as much at a time as may be lost.
"""

from __future__ import annotations

import sys
from typing import Protocol

from localspec.control.account import EPS
from localspec.control.cost import Costs
from localspec.control.row_costs import OUTLIER
from localspec.protocols import History

BEHIND = 8  # tokens: a drafter further behind must read up, and that is a price of its own
TENTH = 0.1  # of the target's time for the same tokens
RECENT = 32  # tokens: of so many who copies reads between two passes
COPYING = 5e-5  # seconds a token that this takes at most, until it was measured
TIMED = 64  # tokens from which on it is measured


class Reader(Protocol):
    """A drafter with a model of its own, which reads what it has not seen of the text before it drafts."""

    def behind(self, history: History) -> int: ...

    def room(self, history: History) -> int: ...


class Reading:
    """How far `reader` (None: nothing reads) is behind the text, in tokens, and what that costs, in seconds."""

    def __init__(self, costs: Costs, reader: Reader | None) -> None:
        self._costs = costs
        self._reader = reader
        self._behind = 1
        self.room = sys.maxsize  # tokens that it could draft: what has no context of its own has no limit

    def look(self, history: History) -> None:
        """Ask how far it is behind; what follows is about this pass."""
        if self._reader is not None:
            self._behind, self.room = self._reader.behind(history), self._reader.room(history)

    @property
    def is_due(self) -> bool:
        """Whether the next draft begins with reading."""
        return self._behind > BEHIND

    @property
    def seconds(self) -> float:
        """Return what it is expected to take."""
        return self._costs.read * self._behind if self.is_due else 0.0

    @property
    def allowed(self) -> float:
        """Return the seconds of it that nobody is charged for."""
        each = self._costs.reading or self._costs.target.of_each
        return TENTH * each * self._behind if self.is_due else 0.0

    @property
    def charged(self) -> float:
        """Return the seconds that are expected beyond those."""
        return max(self.seconds - self.allowed, 0.0)

    def observe(self, seconds: float) -> None:
        """Learn from a draft that began with reading, what the drafting took left out.

        A machine that stood still meanwhile must not make reading look so dear that it is never tried again.
        """
        self._costs.read = _learned(self._costs.read, max(seconds, 0.0) / self._behind)


class Copier(Protocol):
    """A drafter that copies from the text, all of which it has to read first."""

    def unread(self, history: History) -> int: ...

    def read(self, history: History, most: int) -> None: ...


class Copying:
    """Lets copiers read what they have not read yet of the text, as far as that is paid for."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._n = 0  # tokens read for this pass

    def begin(self) -> None:
        """Begin with another pass."""
        self._n = 0

    def catch_up(self, copier: Copier, history: History, stake: float) -> bool:
        """Return whether `copier` knows enough of the text to be asked; if not it reads on, for at most `stake`."""
        unread = copier.unread(history)
        if unread <= RECENT:
            return True
        each = (self._costs.copying or COPYING) - self._free
        n = unread if each <= 0.0 else min(unread, int(max(stake, 0.0) / each))
        if each > 0.0 and not self._costs.copying:
            n = min(n, TIMED)
        if n >= RECENT:
            copier.read(history, n)
            self._n += n
        return False

    @property
    def has_read(self) -> bool:
        """Whether some of the text was read for this pass: in the next there may be a draft."""
        return self._n > 0

    @property
    def _free(self) -> float:
        """Seconds a token that are charged to nobody."""
        return EPS * (self._costs.reading or self._costs.target.of_each)

    @property
    def granted(self) -> float:
        """Seconds of this pass's reading that are charged to nobody."""
        return self._free * self._n

    def observe(self, planning: float) -> None:
        """Learn what reading takes from the seconds in which a pass with some of it was planned."""
        if self._n >= TIMED:
            self._costs.copying = _learned(self._costs.copying, planning / self._n)


def _learned(known: float, each: float) -> float:
    """Return the seconds a token that are known after another measurement, 0.0 being none."""
    return (known + min(each, OUTLIER * known)) / 2 if known else each
