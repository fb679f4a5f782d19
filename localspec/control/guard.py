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
REPRICED = 8  # plain passes from one look at the price to the next
FADE = 0.2  # weight of the newest pass in the expected cost of a speculative one


class Guarded:
    """The inner controller's plans, emptied while drafting does not pay. All times in seconds."""

    def __init__(self, inner: Controller) -> None:
        self._inner = inner
        self._plain: deque[float] = deque(maxlen=RECENT)
        self._n_plain = 0
        self._follows_plain = False
        self._price: float | None = None  # of a plain pass
        self._elapsed = 0.0
        self._loss = 0.0
        self._cost: float | None = None

    def plan(self, history: History, room: Room) -> Plan:
        """Return the inner plan if the account can bear that its draft is rejected whole."""
        plan = self._inner.plan(history, room)
        if plan.max_nodes == 0:
            return plan
        price = self._price
        if price is None:
            return replace(plan, max_nodes=0, max_depth=0, is_probe=self._follows_plain, why="no price yet")
        at_worst = self._loss + max((self._cost or price) - price, 0.0)
        if at_worst <= EPS * self._elapsed + HEAD_START * price:
            return plan
        # Parked decoding must cost what plain decoding costs: it is measured, and told, now and then only.
        is_probe = self._follows_plain and self._n_plain % REPRICED == 0
        why = f"parked: drafting has cost {1e3 * self._loss:.0f} ms more than plain decoding" if is_probe else "parked"
        return replace(plan, max_nodes=0, max_depth=0, is_probe=is_probe, why=why)

    def observe(self, step: Step, seconds: float) -> None:
        """Charge or credit the pass."""
        self._elapsed += seconds
        is_plain = len(step.draft) == 0
        if is_plain and self._follows_plain:  # see `probe`: only such a pass costs what plain decoding costs
            self._n_plain += 1
            self._plain.append(seconds)
            if self._n_plain < REPRICED or self._n_plain % REPRICED == 0:
                self._price = median_low(self._plain)
        elif self._price is not None:  # drafting, or the change back from it
            self._loss = max(self._loss + seconds - len(step.tokens) * self._price, -CREDIT * self._price)
            if not is_plain:
                self._cost = seconds if self._cost is None else (1 - FADE) * self._cost + FADE * seconds
        self._follows_plain = is_plain
        self._inner.observe(step, seconds)
