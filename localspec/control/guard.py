"""Never slower than plain decoding by more than a stated few percent: a loss account over another controller's plans.

Every speculative pass is charged what it took beyond the plain passes it replaced. A pass that could at worst bring
the account over its limit is not made; decoding goes on plainly until the limit, which grows with the time spent,
allows another try. At any moment

    elapsed <= (plain + L0) / (1 - eps),   eps = 2 %, L0 = eight plain passes

as far as the measured plain pass is right, and apart from the first speculative pass, whose cost nobody knows before:
it also evaluates the prompt in the draft model. It is charged like any other, and paid off before the next.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median_low

from localspec.draft import Step
from localspec.protocols import Controller, History, Plan, Room

EPS = 0.02
HEAD_START = 8.0  # plain passes
CREDIT = 200.0  # plain passes: how much past gain may be lost again before drafting stops
RECENT = 65  # plain passes whose median is the price: with few, a lucky estimate keeps drafting alive by itself
FADE = 0.2  # weight of the newest pass in the expected cost of a speculative one


class Guarded:
    """The inner controller's plans, emptied while drafting does not pay. All times in seconds."""

    def __init__(self, inner: Controller) -> None:
        self._inner = inner
        self._plain: deque[float] = deque(maxlen=RECENT)
        self._elapsed = 0.0
        self._loss = 0.0
        self._cost: float | None = None

    def plan(self, history: History, room: Room) -> Plan:
        """Return the inner plan if the account can bear that its draft is rejected whole."""
        plan = self._inner.plan(history, room)
        if plan.max_nodes == 0:
            return plan
        if self._plain:
            plain = median_low(self._plain)
            at_worst = self._loss + max((self._cost or plain) - plain, 0.0)
            if at_worst <= EPS * self._elapsed + HEAD_START * plain:
                return plan
        why = f"parked: drafting has cost {1e3 * self._loss:.0f} ms more than plain decoding"
        return replace(plan, max_nodes=0, max_depth=0, is_probe=True, why=why if self._plain else "no price yet")

    def observe(self, step: Step, seconds: float) -> None:
        """Charge or credit the pass."""
        self._elapsed += seconds
        if len(step.draft) == 0:
            self._plain.append(seconds)
        elif self._plain:
            plain = median_low(self._plain)
            self._loss = max(self._loss + seconds - len(step.tokens) * plain, -CREDIT * plain)
            self._cost = seconds if self._cost is None else (1 - FADE) * self._cost + FADE * seconds
        self._inner.observe(step, seconds)
