"""Plans of an answer beside others: whose rows are in its passes, so that these cost more and bring more.

A draft of `k` tokens beside `n` others takes, beyond their common pass, about as long as a pass of `k` rows: llama.cpp
splits a pass in which lanes have different numbers of rows. In that time all `n + 1` could have written on. So drafts
end by themselves where a row costs, and go on where it is nearly free.

What such passes take is no news of what passes cost alone: nothing is learned of prices from them, and no loss counted.
"""

from collections.abc import Callable
from dataclasses import dataclass

from localspec.control.auto import Auto
from localspec.engine.draft import Step
from localspec.engine.protocols import Controller, DraftBudget, History, Plan


def nobody() -> int:
    return 0


@dataclass(slots=True)
class Company:
    """The plans of `alone` while no other answer is under way, else those of `beside`."""

    alone: Controller
    beside: Controller
    n_others: Callable[[], int]
    _is_alone: bool = True

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Return the plan of either; the pass is one of several answers if another one is under way by now."""
        self._is_alone = not self.n_others()
        return (self.alone if self._is_alone else self.beside).plan(history, budget)

    def observe(self, step: Step, seconds: float) -> None:
        is_alone = self._is_alone and not self.n_others()
        (self.alone if is_alone else self.beside).observe(step, seconds)


@dataclass(frozen=True, slots=True)
class Beside:
    """The planner's plans at the prices of passes that others share."""

    auto: Auto
    n_others: Callable[[], int]

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        with self.auto.beside(self.n_others()):
            return self.auto.plan(history, budget)

    def observe(self, step: Step, seconds: float) -> None:
        self.auto.count_accepted(step)
