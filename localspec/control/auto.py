"""The default: draft as much as pays, nothing where nothing pays, and never lose more than the account allows.

Maximising tokens per second is maximising tokens - lambda * seconds, lambda being the best rate there is (Dinkelbach):
the value of time. With T the cost of a target pass by rows and D that of the draft, a draft of k tokens grows on while

    exists k' > k:   sum over j = k+1 .. k' of A_j   >   lambda (T(1+k') - T(1+k) + D(k') - D(k))

A_j is the chance that the j-th token is accepted: learned for what the draft itself thinks of its tokens, and the mean
beyond what is drafted. Looking ahead to k' crosses the steps of T; what scatters counts for less (`growing`). A pass is
plain where no k' makes it worthwhile; of drafters that cost nothing to ask, one is preferred whose draft is worth more.
And what is promised must win back soon what drafting has lost so far and what the draft model has to read first: where
little is to be gained, a promise that was too good is not believed a hundred times.

The rule sees past passes and drawn tokens only, before each draw, so every verifier stays exact (ALG 3.7). Under
coupled noise the text does not depend on it at all, and a token is judged by how clearly it leads the draft's race.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from localspec.acceptance import Acceptance
from localspec.control.account import UNMEASURED, too_dear
from localspec.control.cost import DOUBT, Costs
from localspec.control.growing import Growing
from localspec.control.ledger import Ledger
from localspec.control.reading import Copier, Copying, Reader, Reading
from localspec.control.tally import Tally
from localspec.control.trials import Looks, Rate, Trials
from localspec.draft import Draft, Draw, Step
from localspec.protocols import Growth, History, Plan, Room, Shape

LONGEST = 16  # tokens of a chain, where -k sets no other bound
MEAN = 0.02  # weight of a token in the mean acceptance, once there were enough
FIRST_GUESS = 10.0  # tokens that the first guess is worth
STAKE = 0.5  # of what may be lost: the most that a trial may cost
RESTED = 3  # passes without a thought once drafting was parked, of the draft model at least
WON_BACK = 32.0  # passes in which what was lost must be won back
READ_BACK = 64.0  # and what is spent on reading, or in the rest of a short answer
PROBED = 8  # parked passes from one that is told as a measurement to the next


@dataclass(frozen=True, slots=True)
class Offer:
    """A plan, the tokens it promises beyond a plain pass net of its time, and the seconds lost at worst.

    `stop` is the rule by which its draft ends, where it is a model's.
    """

    plan: Plan
    gain: float
    worst: float
    stop: Growing | None = None


NOTHING = Offer(Plan(), 0.0, 0.0)


class Free(Copier, Protocol):
    """A drafter whose drafts cost nothing to look at."""

    def offer(self, history: History, plan: Plan) -> Draft: ...


def _anyhow(growth: Growth) -> bool:
    """Draw, and let the drafter tell how sure it was: with no rule at all nobody asks it, and 1 would be learned."""
    return True


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
        self._copying = Copying(costs)
        self._idle = name or next(iter(self._free), "plain")  # who is asked for nothing in plain passes
        self.ledger = Ledger(costs)
        self._trials = Trials()
        self._looks = Looks()
        self._mean = acceptance.mean
        self._judged = FIRST_GUESS
        self._rate = Rate()
        self._stop: Growing | None = None  # of the draft under way
        self._rest = 0  # passes before it is thought over again
        self._left = 1  # tokens to the end of the answer, as far as one is set
        self.tally = Tally(name)

    def plan(self, history: History, room: Room) -> Plan:
        """Return the plan that promises most, if it promises more than a plain pass and can be afforded."""
        self._costs.at(history.position)
        self._left = room.depth + 1
        plan = self._planned(history, min(self._longest, room.depth, room.nodes))
        if plan.max_nodes:
            plan = replace(plan, widths=self._costs.widths(plan.max_nodes, room.nodes))
        return plan

    def _planned(self, history: History, longest: int) -> Plan:
        self._stop = None
        self._copying.begin()
        if longest <= 0:
            return Plan(self._idle, why="no room for a draft")
        if not self._costs.target.knows(1):
            return self._plain(UNMEASURED)
        is_resting = self._rest > 0
        self._rest -= is_resting
        if is_resting and (self.ledger.account.loss > 0.0 or not self._free):  # what was gained may be thought away
            return self._plain(self.tally.parked)
        price, room = self._costs.plain, self.ledger.room
        least = max(self._costs.worst(1) - price + (0.0 if self._free else DOUBT * self._costs.draft.of(1)), 0.0)
        if room <= least:  # thinking costs time too: done in every pass, it would eat up what may be lost
            return self._parked(too_dear(least, room))
        value = max(self._rate.tokens_per_second, 1.0 / price)
        wanted = max(self.ledger.account.worry, 0.0) / WON_BACK
        offers = [self._offered(name, free, history, longest, value, room) for name, free in self._free.items()]
        modelled = NOTHING if is_resting or not self._name else self._modelled(history, longest, value, room)
        promising = [one for one in (*offers, modelled) if one.gain > wanted]
        if not promising and is_resting:
            return self._plain(self.tally.parked)
        if not promising:
            curious = self._curious(modelled, value, price)
            self._stop = curious.stop
            return curious.plan if curious.plan.max_nodes else self._parked("parked: nothing drafted would pay")
        best = max((one for one in promising if one.worst <= room), key=lambda one: one.gain, default=None)
        if best is None:
            return self._parked(too_dear(min(one.worst for one in promising), room))
        self._stop = best.stop
        if best.stop is not None:  # copies that pay say nothing of the draft model
            self._trials.succeed()
        return best.plan

    def _curious(self, modelled: Offer, value: float, price: float) -> Offer:
        """Return what promises nothing but to teach: a draft of one token, or a look at what the draft model thinks."""
        room = self.ledger.room
        trial = self._trial(modelled, value) if modelled.plan.max_nodes else NOTHING
        if trial.plan.max_nodes and trial.worst <= self._stake(room) and self._trials.are_due():
            return trial
        each, reading = self._costs.draft.of(1) / price, self._reading.seconds / price
        is_possible = modelled.stop is not None and modelled.worst <= room
        if not (is_possible and self._looks.are_due(self._acceptance.waited, each, reading, self._left)):
            return NOTHING
        if reading > 0.0:  # once it has read up it is tried too: what it thinks of itself is not all there is to know
            self._trials.encourage()
        return replace(modelled, plan=replace(modelled.plan, expects=None, why="a look at the draft"))

    def _stake(self, room: float) -> float:
        """Return the seconds that may be spent on finding out: what was gained is not for gambling."""
        return STAKE * min(room, self.ledger.account.allowance * self._costs.plain)

    def _parked(self, why: str) -> Plan:
        """Return the empty plan, for a few passes: parked decoding must cost what plain decoding costs."""
        self._rest = 0 if self._copying.has_read else RESTED
        return self._plain(why)

    def _plain(self, why: str) -> Plan:
        """Return the empty plan; it measures plain decoding where it follows another."""
        self.tally.parked = why
        return Plan(self._idle, is_probe=self.ledger.follows_plain and self._trials.passes % PROBED == 0, why=why)

    def _offered(self, name: str, drafter: Free, history: History, longest: int, value: float, room: float) -> Offer:
        """Look at the draft of a free drafter, and cut it where it promises most of what may all be rejected."""
        if not self._copying.catch_up(drafter, history, self._stake(room)):
            return NOTHING
        draft = drafter.offer(history, Plan(name, longest, longest))
        costs = self._costs
        reach, tokens, squares, best = 1.0, 0.0, 0.0, NOTHING
        for n in range(1, len(draft) + 1):  # a chain
            reach *= draft.share(n)
            tokens += reach
            squares += (2 * n - 1) * reach
            scatter = (squares - tokens * tokens) * costs.plain / (2.0 * room)  # `Growing` has the reason
            gain = tokens - scatter - value * (costs.rows(n) - costs.plain)
            worst = costs.worst(n) - costs.plain
            if gain > best.gain and worst <= room:
                plan = Plan(name, n, n, Draw.FIXED, expects=(1.0 + tokens, costs.rows(n)), why=f"{name} {n}")
                best = Offer(plan, gain, worst)
        return best

    def _modelled(self, history: History, longest: int, value: float, room: float) -> Offer:
        """Expect of the model drafter what it did of late, in as many tokens as may all be rejected."""
        self._reading.look(history)
        longest = min(longest, self._reading.room)
        if longest <= 0:
            return NOTHING
        reading = self._reading.charged
        rows = [self._costs.rows(k) for k in range(longest + 1)]
        draft = [self._costs.draft.of(k) for k in range(longest + 1)]
        while len(rows) > 2 and self._costs.worst(len(rows) - 1) + DOUBT * (draft[-1] + reading) - rows[0] > room:
            rows.pop()
            draft.pop()
        tokens, reach, gain, best = 0.0, 1.0, -math.inf, 1
        expected = 0.0
        for k in range(1, len(rows)):
            reach *= self._mean
            tokens += reach
            net = tokens - value * (rows[k] - rows[0] + draft[k])
            if net > gain:
                gain, best, expected = net, k, tokens
        stop = Growing(
            self._acceptance,
            self._mean,
            [value * cost for cost in rows],
            [value * cost for cost in draft],
            caution=self._costs.plain / (2.0 * room),
        )
        plan = Plan(
            self._name,
            len(rows) - 1,
            len(rows) - 1,
            self._draw,
            go_on=stop.go_on,
            look_on=stop.look_on,
            widen=stop.widen,
            learned=self._acceptance,
            expects=(1.0 + expected, rows[best] + draft[best] + self._reading.seconds),
            why=f"{self._name}, about {best}",
        )
        passes = min(READ_BACK, self._left / (1.0 + expected))
        gain = self._looks.worth(gain) - value * self._reading.seconds / passes
        worst = self._costs.worst(best) + DOUBT * (draft[best] + reading) - rows[0]
        return Offer(plan, gain, worst, stop)

    def _trial(self, offer: Offer, value: float) -> Offer:
        """Return a draft of one token, to see whether things have changed; nothing where no acceptance would do."""
        costs = self._costs
        if all(k <= value * (costs.rows(k) - costs.plain + costs.draft.of(k)) for k in range(1, self._longest + 1)):
            return NOTHING
        plan = replace(offer.plan, max_nodes=1, max_depth=1, go_on=_anyhow, expects=None, why="trial of one token")
        drafting = costs.draft.of(1) + self._reading.seconds
        return Offer(plan, 0.0, costs.worst(1) + DOUBT * drafting - costs.plain)

    def observe(self, step: Step, seconds: float) -> None:
        """Learn costs and acceptance from a pass, and charge it."""
        is_modelled = step.drafter != "" and step.drafter == self._name
        is_investment = is_modelled and self._stop is not None  # reading for a trial of one token is none
        allowed = self._reading.allowed if is_investment else 0.0
        charge = self.ledger.observe(step, seconds, allowed, free=self._copying.granted)
        self._copying.observe(step.times.planning)
        self._acceptance.waited = 0.0 if is_modelled else self._acceptance.waited + 1.0
        if is_modelled:
            self._learn_draft(step)
            self._follow(step)
            if self._stop is not None:
                self._looks.observe(self._stop.promise)
            elif step.n_accepted:
                self._trials.encourage()
        self._trials.passes += 1
        self._rate.observe(len(step.tokens), charge.seconds)
        self.tally.observe(step, charge)

    def _learn_draft(self, step: Step) -> None:
        """Take the draft's time for what drafting costs, or for what reading up costs."""
        n = self._stop.looked if self._stop is not None else 1
        if n == 0:  # it had no room, and made no pass
            return
        if self._reading.is_due:
            self._reading.observe(step.times.draft - self._costs.draft.of(n))
        else:
            self._costs.draft.observe(n, step.times.draft)

    def _follow(self, step: Step) -> None:
        """Let the acceptance of the model's tokens follow the pass."""
        self._acceptance.observe(step)
        kept = sum(node == at for at, node in enumerate(step.verdict.path, 1))  # of the chain, not beside it
        for is_accepted in [1.0] * kept + [0.0] * (kept < step.draft.depth):
            self._judged += 1.0
            self._mean += max(MEAN, 1.0 / self._judged) * (is_accepted - self._mean)

    def verdict(self) -> str:
        """Return what came of it, in one line for people."""
        return self.tally.verdict(self._costs)
