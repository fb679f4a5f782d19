"""When a pass is plain to measure plain decoding, and which measurements an answer goes on with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Step
from localspec.engine.protocols import Clock, Controller, DraftBudget, History, Plan
from localspec.tuning import AGAIN, BASELINE, EVERY, NEAR, RECENT


class Probing:
    """Another controller's plans, with plain passes early, unless the baseline `is_known`, and then every so often.

    A plain pass measures plain decoding after `settles` other plain ones: until then llama.cpp lays its graph out anew,
    or a GPU's driver records it. Such a plan says so (`is_probe`). `acceptance`, if there is one, learns from all
    passes, and policies of trees go by it.
    """

    def __init__(
        self, inner: Controller, acceptance: Acceptance | None = None, *, settles: int = 1, is_known: bool = False
    ) -> None:
        self._inner = inner
        self._acceptance = acceptance
        self._settles = settles
        self._early = 0 if is_known else BASELINE + settles - 1
        self._passes = 0
        self._plain = 0  # passes, one after the other, up to the last

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Return the inner plan, emptied when a measurement is due."""
        passes, settles = self._passes, self._settles
        is_again = 0 <= passes - AGAIN <= settles or (passes >= EVERY and passes % EVERY <= settles)
        is_due = passes < self._early or is_again
        plan = self._inner.plan(history, DraftBudget(0, 0) if is_due else budget)
        if is_due:
            plan = replace(plan, max_nodes=0, max_depth=0, why="measures plain decoding")
        if plan.max_nodes == 0 and self._plain >= settles:
            plan = replace(plan, is_probe=True)
        return plan if self._acceptance is None else replace(plan, learned=self._acceptance)

    def observe(self, step: Step, seconds: float) -> None:
        """Count the pass and let the inner controller see it."""
        if self._acceptance is not None:
            self._acceptance.observe(step)
        self._passes += 1
        self._plain = self._plain + 1 if step.rows == 1 and not step.drafter else 0
        self._inner.observe(step, seconds)


@dataclass(frozen=True, slots=True)
class PlainPass:
    """A plain pass of `ms` milliseconds with `ctx` tokens in the context; `at` is the clock's time in seconds."""

    ms: float
    ctx: int
    at: float


class Baselines:
    """The latest measurements of plain decoding in a session."""

    def __init__(self, clock: Clock, most: int = 32) -> None:
        self._clock = clock
        self._most = most
        self._kept: list[PlainPass] = []

    def add(self, ms: float, ctx: int) -> None:
        """Keep a measurement made now."""
        self._kept = [*self._kept[1 - self._most :], PlainPass(ms, ctx, self._clock())]

    def near(self, ctx: int) -> list[PlainPass]:
        """Return those that say what a plain pass costs after `ctx` tokens; fewer than two are none."""
        now, reach = self._clock(), max(NEAR, ctx // 4)
        found = [one for one in self._kept if now - one.at <= RECENT and abs(one.ctx - ctx) <= reach]
        return found if len(found) > 1 else []
