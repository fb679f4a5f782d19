"""Limits how often the screen is drawn, so that drawing does not slow the engine down.

The time of a drawing grows with the text on the screen: a word appended to an answer of 60 paragraphs takes twice
as long as to an empty one. So after each drawing the screen rests until it has taken no more than a share of one
processor. Where the engine has a thread on each processor, all threads wait for a drawing: there the screen rests
longer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple


class Budget(NamedTuple):
    """The limits of drawing: its share of one processor; the seconds that text may wait at most, and figures at least.

    The figures are a sixth of what a drawing costs, and no one reads thirty numbers at a glance.
    """

    share: float
    longest: float
    figures: float


ROOMY = Budget(0.15, 0.5, 0.25)  # a processor is left over
TIGHT = Budget(0.03, 0.8, 1.6)  # the engine uses them all


def budget(threads: int) -> Budget:
    """Return what drawing may take beside an engine of so many threads."""
    # Not cpu_count: a container may have fewer than the machine.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ROOMY if threads < processors else TIGHT


class RedrawThrottle:
    """Says when the next drawing is due. `clock` counts seconds, `used` those of this process on a processor."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._used = clock, used
        self._before = used()
        self._until = 0.0
        self.budget = ROOMY

    @property
    def left(self) -> float:
        """Seconds that the screen is still to rest; 0 or less if it has rested long enough."""
        return self._until - self._clock()

    @property
    def is_due(self) -> bool:
        """Whether the screen has rested long enough."""
        return self.left <= 0

    def begin(self) -> None:
        """Note that a drawing begins; what was used since the last one is what that one has cost."""
        now, used = self._clock(), self._used()
        self._until = now + min(self.budget.longest, (used - self._before) / self.budget.share)
        self._before = used

    def wake(self) -> None:
        """Note that work begins after idling: what was used meanwhile was no drawing."""
        self._before, self._until = self._used(), 0.0
