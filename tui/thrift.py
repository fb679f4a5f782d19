"""How often the screen may be drawn, so that it does not eat the speed it reports.

What a drawing costs grows with what is on the screen: a word appended to an answer of 60 paragraphs costs twice as much
as to an empty one. So after each drawing the screen rests until it has taken no more than a share of one processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.15  # of one processor
LONGEST = 0.5  # seconds that text may wait


class Thrift:
    """Says when the next drawing is due. `clock` counts seconds, `used` those of this process on a processor."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._used = clock, used
        self._before = used()
        self._until = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the screen has rested long enough."""
        return self._clock() >= self._until

    def begin(self) -> None:
        """Note that a drawing begins; what was used since the last one is what that one has cost."""
        now, used = self._clock(), self._used()
        self._until = now + min(LONGEST, (used - self._before) / SHARE)
        self._before = used

    def wake(self) -> None:
        """Note that work begins after idling: what was used meanwhile was no drawing."""
        self._before, self._until = self._used(), 0.0
