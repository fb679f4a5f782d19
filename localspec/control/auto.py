"""The planner: draft as much as pays, nothing where nothing pays, and never lose more than the account allows.

    plan = the candidate of the greatest value (value.py), if that is above 0 and the account can bear its loss

Candidates are copies of the text, chains of a draft model, or the one plan of a tree or length rule that was asked for.
Plans depend on past passes and on distributions before the draw, so every verifier stays exact; a coupled token may be
looked at first. All times are in seconds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.control.account import LossAccount
from localspec.control.prices import MOST, Average, Prices
from localspec.control.value import Candidate, Now, StopRule
from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Draw, Step
from localspec.engine.protocols import Controller, DraftBudget, History, Plan, Shape
from localspec.tuning import CLAMP, DISCOUNT, EPS, EXPLORING, HORIZON, READING

CATCHING_UP = 8  # tokens that a draft model reads as part of any draft; more are priced by themselves
MOST_DRAFTED = MOST - 1  # tokens of a draft


class Reader(Protocol):
    """A drafter with a model of its own, which reads what it has not seen of the text before it drafts."""

    def behind(self, history: History) -> int: ...

    def tokens_left(self, history: History) -> int: ...


class Copier(Protocol):
    """A drafter that copies from the text; `chances` says how likely each token of a copy is right."""

    def chances(self, history: History, most: int) -> NDArray[np.float64]: ...


class CandidateSource(ABC):
    """Where candidates come from. `name` is the drafter that carries their plans out."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def candidate(self, now: Now) -> Candidate | None:
        """Return the best draft that can be afforded, None without one."""

    def explored(self, now: Now) -> Candidate | None:
        """Return a draft that only teaches, None where none is due."""
        return None

    def observe(self, step: Step) -> None:  # noqa: B027 - most learn elsewhere
        """Learn from a pass, whoever drafted in it."""


class Copies(CandidateSource):
    """Chains copied from the text, of `longest` tokens at most."""

    def __init__(self, name: str, prices: Prices, copier: Copier, longest: int) -> None:
        super().__init__(name)
        self._prices = prices
        self._copier = copier
        self._longest = longest

    def candidate(self, now: Now) -> Candidate | None:
        """Return the copy of the greatest value."""
        chances = self._copier.chances(now.history, min(now.most, self._longest))
        if not len(chances) or chances[0] <= now.value * self._prices.least:
            return None  # soon, for it is so in most passes of ordinary text
        best = now.best(chances, 0.0, caution=now.caution)
        if best is None:
            return None
        k, expects = best.length, (1.0 + best.tokens, now.seconds(best.length))
        return Candidate(Plan(self.name, k, k, Draw.FIXED, expects=expects, why=f"{self.name} {k}"), best.value)


class Reading:
    """What the model drafter `reader` must read of the text before it drafts, None where it reads nothing."""

    def __init__(self, prices: Prices, reader: Reader | None) -> None:
        self._prices = prices
        self._reader = reader
        self._behind = 1

    def look(self, now: Now) -> tuple[float, int]:
        """Return the seconds of reading and the draft tokens that there is room for."""
        if self._reader is None:
            return 0.0, now.most
        self._behind = self._reader.behind(now.history)
        left = min(now.most, self._reader.tokens_left(now.history))
        return (self._prices.read.value * self._behind if self._behind > CATCHING_UP else 0.0), left

    def observe(self, seconds: float, n: int, draft: Average) -> None:
        """Learn from a draft that ran the model `n` times: what a token costs, or what reading does."""
        if self._behind > CATCHING_UP:
            self._prices.read.observe(max(seconds - n * draft.value, 0.0) / self._behind)
        elif n:
            draft.observe(seconds / n)


