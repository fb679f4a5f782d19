"""Plain passes made on purpose, so that a speedup is always against something measured.

A plain pass commits one token as usual; it costs what drafting would have saved in that pass, about one percent of a
long answer. Only a plain pass that follows a plain one measures plain decoding: after a pass of another width
llama.cpp lays its graph out anew, which a run of plain passes never pays. The first ones come before anything is
drafted, so that what a plain pass costs is known before the first bet.
"""

from __future__ import annotations

from dataclasses import replace

from localspec.draft import Step
from localspec.protocols import Controller, History, Plan, Room

EARLY = (0, 1, 2, 24, 25)  # counted from the pass after the prompt's own
EVERY = 128  # two passes: the one that is measured, and the one that it follows


class Probing:
    """Another controller's plans, with plain passes early and then every so often."""

    def __init__(self, inner: Controller) -> None:
        self._inner = inner
        self._passes = 0
        self._follows_plain = False

    def plan(self, history: History, room: Room) -> Plan:
        """Return the inner plan, emptied when a measurement is due."""
        plan = self._inner.plan(history, room)
        is_due = self._passes in EARLY or (self._passes >= EVERY and self._passes % EVERY < 2)
        if plan.max_nodes == 0 or not is_due:
            return plan
        return replace(plan, max_nodes=0, max_depth=0, is_probe=self._follows_plain, why="measures plain decoding")

    def observe(self, step: Step, seconds: float) -> None:
        """Count the pass and let the inner controller see it."""
        self._passes += 1
        self._follows_plain = len(step.draft) == 0
        self._inner.observe(step, seconds)
