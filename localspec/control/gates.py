"""Rules that end a draft where the draft model is no longer sure: `confidence`, `entropy`, `margin`.

Each looks at the draft's law *before* a token is drawn from it, so the draft's length does not depend on the token and
residual rejection stays exact. The popular variant that draws a token and drops it when it is improbable changes the
output law by a tenth and more.

A gate judges how sure the draft model is, at temperature 1 whatever tokens are drawn with: at temperature 0 they are
drawn from a point mass, which is always sure, and a limit should mean the same at every temperature.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from localspec.control.arguments import number
from localspec.control.fixed import Fixed
from localspec.draft import Draw
from localspec.law import Law
from localspec.protocols import Growth, History, Plan, Room, Shape


class Gate(Fixed):
    """A fixed shape that stops growing where `is_sure` says no."""

    name: ClassVar[str]
    default: ClassVar[float]
    high: ClassVar[float]

    def __init__(self, drafter: str, shape: Shape, draw: Draw, limit: float) -> None:
        super().__init__(drafter, shape, draw)
        self.limit = limit

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Self:
        """Take the limit as argument; -k is the most it drafts."""
        limit = number(cls.name, argument, default=cls.default, low=0.0, high=cls.high)
        return cls(drafter, shape, draw, limit)

    def plan(self, history: History, room: Room) -> Plan:
        """Plan the whole shape, with the gate in front of every draw."""
        return replace(super().plan(history, room), go_on=self._go_on, why=f"{self.name} {self.limit:g}")

    @abstractmethod
    def is_sure(self, law: Law) -> bool:
        """Whether a token may be drawn from `law`."""

    def _go_on(self, growth: Growth) -> bool:
        return self.is_sure(growth.law.belief)


class Confidence(Gate):
    """Draft while the most probable token has at least this probability (0.4)."""

    name, default, high = "confidence", 0.4, 1.0

    def is_sure(self, law: Law) -> bool:
        """Whether the greatest probability reaches the limit."""
        return law.top >= self.limit


class Entropy(Gate):
    """Draft while the entropy of the draft's law is at most this many nats (1.73, which is 2.5 bits)."""

    name, default, high = "entropy", 1.73, 100.0

    def is_sure(self, law: Law) -> bool:
        """Whether the law is narrow enough."""
        return law.entropy <= self.limit


class Margin(Gate):
    """Draft while the most probable token leads the second by at least this much probability (0.2)."""

    name, default, high = "margin", 0.2, 1.0

    def is_sure(self, law: Law) -> bool:
        """Whether the first is far enough ahead."""
        second = float(np.partition(law.probs, -2)[-2]) if law.probs.size > 1 else 0.0
        return law.top - second >= self.limit