class Chains(CandidateSource):
    """Chains of a draft model, which end by the stop rule. `shape` limits them, `draw` is how tokens are drawn."""

    def __init__(
        self,
        name: str,
        prices: Prices,
        acceptance: Acceptance,
        shape: Shape,
        draw: Draw,
        reader: Reader | None = None,
    ) -> None:
        super().__init__(name)
        self._prices = prices
        self._acceptance = acceptance
        self._longest = shape.depth
        self._draw = draw
        self._reading = Reading(prices, reader)
        self._worth: Average | None = None  # of drafts of late, by their stop rules
        self._stop: StopRule | None = None

    def candidate(self, now: Now) -> Candidate | None:
        """Return a chain, valued by what chains were worth of late; none where even perfect drafts would lose."""
        self._stop = None
        if now.value * (self._prices.least + self._prices.draft.value) >= 1.0:
            return None
        reading, longest = self._reading.look(now)
        longest = min(longest, self._longest)
        draft = self._prices.draft.value
        best = now.best(np.full(longest, self._acceptance.mean), draft, reading) if longest > 0 else None
        if best is None:
            return None
        worth = best.value if self._worth is None else self._worth.value
        passes = min(HORIZON, now.left / (1.0 + best.tokens))
        expects = (1.0 + best.tokens, now.seconds(best.length) + draft * best.length + reading)
        plan, stop = self._chain(now, now.affordable(draft * np.arange(1, longest + 1) + reading))
        plan = replace(plan, expects=expects, why=f"{self.name}, about {best.length}")
        return Candidate(plan, worth - now.value * reading / passes, stop)

    def explored(self, now: Now) -> Candidate | None:
        """Return a chain of one token or more, where it is due and perfect drafts would pay."""
        draft, plain = self._prices.draft.value, now.prices.plain
        if draft > EXPLORING * self._acceptance.waited * plain:
            return None
        reading, longest = self._reading.look(now)
        n = np.arange(1, min(longest, self._longest) + 1)
        if np.all(n <= now.value * (self._prices.beyond(len(n)) + draft * n)):
            return None
        price = (draft + reading) / plain + self._prices.ratio(2) - 1.0
        longest = now.affordable(draft * n + reading)
        if not longest or price > EXPLORING * self._acceptance.waited or price > max(EPS * now.left, 1.0):
            return None
        plan, stop = self._chain(now, longest, forced=1)
        return Candidate(replace(plan, why="explores whether drafts pay"), 0.0, stop)

    def _chain(self, now: Now, longest: int, forced: int = 0) -> tuple[Plan, StopRule]:
        """Return the plan of a chain of `longest` tokens at most, and the rule that ends it."""
        plain, value = now.prices.plain, now.value
        rows = [value * plain, *(value * (plain + now.prices.beyond(longest))).tolist()]
        draft = [value * self._prices.draft.value * n for n in range(longest + 1)]
        scatter = plain / (2.0 * now.may_lose)
        stop = StopRule(self._acceptance, self._acceptance.mean, rows, draft, scatter, forced)
        rules = stop.go_on, stop.look_on, stop.widen
        return Plan(self.name, longest, longest, self._draw, *rules, self._acceptance), stop

    def take(self, stop: StopRule | None) -> None:
        """Note that the chain with this stop rule is drafted."""
        self._stop = stop

    def observe(self, step: Step) -> None:
        """Learn acceptance, the price of drafting, and what drafts are worth."""
        if step.drafter != self.name or self._stop is None:
            self._acceptance.waited += 1.0
            return
        stop = self._stop
        self._reading.observe(step.times.draft, stop.looked, self._prices.draft)
        self._acceptance.observe(step)
        self._acceptance.waited = math.inf if stop.value > 0.0 else 0.0  # what was worth it is explored again at once
        if self._worth is None:
            self._worth = Average(stop.value, 1)
        else:
            self._worth.follow(stop.value)


class Rule(CandidateSource):
    """The plans of a tree or a length rule that was asked for, cut to the nodes that can be lost."""

    def __init__(
        self, name: str, prices: Prices, inner: Controller, acceptance: Acceptance, reader: Reader | None
    ) -> None:
        super().__init__(name)
        self._inner = inner
        self._prices = prices
        self._acceptance = acceptance
        self._level = Average(prices.draft.value, 1)  # seconds of one level of a tree: one pass of the draft model
        self._reading = Reading(prices, reader)

    def candidate(self, now: Now) -> Candidate | None:
        """Return the rule's plan; what it is worth is not judged."""
        plan = replace(self._inner.plan(now.history, now.budget), learned=self._acceptance)
        reading, left = self._reading.look(now)
        n = min(plan.max_nodes, left)
        if n <= 0:
            return None
        nodes = now.affordable(self._level.value * np.minimum(np.arange(1, n + 1), plan.max_depth) + reading)
        if not nodes:
            return None
        return Candidate(replace(plan, max_nodes=nodes, max_depth=min(plan.max_depth, nodes)), math.inf)

    def observe(self, step: Step) -> None:
        """Learn acceptance and the price of a level."""
        if step.drafter == self.name:
            self._reading.observe(step.times.draft, step.draft.depth, self._level)
        self._acceptance.observe(step)
        self._inner.observe(step, 0.0)


