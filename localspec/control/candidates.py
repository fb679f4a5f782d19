"""Where the planner's candidates come from: copies of the text, chains of a draft model, a tree or a length rule.

Each source offers the best draft that can be afforded, with its value, and learns from every pass. Times are seconds.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.control.prices import MAX_ROWS, Average, Prices, best_chain, break_even
from localspec.control.value import Candidate, Now, StopRule
from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Draw, Step
from localspec.engine.events import NOT_YET
from localspec.engine.protocols import Controller, History, Plan, Shape
from localspec.settings.sizes import counted, three_digits
from localspec.tuning import EPS, EXPLORING, HORIZON

CATCHING_UP = 8  # tokens that a draft model reads as part of any draft; more are priced by themselves
MOST_DRAFTED = MAX_ROWS - 1  # tokens of a draft
DEAR = "here a guess costs more to check than it can save"
TOO_FEW = "too few guesses would have been right to save time"
EARLY = "a wrong guess would have cost too much this early"
NOTHING = "the text repeated nothing that could be copied"


class ModelReader(Protocol):
    """A drafter with a model of its own, which reads what it has not seen of the text before it drafts."""

    def behind(self, history: History) -> int: ...
    def ready(self, history: History) -> int: ...
    def tokens_left(self, history: History) -> int: ...


class Copier(Protocol):
    """A drafter that copies from the text; `chances` says how likely each token of a copy is right."""

    def chances(self, history: History, most: int) -> NDArray[np.float64]: ...


class CandidateSource(ABC):
    """Where candidates come from. `name` is the drafter that carries their plans out. `can_follow`: it can draft behind
    forced tokens, which the target has not evaluated. `is_asked`: a person gave it something to draft from, and is told
    why it drafted nothing."""

    def __init__(self, name: str, *, can_follow: bool = True, is_asked: bool = False) -> None:
        self.name = name
        self.can_follow = can_follow
        self.is_asked = is_asked

    @abstractmethod
    def candidate(self, now: Now) -> Candidate | None:
        """Return the best draft that can be afforded, None without one."""

    def explored(self, now: Now) -> Candidate | None:
        """Return a draft that only teaches, None where none is due."""
        return None

    def why_not(self) -> tuple[str, str]:
        """Return why it drafts nothing, in a few words and by what was measured; "" twice where nothing was."""
        return "", ""

    def observe(self, step: Step) -> None:  # noqa: B027 - most learn elsewhere
        """Learn from a pass, whoever drafted in it."""


class Copies(CandidateSource):
    def __init__(self, name: str, prices: Prices, copier: Copier, longest: int, *, is_asked: bool = False) -> None:
        super().__init__(name, is_asked=is_asked)
        self._prices = prices
        self._copier = copier
        self._longest = longest
        self._likeliest: float | None = None  # of the first tokens of copies; None before the first look
        self._is_barred = False  # whether a wrong copy would have cost more than may be lost

    def candidate(self, now: Now) -> Candidate | None:
        chances = self._copier.chances(now.history, min(now.most, self._longest))
        self._likeliest = max(self._likeliest or 0.0, float(chances[0]) if len(chances) else 0.0)
        if not len(chances) or chances[0] <= now.value * self._prices.least:
            return None  # soon, for it is so in most passes of ordinary text
        best = now.best(chances, 0.0, caution=now.caution)
        self._is_barred |= best is None
        if best is None:
            return None
        k, expects = best.length, (1.0 + now.forced + best.tokens, now.seconds(best.length))
        return Candidate(Plan(self.name, k, k, Draw.FIXED, expects=expects, why=f"{self.name} {k}"), best.value)

    def why_not(self) -> tuple[str, str]:
        if not self._prices.is_known:
            return "", ""
        plain, each, likeliest = self._prices.plain, self._prices.least, self._likeliest
        token = "a token copied from the prediction or the text" if self.is_asked else "a copied token"
        price = f"{token} adds at least {three_digits(1e3 * each)} ms to a pass of {three_digits(1e3 * plain)} ms"
        needed = f"{price}, so copies pay only if {math.ceil(100 * each / plain)} % of their tokens are right"
        if each >= plain:
            return DEAR, f"{price}, so no copy pays, even if all of it is right"
        if not likeliest:
            return (TOO_FEW, needed) if likeliest is None else (NOTHING, f"{needed}; nothing was found to copy")
        likely = f"the best copy was right with a chance of {(right := math.floor(100 * likeliest))} %"
        if likeliest * plain > each:
            wins, lost = 1e3 * (likeliest * plain - each), f"{three_digits(1e3 * each)} ms {100 - right} % of the time"
            risk = f"it would win {three_digits(wins)} ms on average, but lose {lost}: not worth the risk"
            likely += f", but a wrong one would cost {NOT_YET}" if self._is_barred else f"; {risk}"
        short = EARLY if self._is_barred else TOO_FEW
        return short, f"{needed}; {likely}; --method copy copies all the same"


class DraftPrefill:
    """What the draft model of `reader` must read of the text before it drafts; nothing where `reader` is None. `ready`
    are the tokens that it can draft without a pass, which it made while the target elsewhere judged."""

    def __init__(self, prices: Prices, reader: ModelReader | None) -> None:
        self._prices = prices
        self._reader = reader
        self._behind, self.ready = 1, 0

    def look(self, now: Now) -> tuple[float, int]:
        """Return the seconds of reading, and how many tokens a draft may have by the draft model's own context."""
        if self._reader is None:
            return 0.0, now.most
        self.ready = self._reader.ready(now.history)
        self._behind = 0 if self.ready else self._reader.behind(now.history)
        left = min(now.most, self._reader.tokens_left(now.history))
        return (self._prices.read.value * self._behind if self._behind > CATCHING_UP else 0.0), left

    def observe(self, seconds: float, n: int, draft: Average) -> None:
        n -= self.ready
        if self._behind > CATCHING_UP:
            self._prices.read.observe(max(seconds - n * draft.value, 0.0) / self._behind)
        elif n > 0:
            draft.observe(seconds / n)

    def seconds(self, n: int, each: float) -> NDArray[np.float64]:
        return each * np.maximum(np.arange(1, n + 1) - self.ready, 0)


