"""Forced tokens before the drafts of a method that was named.

Where the form of an answer allows one token alone, a run of them stands whatever the models say. It goes first, and the
method drafts behind it as if it were committed. A head cannot: it reads the states of tokens that the target has
evaluated. Its pass has either the run or its own draft, whichever is longer; a head under the form drafts forced tokens
too.
"""

from __future__ import annotations

from dataclasses import replace

from localspec.engine.constraint import Ahead
from localspec.engine.draft import Step
from localspec.engine.protocols import Controller, DraftBudget, History, Plan


class AfterRun:
    """Another controller's plans, behind the forced tokens. `can_follow`: the drafter needs no states of these."""

    def __init__(self, inner: Controller, *, can_follow: bool = True) -> None:
        self._inner = inner
        self._can_follow = can_follow

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Return the inner plan of what follows the run."""
        run = budget.forced
        if run and self._can_follow:
            ahead = Ahead([*history.tokens, *run])
            return replace(self._inner.plan(ahead, budget.after(run)), forced=run)
        plan = self._inner.plan(history, budget)
        is_longer = len(run) >= max(plan.max_depth, 1)
        return replace(plan, forced=run, max_nodes=0, max_depth=0) if is_longer else plan

    def observe(self, step: Step, seconds: float) -> None:
        """Let it learn."""
        self._inner.observe(step, seconds)