class Auto:
    """Plans every pass of an answer from `sources`; `idle` names the drafter of plain passes."""

    def __init__(self, prices: Prices, sources: Sequence[CandidateSource], idle: str = "plain") -> None:
        self._prices = prices
        self._sources = sources
        self._idle = idle
        self.account = LossAccount()
        self._read = 0.0  # seconds in which the target read the prompt, until the account has them
        self._tokens = self._seconds = 0.0  # of late
        self._follows_plain = False
        self._why = ""  # the last reason to draft nothing
        self._drafted: dict[str, list[int]] = {}  # tokens drafted and accepted, by drafter

    def credit_reading(self, seconds: float) -> None:
        """Let the answer lose a share of the time in which the target read the prompt."""
        self._read = seconds

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Return the plan of the next pass."""
        most = min(budget.depth, budget.nodes)
        if most <= 0:
            return Plan(self._idle, why="no room for a draft")
        if not self._prices.is_known:
            return self._plain("plain decoding is not measured yet")
        price = self._prices.plain
        if self._read:
            self.account.reading, self._read = READING * self._read / price, 0.0
        may_lose = self.account.remaining * price
        if may_lose <= 0.0:
            return self._plain("drafting has used up the time that it may lose")
        value = max(self._tokens / self._seconds, 1.0 / price) if self._seconds else 1.0 / price
        now = Now(
            history,
            budget,
            self._prices,
            value,
            may_lose,
            self.account.caution * price,
            min(most, MOST_DRAFTED),
            budget.depth + 1,
        )
        found = [(one.value, source, one) for source in self._sources if (one := source.candidate(now)) is not None]
        worth, source, best = max(found, key=lambda one: one[0], default=(0.0, None, None))
        if source is None or best is None or worth <= 0.0:
            lent = replace(now, may_lose=min(may_lose, self.account.stake * price))
            source, best = next(((one, draft) for one in self._sources if (draft := one.explored(lent))), (None, None))
        if source is None or best is None:
            return self._plain("no draft would pay off here")
        if isinstance(source, Chains):
            source.take(best.stop)
        return replace(best.plan, widths=self._widths(best.plan.max_nodes, budget.nodes))

    def observe(self, step: Step, seconds: float) -> None:
        """Learn from a pass that took `seconds` to the end of telling it, and charge it."""
        n, times = len(step.draft), step.times
        target = seconds - times.draft - times.planning  # with its sampling and telling
        known = self._prices.of(1 + n) if self._prices.is_known else target
        charged = times.sample + min(target - times.sample, CLAMP * known) + times.planning + times.draft
        is_plain = n == 0 and not step.drafter
        if is_plain and self._follows_plain:
            self._prices.observe_plain(target)
        price = max(self._prices.plain, 1e-9) if self._prices.is_known else max(seconds, 1e-9)
        if is_plain:
            self.account.charge_plain(charged, times.planning, price)
        else:
            self.account.charge(charged, len(step.tokens), price)
        if n:
            counts = self._drafted.setdefault(step.drafter, [0, 0])
            counts[0] += step.n_drafted
            counts[1] += step.n_accepted
        if n and self._prices.is_known:
            self._prices.observe(1 + n, target)
        self._follows_plain = is_plain
        self._tokens = DISCOUNT * self._tokens + len(step.tokens)
        self._seconds = DISCOUNT * self._seconds + charged
        for source in self._sources:
            source.observe(step)

    @property
    def overdrawn_ms(self) -> float | None:
        """Milliseconds by which the bound was exceeded at worst, None where nothing was ever charged."""
        return None if math.isinf(self.account.overdrawn) else 1e3 * self.account.overdrawn

    def verdict(self) -> str:
        """Return what was drafted, for people; "" where no pass was planned."""
        if not self._drafted:
            return f"nothing was drafted: {self._why}" if self._why else ""
        return "; ".join(
            f"{name} drafted {n} tokens, {100 * kept / n:.0f} % of them were accepted"
            for name, (n, kept) in sorted(self._drafted.items(), key=lambda one: -one[1][0])
        )

    def _plain(self, why: str) -> Plan:
        self._why = why
        return Plan(self._idle, why=why)

    def _widths(self, longest: int, nodes: int) -> tuple[int, ...]:
        """Return the rows of passes that verify 0 to `longest` tokens; the cache has room for so many nodes."""
        wanted = (self._prices.padded(1 + n) for n in range(longest + 1))
        return tuple(rows if rows <= 1 + nodes else 1 + n for n, rows in enumerate(wanted))