@dataclass(frozen=True, slots=True)
class ChainLimits:
    """How long a chain may be, the seconds [longest] of its pass beyond a plain one, and what changing to it costs.
    `widths` are the rows of the pass by drafted tokens, () where it has as many as it needs."""

    longest: int
    beyond: NDArray[np.float64]
    change: float = 0.0
    widths: tuple[int, ...] = ()


class KeptWidth:
    """The one width that chains are padded to where a change of width is dear: it is kept for HORIZON passes."""

    def __init__(self, prices: Prices, acceptance: Acceptance) -> None:
        self._prices = prices
        self._acceptance = acceptance
        self._width, self._kept = 0, 0  # rows of the last chain's pass, and how many passes had as many

    def limits(self, longest: int, now: Now) -> ChainLimits:
        prices, value = self._prices, now.value
        if longest <= 0 or not prices.change:
            return ChainLimits(longest, now.beyond(max(longest, 0)))
        width = self._width
        if width != prices.width or self._kept % HORIZON == 0 or width > 1 + longest:
            n = np.arange(1, longest + 1)
            tokens = np.cumsum(self._acceptance.mean**n)
            width = 2 + int(np.argmax(tokens - value * (prices.steady(longest) + prices.draft.value * n)))
        change = 0.0 if width == prices.width and prices.is_steady else prices.change
        return ChainLimits(width - 1, np.full(width - 1, prices.steady(width - 1)[-1]), change, (width,) * width)

    def observe(self, width: int) -> None:
        self._kept = self._kept + 1 if width == self._width else 1
        self._width = width


