"""Plain passes made on purpose, so that a speedup is always against something measured.

A plain pass commits one token as usual; it costs what drafting would have saved in that pass, about one percent of a
long answer. The first two come before anything is drafted: what a plain pass costs is known before the first bet, and
of two the faster is the baseline, so that a stutter of the machine never looks like a speedup.
"""

from __future__ import annotations

from dataclasses import replace

from localspec.draft import Step
from localspec.protocols import Controller, History, Plan, Room

EARLY = (0, 1, 8, 32)  # counted from the pass after the prompt's own
EVERY = 64


class Probing:
    """Another controller's plans, with a plain pass early and then every so often."""

    def __init__(self, inner: Controller) -> None:
        self._inner = inner
        self._passes = 0

    def plan(self, history: History, room: Room) -> Plan:
        """Return the inner plan, emptied when a measurement is due."""
        plan = self._inner.plan(history, room)
        is_due = self._passes in EARLY or (self._passes > 0 and self._passes % EVERY == 0)
        if plan.max_nodes == 0 or not is_due:
            return plan
        return replace(plan, max_nodes=0, max_depth=0, is_probe=True, why="measures plain decoding")

    def observe(self, step: Step, seconds: float) -> None:
        """Count the pass and let the inner controller see it."""
        self._passes += 1
        self._inner.observe(step, seconds)
