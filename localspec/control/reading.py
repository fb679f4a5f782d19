"""What the draft model has still to read before it can draft, and how much of that a request pays for.

A target that reads a prompt of a thousand tokens takes its time, with or without a draft. A draft model that reads it
beside the target in a tenth of that time delays the answer by as much and no more, and that is what people accept of a
draft (and what is promised). The rest is charged to the loss account like any loss, and so is all that is read for a
trial of what did not pay.
"""

from __future__ import annotations

import sys
from typing import Protocol

from localspec.control.cost import OUTLIER, Costs
from localspec.protocols import History

BEHIND = 8  # tokens: a drafter further behind must read up, and that is a price of its own
TENTH = 0.1  # of the target's time for the same tokens


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
        each, known = max(seconds, 0.0) / self._behind, self._costs.read
        self._costs.read = (known + min(each, OUTLIER * known)) / 2 if known else each