class Chains(CandidateSource):
    """Chains of a draft model, which end by the stop rule. `shape` limits them, `draw` is how tokens are drawn."""

    def __init__(
        self,
        name: str,
        prices: Prices,
        acceptance: Acceptance,
        shape: Shape,
        draw: Draw,
        reader: ModelReader | None = None,
        *,
        can_follow: bool = True,
    ) -> None:
        super().__init__(name, can_follow=can_follow, is_asked=True)  # it was loaded
        self._prices = prices
        self._acceptance = acceptance
        self._longest = shape.depth
        self._draw = draw
        self._prefill = DraftPrefill(prices, reader)
        self._kept_width = KeptWidth(prices, acceptance)
        self._worth: Average | None = None  # of drafts of late, by their stop rules
        self._stop: StopRule | None = None  # of the plan made last: where a chain is drafted, it is by that plan

    def candidate(self, now: Now) -> Candidate | None:
        """Return a chain, valued by what chains were worth of late; none where even perfect drafts would lose."""
        draft = self._prices.draft.value
        reading, longest = self._prefill.look(now)
        ready = self._prefill.ready
        is_poor = self._worth is not None and self._worth.value <= 0.0
        if not ready and (is_poor or now.value * (self._prices.least + draft) >= 1.0):
            return None
        limits = self._kept_width.limits(min(longest, self._longest), now)
        if limits.longest <= 0:
            return None
        once = reading + limits.change
        chances = np.full(limits.longest, self._acceptance.mean)
        best = now.best(chances, draft, once, beyond=limits.beyond, ready=ready)
        if best is None:
            return None
        worth = best.value if self._worth is None or ready else self._worth.value
        passes = min(HORIZON, now.left / (1.0 + best.tokens))
        plan = self._plan(now, limits, self._affordable(now, limits, once))
        seconds = now.seconds(best.length) + draft * max(best.length - ready, 0) + reading
        plan = replace(plan, expects=(1.0 + now.forced + best.tokens, seconds), why=f"{self.name}, about {best.length}")
        return Candidate(plan, worth - now.value * once / passes)

    def explored(self, now: Now) -> Candidate | None:
        draft, plain, most = self._prices.draft.value, now.prices.plain, EXPLORING * self._acceptance.waited
        if draft > most * plain:
            return None
        reading, longest = self._prefill.look(now)
        n = np.arange(1, min(longest, self._longest) + 1)
        if (n <= now.value * (self._prices.steady(len(n)) + draft * n)).all():
            return None
        limits = self._kept_width.limits(len(n), now)
        once = reading + limits.change
        rows = limits.widths[1] if limits.widths else 2
        price = (draft + once) / plain + self._prices.ratio(rows) - 1.0  # of a chain of one token, in plain passes
        affordable = self._affordable(now, limits, once)
        if not affordable or price > most or price > max(EPS * now.left, 1.0):
            return None
        plan = self._plan(now, limits, affordable, forced=1)
        return Candidate(replace(plan, why="explores whether drafts pay"), 0.0)

    def why_not(self) -> tuple[str, str]:
        draft = self._prices.draft.value
        if not draft or not self._prices.is_known:
            return "", ""
        least, known = break_even(self._prices, draft), self._acceptance.measured
        k = 1 if least is None else best_chain(self._prices, draft, least)[0]
        both = 1e3 * (k * draft + self._prices.of(self._prices.padded(1 + k)))
        ms, same = 1e3 * self._prices.plain, f"--method {self.name} drafts all the same"
        price = f"a pass with {counted(k, 'guess')} takes {three_digits(both)} ms"
        if least is None:
            plain = f"two plain passes take {three_digits(2 * ms)} ms, so no guess pays, even if it is right"
            return DEAR, f"{price} and brings 2 tokens at best, and {plain}; {same}"
        needed = f"{price}, a plain pass {three_digits(ms)} ms, so guesses pay only if {100 * least:.0f} % are right"
        barred = f", but a wrong one would cost {NOT_YET}" if known is not None and known > least else ""
        right = "" if known is None else f"; {100 * known:.0f} % were{barred}"
        return EARLY if barred else TOO_FEW, f"{needed}{right}; {same}"

    def _affordable(self, now: Now, limits: ChainLimits, once: float) -> int:
        return now.affordable(self._prefill.seconds(limits.longest, self._prices.draft.value) + once, limits.beyond)

    def _plan(self, now: Now, limits: ChainLimits, longest: int, forced: int = 0) -> Plan:
        plain, value = now.prices.plain, now.value
        rows = [value * plain, *(value * (plain + limits.beyond[:longest])).tolist()]
        draft = [0.0, *(value * self._prefill.seconds(longest, self._prices.draft.value)).tolist()]
        scatter = plain / (2.0 * now.may_lose)
        self._stop = stop = StopRule(self._acceptance, self._acceptance.mean, rows, draft, scatter, forced)
        rules = stop.go_on, stop.look_on, stop.widen
        widths = limits.widths[: longest + 1]
        return Plan(self.name, longest, longest, self._draw, *rules, self._acceptance, widths=widths)

    def observe(self, step: Step) -> None:
        if step.drafter != self.name:
            self._acceptance.wait()
            return
        stop = self._stop
        assert stop is not None, "who drafts was planned"
        self._kept_width.observe(1 + len(step.draft))
        self._prefill.observe(step.times.draft, stop.looked, self._prices.draft)
        self._acceptance.observe(step)
        self._acceptance.rest(is_due=stop.value > 0.0)  # what was worth it is explored again at once
        if self._worth is None:
            self._worth = Average(stop.value, 1)
        else:
            self._worth.follow(stop.value)


class RuleCandidates(CandidateSource):
    """The plans of a tree or a length rule that was asked for, cut to the nodes that can be lost."""

    def __init__(
        self,
        name: str,
        prices: Prices,
        inner: Controller,
        acceptance: Acceptance,
        reader: ModelReader | None,
        *,
        can_follow: bool = True,
    ) -> None:
        super().__init__(name, can_follow=can_follow)
        self._inner = inner
        self._prices = prices
        self._acceptance = acceptance
        self._level = Average(prices.draft.value, 1)  # seconds of one level of a tree: one pass of the draft model
        self._prefill = DraftPrefill(prices, reader)

    def candidate(self, now: Now) -> Candidate | None:
        plan = replace(self._inner.plan(now.history, now.budget), learned=self._acceptance)
        reading, left = self._prefill.look(now)
        n = min(plan.max_nodes, left)
        if n <= 0:
            return None
        nodes = now.affordable(self._level.value * np.minimum(np.arange(1, n + 1), plan.max_depth) + reading)
        if not nodes:
            return None
        return Candidate(replace(plan, max_nodes=nodes, max_depth=min(plan.max_depth, nodes)), math.inf)

    def observe(self, step: Step) -> None:
        if step.drafter == self.name:
            self._prefill.observe(step.times.draft, step.depth, self._level)
        self._acceptance.observe(step)
        self._inner.observe(step, 0.0)
