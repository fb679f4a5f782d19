"""Draft & Verify's adaptive stop (Zhang et al. arXiv 2309.08168): draft up to and including an improbable token.

    stop after a token with q(y) < theta;   after a pass that kept the share m of its draft
    M <- (M + m) / 2;   theta' = theta + 0.01 if M < 0.9, theta if the draft was as long as allowed, else theta - 0.01
    theta <- 0.9 theta + 0.1 theta'

Including the token is what makes it exact: whether the *next* one is drawn may depend on it, whether it counts itself
may not. q is the draft model's law at temperature 1, with whatever temperature tokens are drawn: at temperature 0 every
drafted token would have probability one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from localspec.control.arguments import number
from localspec.control.fixed import Fixed
from localspec.draft import Draw, Step
from localspec.protocols import History, Plan, Room, Shape

START = 0.8
GOAL = 0.9
STEP = 0.01


class Adaptive(Fixed):
    """Draft until a token was less probable than a threshold, which follows the acceptance (from 0.8 on)."""

    def __init__(self, drafter: str, shape: Shape, draw: Draw, threshold: float = START) -> None:
        super().__init__(drafter, shape, draw)
        self.threshold = threshold
        self._matched = GOAL

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Self:
        """Take the first threshold as argument; -k is the most it drafts."""
        return cls(drafter, shape, draw, number("adaptive", argument, default=START, low=0.0, high=1.0))

    def plan(self, history: History, room: Room) -> Plan:
        """Plan the whole shape, to be left below improbable tokens."""
        threshold = self.threshold
        return replace(
            super().plan(history, room),
            go_on=lambda growth: growth.chance >= threshold,
            why=f"adaptive {threshold:.3f}",
        )

    def observe(self, step: Step, seconds: float) -> None:
        """Let the threshold follow the share of the draft that was kept."""
        drafted = step.draft.depth
        if drafted == 0:
            return
        self._matched = (self._matched + len(step.verdict.path) / drafted) / 2
        change = STEP if self._matched < GOAL else 0.0 if drafted >= self._shape.depth else -STEP
        self.threshold = min(1.0, max(0.0, self.threshold + 0.1 * change))  # above 1 nothing would be drafted again
