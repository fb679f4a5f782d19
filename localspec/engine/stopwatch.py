"""The clock of one answer. Two accounts of time are kept.

A pass's own `Times` add up to the wall clock: all time since the end of the pass before is in them, and `other` holds
the part that is not drafting, verifying or sampling. The controller is given the cost of a pass: the time from the end
of one turn of the reader to the end of the next, so that no pass pays for another's events.
"""

from __future__ import annotations

from localspec.engine.draft import Times
from localspec.engine.protocols import Clock


class Stopwatch:
    """`mark` notes the time between two parts of a pass; `prompt_times` and `pass_times` end it, and the marks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: list[float] = []
        self._end = 0.0  # of the last pass
        self._turn_end = 0.0  # the end of the reader's last turn

    def mark(self) -> None:
        self._marks.append(self._clock())

    def prompt_times(self) -> Times:
        """Return the parts of reading the prompt, after two marks: at its beginning, and before sampling."""
        (began, read), self._marks = self._marks, []
        return Times(verify=read - began, sample=self._clock() - read)

    def begin_passes(self) -> None:
        self._end = self._clock()

    def pass_times(self) -> Times:
        """Return the parts of a pass, after four marks: before planning, drafting, decoding and sampling."""
        (began, planned, drafted, decoded), self._marks = self._marks, []
        sampled = self._clock()
        times = Times(
            draft=drafted - planned,
            verify=decoded - drafted,
            sample=sampled - decoded,
            other=planned - self._end,
            planning=planned - began,
        )
        self._end += times.total
        return times

    def turn(self) -> float:
        """Return the seconds since the last turn: those of a pass and of what its reader did with it."""
        before, self._turn_end = self._turn_end, self._clock()
        return self._turn_end - before
