"""Draft-length rules that people ask for by name (`--length`): from papers and guides, each with its own numbers.

All are exact under every rule. They see past passes, and a gate sees the draft's distribution *before* a token is drawn
from it. The popular variant that draws a token and drops it when it is improbable changes the output's distribution by
a tenth and more.
"""

from dataclasses import replace
from typing import ClassVar, Self

from localspec.engine.draft import Draw, Step
from localspec.engine.protocols import DraftBudget, History, Plan, Shape
from localspec.errors import UsageError

GOAL, THETA_STEP = 0.9, 0.01  # of `adaptive`


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
        if argument:
            raise UsageError(f"--length fixed takes no argument, not {argument!r}", hint="--length fixed -k 4")
        return cls(drafter, shape, draw)

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Clamp to `budget`: near the end a pass drafts less, the last one nothing."""
        depth = min(self._shape.depth, budget.depth)
        nodes = min(self._shape.nodes, budget.nodes) if depth > 0 else 0
        return Plan(self._drafter, nodes, depth, self._draw, why=f"fixed {self._shape.nodes}")

    def observe(self, step: Step, seconds: float) -> None:
        """A fixed plan learns nothing."""


class Threshold(Fixed):
    default: ClassVar[float]

    def __init__(self, drafter: str, shape: Shape, draw: Draw, limit: float | None = None) -> None:
        super().__init__(drafter, shape, draw)
        self.limit = self.default if limit is None else limit

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Self:
        return cls(drafter, shape, draw, number(cls.name, argument, default=cls.default, low=0.0, high=1.0))


class Confidence(Threshold):
    """Draft while the most probable token has at least this probability (0.4).

    It judges how sure the draft model is at temperature 1, whatever temperature tokens are drawn with: at temperature 0
    they are drawn from a point mass, which is always sure.
    """

    name: ClassVar[str] = "confidence"
    default: ClassVar[float] = 0.4

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        return replace(
            super().plan(history, budget),
            go_on=lambda state: state.dist.belief.top >= self.limit,
            why=f"confidence {self.limit:g}",
        )


class Adaptive(Threshold):
    """Draft until a token was less probable than a threshold, which follows the acceptance (from 0.8 on).

    Draft & Verify's adaptive stop (Zhang et al. arXiv 2309.08168), for a pass that kept the share m of its draft:

        M <- (M + m) / 2
        theta' = theta + 0.01 if M < 0.9, theta if the draft was as long as allowed, else theta - 0.01
        theta <- 0.9 theta + 0.1 theta'

    The improbable token is drafted too: whether the *next* one is drawn may depend on it, whether it counts may not.
    """

    name: ClassVar[str] = "adaptive"
    default: ClassVar[float] = 0.8

    def __init__(self, drafter: str, shape: Shape, draw: Draw, limit: float | None = None) -> None:
        super().__init__(drafter, shape, draw, limit)
        self._matched = GOAL

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        threshold = self.limit
        return replace(
            super().plan(history, budget),
            go_on=lambda state: state.chance >= threshold,
            why=f"adaptive {threshold:.3f}",
        )

    def observe(self, step: Step, seconds: float) -> None:
        drafted = step.depth
        if drafted == 0:
            return
        self._matched = (self._matched + step.n_right / drafted) / 2
        change = THETA_STEP if self._matched < GOAL else 0.0 if drafted >= self._shape.depth else -THETA_STEP
        self.limit = min(1.0, max(0.0, self.limit + 0.1 * change))  # above 1 nothing would be drafted again


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
            f"--length {rule}:{argument} is out of range: from {low:g} to {high:g}", hint=f"--length {rule}:{default:g}"
        )
    return value
