"""The planner: draft as much as pays, nothing where nothing pays, and never lose more than the account allows.

    plan = the candidate of the greatest value (value.py), if that is above 0 and the account can bear its loss

Forced tokens, each the only one that the answer's form allows, go first: they are certain, so rows are all they cost.
Candidates are copies of the text, chains of a draft model, or the one plan of a tree or length rule that was asked for.
Plans depend on past passes and on distributions before the draw, so every verifier stays exact; a coupled token may be
looked at first. All times are in seconds.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from localspec.control.account import LossAccount
from localspec.control.candidates import MOST_DRAFTED, CandidateSource
from localspec.control.prices import MAX_ROWS, Prices
from localspec.control.value import Now
from localspec.engine.constraint import Ahead
from localspec.engine.draft import Step
from localspec.engine.protocols import DraftBudget, History, Plan
from localspec.settings.sizes import counted
from localspec.tuning import CLAMP, DISCOUNT, PLANNING, READING


class Auto:
    """Plans every pass of an answer from `sources`; `idle` names the drafter of plain passes. The time of a pass is
    steady after `settles` passes of its width."""

    def __init__(
        self, prices: Prices, sources: Sequence[CandidateSource], idle: str = "plain", settles: int = 1
    ) -> None:
        self._prices = prices
        self._settles = settles
        self._sources = sources
        self._idle = idle
        self.account = LossAccount()
        self._read = 0.0  # seconds in which the target read the prompt, until the account has them
        self._tokens = self._seconds = 0.0  # of late
        self._alike = 0  # passes of the last one's width, up to it
        self._why = ""  # the last reason to draft nothing
        self._rest = 0.0  # passes that will be plain without a look: so planning takes PLANNING of the time at most
        self._is_look = False  # whether the pass under way was planned, and nothing found
        self._looked = 0.0  # seconds of the last such look
        self._drafted: dict[str, list[int]] = {}  # tokens drafted and accepted, by drafter

    def credit_reading(self, seconds: float) -> None:
        self._read = seconds

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        if not budget.forced or not self._prices.is_known:
            return self._drafted_plan(history, budget)
        self._prices.at(len(history.tokens))
        beyond = self._prices.beyond(len(budget.forced))
        gain = np.arange(1, len(beyond) + 1) - self._value * beyond
        n = int(np.argmax(gain)) + 1
        if gain[n - 1] <= 0.0:
            return self._drafted_plan(history, budget)
        run = budget.forced[:n]
        if n < len(beyond):
            plan = Plan(self._idle, why="more tokens are forced after these")
        else:
            plan = self._drafted_plan(Ahead([*history.tokens, *run]), budget.after(run), n)
        expects = plan.expects or (1.0 + n, self._prices.plain + float(beyond[n - 1]))
        return replace(plan, forced=run, expects=expects, widths=plan.widths or self._widths(n, n))

    @property
    def _value(self) -> float:
        if self._prices.others:
            n = 1 + self._prices.others
            return n / self._prices.of(n)
        least = 1.0 / self._prices.plain
        return max(self._tokens / self._seconds, least) if self._seconds else least

    def _drafted_plan(self, history: History, budget: DraftBudget, forced: int = 0) -> Plan:
        if self._rest >= 1.0:
            self._rest -= 1.0
            return Plan(self._idle, why=self._why)
        most = min(budget.depth, budget.nodes, MOST_DRAFTED - forced)
        if most <= 0:
            return Plan(self._idle, why="the answer or the context has no room for a draft")
        if not self._prices.is_known:
            return self._plain("plain decoding is not timed yet")
        self._prices.at(len(history.tokens))
        price = self._prices.plain
        self.account.lend(self._settles * self._prices.change / price, READING * self._read / price)
        self._read = 0.0
        may_lose = self.account.remaining * price
        if self._prices.width > 1:
            may_lose -= self._prices.change  # the way back to plain passes
        if may_lose <= 0.0:
            return self._plain("wrong guesses have used up the time that they may lose")
        now = Now(
            history,
            budget,
            self._prices,
            self._value,
            may_lose,
            self.account.caution * price,
            most,
            budget.depth + 1,
            forced,
        )
        sources = [source for source in self._sources if source.can_follow] if forced else self._sources
        candidates = [candidate for source in sources if (candidate := source.candidate(now)) is not None]
        best = max(candidates, key=lambda candidate: candidate.value, default=None)
        if best is None or best.value <= 0.0:
            lent = replace(now, may_lose=min(may_lose, self.account.stake * price))
            best = next((candidate for source in sources if (candidate := source.explored(lent)) is not None), None)
        if best is None:
            return self._plain("no guess was likely to win back the time that it takes")
        widths = best.plan.widths or self._widths(forced + best.plan.max_nodes, forced + budget.nodes)
        return replace(best.plan, widths=widths)

    @contextmanager
    def beside(self, n: int) -> Iterator[None]:
        """Plan within this for passes that have rows of `n` other answers."""
        with self._prices.beside(n):
            yield

    def count_accepted(self, step: Step) -> None:
        if step.n_drafted:
            self._count(step)
        for source in self._sources:
            source.observe(step)

    def _count(self, step: Step) -> None:
        counts = self._drafted.setdefault(step.drafter, [0, 0])
        counts[0] += step.n_drafted
        counts[1] += step.n_accepted

    def observe(self, step: Step, seconds: float) -> None:
        """Learn from a pass that took `seconds` to the end of telling it, and charge it."""
        n, rows, times = step.n_drafted, min(step.rows, MAX_ROWS), step.times
        target = seconds - times.draft - times.planning  # with its sampling and telling
        known = self._prices.of(rows) if self._prices.is_known else target
        charged = times.sample + min(target - times.sample, CLAMP * known) + times.planning + times.draft
        is_plain = rows == 1 and not step.drafter
        was_alike = self._alike if self._prices.width == rows else 0
        is_steady = was_alike >= self._settles
        if is_plain and is_steady:
            self._prices.observe_plain(target)
        price = max(self._prices.plain, 1e-9) if self._prices.is_known else max(seconds, 1e-9)
        if is_plain and (is_steady or self._settles == 1 or not self._drafted):
            self.account.charge_plain(charged, times.planning, price)
        else:
            self.account.charge(charged, len(step.tokens), price)
        if not n:
            self._look_later(times.planning, price)
        else:
            self._rest = 0.0
            self._count(step)
        is_priced = not step.draft.forced  # rows before forced tokens have no logits: they cost less than others
        if rows > 1 and is_priced and self._prices.is_known and (is_steady or self._settles == 1):
            self._prices.observe(rows, target)
        self._alike = was_alike + 1
        self._prices.ran(rows, is_steady=self._alike >= self._settles)
        self._tokens = DISCOUNT * self._tokens + len(step.tokens)
        self._seconds = DISCOUNT * self._seconds + charged
        for source in self._sources:
            source.observe(step)

    @property
    def overdrawn_ms(self) -> float | None:
        """Milliseconds by which the bound was exceeded at worst, None where nothing was ever charged."""
        return None if math.isinf(self.account.overdrawn) else 1e3 * self.account.overdrawn

    def findings(self) -> tuple[str, str]:
        silent = [source for source in reversed(self._sources) if source.name not in self._drafted]  # copies last
        why_not = [(source, *reason) for source in silent if (reason := source.why_not())[1]]
        if not self._drafted:
            if not self._why or not why_not:
                return f"nothing was guessed: {self._why or 'the answer ended while plain decoding was timed'}", ""
            causes = [cause for source, _, cause in why_not if source.is_asked or source is why_not[0][0]]
            return f"nothing was guessed: {why_not[0][1]}", "; ".join(causes)
        drafted = [
            f"{name} made {counted(n, 'guess')}, {_fate(n, accepted)}"
            for name, (n, accepted) in sorted(self._drafted.items(), key=lambda entry: -entry[1][0])
        ]
        silent_ones = (f"{each.name} made no guess: {cause}" for each, _, cause in why_not if each.is_asked)
        return "; ".join(drafted), "; ".join(silent_ones)

    def _look_later(self, planning: float, price: float) -> None:
        """Rest after a look that found nothing, the longer the dearer it was; one slow look counts for nothing."""
        if self._is_look:
            share = min(self._looked, planning) / (PLANNING * price)
            self._is_look, self._looked, self._rest = False, planning, max(self._rest + share - 1.0, 0.0)

    def _plain(self, why: str) -> Plan:
        self._why, self._is_look = why, True
        return Plan(self._idle, why=why)

    def _widths(self, longest: int, nodes: int) -> tuple[int, ...]:
        """Return the rows of passes that verify 0 to `longest` tokens; the cache has room for so many nodes."""
        wanted = (self._prices.padded(1 + n) for n in range(longest + 1))
        return tuple(rows if rows <= 1 + nodes else 1 + n for n, rows in enumerate(wanted))


def _fate(n: int, accepted: int) -> str:
    if n == 1:
        return "which was right" if accepted else "which was wrong"
    return f"{accepted} of them right"
