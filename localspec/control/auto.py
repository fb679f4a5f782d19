"""The default: draft as much as pays, nothing where nothing pays, and never lose more than the account allows.

Maximising tokens per second is maximising tokens - lambda * seconds, lambda being the best rate there is (Dinkelbach):
the value of time. With T the cost of a target pass by rows and D that of the draft, a draft of k tokens grows on while

    exists k' > k:   sum over j = k+1 .. k' of A_j   >   lambda (T(1+k') - T(1+k) + D(k') - D(k))

A_j is the chance that the j-th token is accepted: learned for what the draft itself thinks of its tokens, and the mean
beyond what is drafted. Looking ahead to k' crosses the steps of T. A pass is plain where no k' makes it worthwhile; of
drafters that cost nothing to ask, one is preferred whose draft is worth more.

The rule sees past passes and drawn tokens only, before each draw, so every verifier stays exact (ALG 3.7); under
coupled noise the text does not depend on it at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from localspec.acceptance import Acceptance
from localspec.control.cost import Costs
from localspec.control.growing import Growing
from localspec.control.ledger import Ledger
from localspec.control.reading import Reader, Reading
from localspec.control.tally import Tally
from localspec.control.trials import Rate, Trials
from localspec.draft import Draft, Draw, Step
from localspec.protocols import History, Plan, Room, Shape, always

LONGEST = 16  # tokens of a chain, where -k sets no other bound
MEAN = 0.02  # weight of a token in the mean acceptance, once there were enough
GUESSED = 10.0  # tokens that the first guess is worth
RESTED = 3  # passes that stay plain without a thought once drafting was parked
PROBED = 8  # parked passes from one that is told as a measurement to the next


@dataclass(frozen=True, slots=True)
class Offer:
    """A plan, the tokens it promises beyond a plain pass net of its time, and the seconds lost if all is rejected."""

    plan: Plan
    gain: float
    worst: float


NOTHING = Offer(Plan(), 0.0, 0.0)


class Free(Protocol):
    """A drafter whose drafts cost nothing to look at."""

    def offer(self, history: History, plan: Plan) -> Draft: ...


class Auto:
    """Plans chains of the drafter `name`, whose model `reader` knows of, drafts of the `free` ones, or plain passes.

    `shape` limits the chains, and `draw` is how their tokens are drawn. All times are in seconds.
    """

    def __init__(
        self,
        costs: Costs,
        acceptance: Acceptance,
        shape: Shape,
        draw: Draw,
        *,
        name: str = "",
        reader: Reader | None = None,
        free: Mapping[str, Free] | None = None,
    ) -> None:
        self._costs = costs
        self._acceptance = acceptance
        self._longest = shape.depth
        self._draw = draw
        self._name = name
        self._reading = Reading(costs, reader)
        self._free = dict(free or {})
        self._idle = name or next(iter(self._free), "plain")  # who is asked for nothing in plain passes
        self.ledger = Ledger(costs)
        self._trials = Trials()
        self._mean = acceptance.vector[0]
        self._judged = GUESSED
        self._rate = Rate()
        self._plan = Plan(self._idle)
        self._rest = 0  # passes before it is thought over again
        self.tally = Tally()

    def plan(self, history: History, room: Room) -> Plan:
        """Return the plan that promises most, if it promises more than a plain pass and can be afforded."""
        plan = self._planned(history, min(self._longest, room.depth, room.nodes))
        if plan.max_nodes:
            plan = replace(plan, widths=self._costs.widths(plan.max_nodes, room.nodes))
        self._plan = plan
        return plan

    def _planned(self, history: History, longest: int) -> Plan:
        if not self._costs.target.is_known:
            return self._plain("nothing measured yet")
        if self._rest > 0:
            self._rest -= 1
            return self._plain(self.tally.parked)
        price = self._costs.plain
        value = max(self._rate.tokens_per_second, 1.0 / price)
        room = self.ledger.room
        offers = [self._offered(name, drafter, history, longest, value) for name, drafter in self._free.items()]
        if self._name:
            offers.append(self._modelled(history, longest, value, room))
        best = max(offers, key=lambda one: one.gain, default=NOTHING)
        is_trial = False
        if best.gain <= 0.0:
            best = next((one for one in offers if one.plan.drafter == self._name), NOTHING)
            is_trial = best.plan.max_nodes > 0 and self._trials.are_due()
            if not is_trial:
                return self._parked("nothing drafted would pay")
            best = self._trial(best)
        if best.worst > room:
            return self._parked(f"drafting has cost {1e3 * self.ledger.account.loss:.0f} ms more than plain decoding")
        if not is_trial:
            self._trials.succeed()
        return best.plan

    def _parked(self, why: str) -> Plan:
        """Return the empty plan, for a few passes: parked decoding must cost what plain decoding costs."""
        self._rest = 0 if self._free else RESTED
        return self._plain(f"parked: {why}")

    def _plain(self, why: str) -> Plan:
        """Return the empty plan; it measures plain decoding where it follows another."""
        self.tally.parked = why
        return Plan(self._idle, is_probe=self.ledger.follows_plain and self._trials.passes % PROBED == 0, why=why)

    def _offered(self, name: str, drafter: Free, history: History, longest: int, value: float) -> Offer:
        """Look at the draft of a free drafter, and cut it where it promises most."""
        if longest <= 0:
            return NOTHING
        draft = drafter.offer(history, Plan(name, longest, longest))
        costs = self._costs
        reach, tokens, best = 1.0, 0.0, NOTHING
        for n in range(1, len(draft) + 1):  # a chain
            reach *= draft.share(n)
            tokens += reach
            extra = costs.rows(n) - costs.plain
            if tokens - value * extra > best.gain:
                plan = Plan(name, n, n, Draw.FIXED, expects=(1.0 + tokens, costs.rows(n)), why=f"{name} {n}")
                best = Offer(plan, tokens - value * extra, extra)
        return best

    def _modelled(self, history: History, longest: int, value: float, room: float) -> Offer:
        """Expect of the model drafter what it did of late, in as many tokens as may all be rejected."""
        if longest <= 0:
            return NOTHING
        self._reading.look(history)
        reading = self._reading.charged
        costs = [self._costs.rows(k) + self._costs.draft.of(k) for k in range(longest + 1)]
        while len(costs) > 2 and costs[-1] - costs[0] + reading > room:
            costs.pop()
        tokens, reach, gain, best = 0.0, 1.0, -math.inf, 1
        expected = 0.0
        for k in range(1, len(costs)):
            reach *= self._mean
            tokens += reach
            if tokens - value * (costs[k] - costs[0]) > gain:
                gain, best, expected = tokens - value * (costs[k] - costs[0]), k, tokens
        growing = Growing(self._acceptance, self._mean, [value * cost for cost in costs])
        plan = Plan(
            self._name,
            len(costs) - 1,
            len(costs) - 1,
            self._draw,
            growing.go_on,
            expects=(1.0 + expected, costs[best]),
            why=f"{self._name}, about {best}",
        )
        # Reading up is paid once and serves all that follows: it must be affordable, but it is no reason against.
        return Offer(plan, gain, costs[best] - costs[0] + reading)

    def _trial(self, offer: Offer) -> Offer:
        """Return a draft of one token, to see whether things have changed."""
        costs = self._costs
        plan = replace(offer.plan, max_nodes=1, max_depth=1, go_on=always, expects=None, why="trial of one token")
        return Offer(plan, 0.0, costs.rows(1) - costs.plain + costs.draft.of(1) + self._reading.charged)

    def observe(self, step: Step, seconds: float) -> None:
        """Learn costs and acceptance from a pass, and charge it."""
        is_modelled = len(step.draft) > 0 and self._plan.drafter == self._name
        price = self.ledger.observe(step, seconds, self._reading.allowed if is_modelled else 0.0)
        if is_modelled:
            self._learn_draft(step, step.n_drafted)
            self._follow(step)
        self._trials.passes += 1
        self._rate.observe(len(step.tokens), seconds)
        self.tally.observe(step, seconds, self._plan.drafter, price)

    def _learn_draft(self, step: Step, n: int) -> None:
        """Take the draft's time for what drafting costs, or for what reading up costs."""
        if self._reading.is_due:
            self._reading.observe(step.times.draft - self._costs.draft.of(n))
        else:
            self._costs.draft.observe(n, step.times.draft)

    def _follow(self, step: Step) -> None:
        """Let the acceptance of the model's tokens follow the pass."""
        self._acceptance.observe(step)
        kept = len(step.verdict.path)
        for is_accepted in [1.0] * kept + [0.0] * (kept < step.draft.depth):
            self._judged += 1.0
            self._mean += max(MEAN, 1.0 / self._judged) * (is_accepted - self._mean)

    def verdict(self) -> str:
        """Return what came of it, in one line for people."""
        return self.tally.verdict(self._costs)
