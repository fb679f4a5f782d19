"""Plain passes made on purpose, so that a speedup is always against something measured.

A plain pass commits one token as usual; it costs what drafting would have saved in that pass, about one percent of a
long answer. Only a plain pass that follows a plain one measures plain decoding: after a pass of another width
llama.cpp lays its graph out anew, which a run of plain passes never pays. The first ones come before anything is
drafted, so that what a plain pass costs is known before the first bet. An answer soon after another, to a prompt of
about the same length, goes on with what that one measured.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from localspec.draft import Step
from localspec.protocols import Clock, Controller, History, Plan, Room

FIRST = (0, 1, 2)  # counted from the pass after the prompt's own, where nothing is known
AGAIN = (64, 65)
EVERY = 128  # two passes: the one that is measured, and the one that it follows
KEPT = 8  # probes of earlier answers
RECENT = 600.0  # seconds for which they are believed
NEAR = 128  # tokens of context, or a quarter of them: how far away they may have been measured


class Probing:
    """Another controller's plans, with plain passes early, unless a baseline `is_known`, and then every so often."""

    def __init__(self, inner: Controller, *, is_known: bool = False) -> None:
        self._inner = inner
        self._early = AGAIN if is_known else FIRST + AGAIN
        self._passes = 0
        self._follows_plain = False

    def plan(self, history: History, room: Room) -> Plan:
        """Return the inner plan, emptied when a measurement is due."""
        is_due = self._passes in self._early or (self._passes >= EVERY and self._passes % EVERY < 2)
        if not is_due:
            return self._inner.plan(history, room)
        plan = self._inner.plan(history, Room(0, 0))  # so that nothing is thought of that cannot be
        return replace(plan, max_nodes=0, max_depth=0, is_probe=self._follows_plain, why="measures plain decoding")

    def observe(self, step: Step, seconds: float) -> None:
        """Count the pass and let the inner controller see it."""
        self._passes += 1
        self._follows_plain = len(step.draft) == 0
        self._inner.observe(step, seconds)


@dataclass(frozen=True, slots=True)
class Probe:
    """A plain pass of `ms` milliseconds with `ctx` tokens in the context; `at` is the clock's time."""

    ms: float
    ctx: int
    at: float


class Probes:
    """The latest measurements of plain decoding, for the answers that follow."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[Probe] = deque(maxlen=KEPT)

    def add(self, ms: float, ctx: int) -> None:
        """Keep a measurement made now."""
        self._kept.append(Probe(ms, ctx, self._clock()))

    def near(self, ctx: int) -> list[Probe]:
        """Return those that tell what a plain pass costs after `ctx` tokens, fewer than two being none."""
        now = self._clock()
        reach = max(NEAR, ctx // 4)
        found = [one for one in self._kept if now - one.at <= RECENT and abs(one.ctx - ctx) <= reach]
        return found if len(found) > 1 else []
