"""Never slower than plain decoding by more than a stated few percent: the loss account over another controller's plans.

For what `auto` does not plan itself: trees, and length rules that were asked for. A draft is cut to the nodes that the
account could bear to lose, all rejected; where it can bear none, decoding is plain until the account, which grows with
the time spent, allows another try. The bound is that of `account`.
"""

from __future__ import annotations

from dataclasses import replace

from localspec.control.account import UNMEASURED, too_dear
from localspec.control.cost import DOUBT, Costs, DraftCosts
from localspec.control.ledger import Ledger
from localspec.control.reading import Reader, Reading
from localspec.draft import Step
from localspec.protocols import Controller, History, Plan, Room

TOLD = 8  # parked passes from one that is told as a measurement to the next


class Guarded:
    """The inner controller's plans, cut to what can be afforded. All times in seconds."""

    def __init__(self, inner: Controller, costs: Costs, reader: Reader | None = None) -> None:
        self._inner = inner
        self._costs = costs
        self._levels = DraftCosts(costs.draft.of(4) / 4)  # by depth: a level of a tree is one pass of the draft
        self.ledger = Ledger(costs)
        self._reading = Reading(costs, reader)
        self._passes = 0

    def plan(self, history: History, room: Room) -> Plan:
        """Return the inner plan with as many nodes as may all be rejected."""
        self._costs.at(history.position)
        plan = self._inner.plan(history, room)
        if plan.max_nodes == 0:
            return plan
        if not self._costs.target.knows(1):
            return self._plain(plan, UNMEASURED)
        self._reading.look(history)
        most = min(plan.max_nodes, self._reading.room)
        if most <= 0:
            return self._plain(plan, "parked: the draft model has no room left")
        affordable = self.ledger.room - self._reading.charged
        nodes = next((n for n in range(most, 0, -1) if self._worst(n, plan) <= affordable), 0)
        if nodes == 0:
            return self._plain(plan, too_dear(self._worst(1, plan) + self._reading.charged, self.ledger.room))
        widths = self._costs.widths(nodes, room.nodes)
        return replace(plan, max_nodes=nodes, max_depth=min(plan.max_depth, nodes), widths=widths)

    def observe(self, step: Step, seconds: float) -> None:
        """Charge or credit the pass."""
        self.ledger.observe(step, seconds, self._reading.allowed if step.drafter else 0.0)
        depth = step.draft.depth
        if step.drafter and self._reading.is_due:
            self._reading.observe(step.times.draft - self._levels.of(depth))
        elif depth:
            self._levels.observe(depth, step.times.draft)
        self._passes += 1
        self._inner.observe(step, seconds)

    def _worst(self, nodes: int, plan: Plan) -> float:
        """Return the seconds lost if `nodes` nodes are rejected."""
        drafting = DOUBT * self._levels.of(min(plan.max_depth, nodes))
        return self._costs.worst(nodes) + drafting - self._costs.plain

    def _plain(self, plan: Plan, why: str) -> Plan:
        """Return the plan emptied; now and then it is told as a measurement of plain decoding."""
        is_probe = self.ledger.follows_plain and self._passes % TOLD == 0
        return replace(plan, max_nodes=0, max_depth=0, is_probe=is_probe, why=why)
