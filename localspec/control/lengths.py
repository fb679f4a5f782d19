"""Draft-length rules that people ask for by name (`--length`): from papers and guides, each with its own numbers.

All are exact under every rule. They see past passes, and a gate sees the draft's distribution *before* a token is drawn
from it. The popular variant that draws a token and drops it when it is improbable changes the output's distribution by
a tenth and more.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draw, Step
from localspec.engine.protocols import DraftBudget, DraftState, History, Plan, Shape
from localspec.errors import UsageError

START, LOWEST, HIGHEST = 6, 3, 12  # tokens, of `aimd`
GOOD, BAD = 0.8, 0.4
FIRST_THETA, GOAL, THETA_STEP = 0.8, 0.9, 0.01  # of `adaptive`


class Fixed:
    """Always the same shape from one drafter."""

    name: ClassVar[str] = "fixed"

    def __init__(self, drafter: str, shape: Shape, draw: Draw) -> None:
        self._drafter = drafter
        self._shape = shape
        self._draw = draw

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Self:
        """Take no argument: the length is -k."""
        no_argument("fixed", argument, hint="--length fixed -k 4")
        return cls(drafter, shape, draw)

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Clamp to `budget`: near the end a pass drafts less, the last one nothing."""
        depth = min(self._shape.depth, budget.depth)
        nodes = min(self._shape.nodes, budget.nodes) if depth > 0 else 0
        return Plan(self._drafter, nodes, depth, self._draw, why=f"fixed {self._shape.nodes}")

    def observe(self, step: Step, seconds: float) -> None:
        """A fixed plan learns nothing."""


class Aimd:
    """A token more after a pass that kept 80 % of its draft, one less after 40 %; from 3 to 12, or to -k.

        r = accepted / drafted;   r >= 0.8: K <- K + 1, at most 12;   r <= 0.4: K <- K - 1, at least 3;   K = 6 at first

    The rule of thumb of many guides. It does not know what a token costs and never stops drafting altogether.
    """

    name: ClassVar[str] = "aimd"

    def __init__(self, drafter: str, shape: Shape, draw: Draw, *, start: int = START, lowest: int = LOWEST) -> None:
        self._drafter = drafter
        self._shape = shape
        self._draw = draw
        self._highest = min(HIGHEST, shape.depth)
        self._lowest = min(lowest, self._highest)
        self._k = min(start, self._highest)

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Self:
        no_argument("aimd", argument, hint="--length aimd")
        return cls(drafter, shape, draw)

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        depth = min(self._k, budget.depth)
        nodes = min(self._shape.nodes, budget.nodes) if depth > 0 else 0
        return Plan(self._drafter, nodes, depth, self._draw, why=f"aimd {self._k}")

    def observe(self, step: Step, seconds: float) -> None:
        """Change K by one, or leave it; a pass without a draft says nothing."""
        drafted = step.depth
        if drafted == 0:
            return
        ratio = step.n_right / drafted
        if ratio >= GOOD:
            self._k = min(self._k + 1, self._highest)
        elif ratio <= BAD:
            self._k = max(self._k - 1, self._lowest)


class Gate(Fixed):
    """A fixed shape that stops growing where `is_sure` says no.

    A gate judges how sure the draft model is at temperature 1, whatever temperature tokens are drawn with: at
    temperature 0 they are drawn from a point mass, which is always sure.
    """

    name: ClassVar[str]
    default: ClassVar[float]
    high: ClassVar[float]

    def __init__(self, drafter: str, shape: Shape, draw: Draw, limit: float) -> None:
        super().__init__(drafter, shape, draw)
        self.limit = limit

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Self:
        """Take the limit as argument; -k is the most it drafts."""
        return cls(drafter, shape, draw, number(cls.name, argument, default=cls.default, low=0.0, high=cls.high))

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Plan the whole shape, with the gate in front of every draw."""
        return replace(super().plan(history, budget), go_on=self._go_on, why=f"{self.name} {self.limit:g}")

    @abstractmethod
    def is_sure(self, dist: Distribution) -> bool:
        """Whether a token may be drawn from `dist`."""

    def _go_on(self, state: DraftState) -> bool:
        return self.is_sure(state.dist.belief)


class Confidence(Gate):
    """Draft while the most probable token has at least this probability (0.4)."""

    name, default, high = "confidence", 0.4, 1.0

    def is_sure(self, dist: Distribution) -> bool:
        """Whether the greatest probability reaches the limit."""
        return dist.top >= self.limit


class Entropy(Gate):
    """Draft while the entropy of the draft's distribution is at most this many nats (1.73, which is 2.5 bits)."""

    name, default, high = "entropy", 1.73, 100.0

    def is_sure(self, dist: Distribution) -> bool:
        """Whether the distribution is narrow enough."""
        return dist.entropy <= self.limit


class Margin(Gate):
    """Draft while the most probable token leads the second by at least this much probability (0.2)."""

    name, default, high = "margin", 0.2, 1.0

    def is_sure(self, dist: Distribution) -> bool:
        """Whether the first is far enough ahead."""
        second = float(np.partition(dist.probs, -2)[-2]) if dist.probs.size > 1 else 0.0
        return dist.top - second >= self.limit


class Adaptive(Fixed):
    """Draft until a token was less probable than a threshold, which follows the acceptance (from 0.8 on).

    Draft & Verify's adaptive stop (Zhang et al. arXiv 2309.08168), for a pass that kept the share m of its draft:

        M <- (M + m) / 2
        theta' = theta + 0.01 if M < 0.9, theta if the draft was as long as allowed, else theta - 0.01
        theta <- 0.9 theta + 0.1 theta'

    The improbable token is drafted too: whether the *next* one is drawn may depend on it, whether it counts may not.
    """

    name: ClassVar[str] = "adaptive"

    def __init__(self, drafter: str, shape: Shape, draw: Draw, threshold: float = FIRST_THETA) -> None:
        super().__init__(drafter, shape, draw)
        self.threshold = threshold
        self._matched = GOAL

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Self:
        """Take the first threshold as argument; -k is the most it drafts."""
        return cls(drafter, shape, draw, number("adaptive", argument, default=FIRST_THETA, low=0.0, high=1.0))

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Plan the whole shape, to be left below improbable tokens."""
        threshold = self.threshold
        return replace(
            super().plan(history, budget),
            go_on=lambda state: state.chance >= threshold,
            why=f"adaptive {threshold:.3f}",
        )

    def observe(self, step: Step, seconds: float) -> None:
        """Let the threshold follow the share of the draft that was kept."""
        drafted = step.depth
        if drafted == 0:
            return
        self._matched = (self._matched + step.n_right / drafted) / 2
        change = THETA_STEP if self._matched < GOAL else 0.0 if drafted >= self._shape.depth else -THETA_STEP
        self.threshold = min(1.0, max(0.0, self.threshold + 0.1 * change))  # above 1 nothing would be drafted again


def no_argument(rule: str, argument: str, hint: str) -> None:
    """Refuse an argument."""
    if argument:
        raise UsageError(f"--length {rule} takes no argument, not {argument!r}", hint=hint)


def number(rule: str, argument: str, *, default: float, low: float, high: float) -> float:
    """Return the number that `argument` spells, `default` where there is none; raises UsageError."""
    if not argument:
        return default
    try:
        value = float(argument)
    except ValueError:
        value = high + 1.0
    if not low <= value <= high:
        raise UsageError(
            f"--length {rule}:{argument} is out of range: from {low:g} to {high:g}",
            hint=f"--length {rule}:{default:g}",
        )
    return value
