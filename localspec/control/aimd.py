"""One token more after a good pass, one less after a bad one: the rule of thumb of many guides.

    r = accepted / drafted;   r >= 0.8: K <- K + 1, at most 12;   r <= 0.4: K <- K - 1, at least 3;   K = 6 at first

It depends on past passes only, so it is exact under every rule. It does not know what a token costs and never stops
drafting altogether. -k is an upper bound, too.
"""

from __future__ import annotations

from typing import Self

from localspec.control.arguments import no_argument
from localspec.draft import Draw, Step
from localspec.protocols import History, Plan, Room, Shape

START, LOWEST, HIGHEST = 6, 3, 12
GOOD, BAD = 0.8, 0.4


class Aimd:
    """A token more after a pass that kept 80 % of its draft, one less after 40 %; from 3 to 12, or to -k."""

    def __init__(self, drafter: str, shape: Shape, draw: Draw, *, start: int = START, lowest: int = LOWEST) -> None:
        self._drafter = drafter
        self._shape = shape
        self._draw = draw
        self._highest = min(HIGHEST, shape.depth)
        self._lowest = min(lowest, self._highest)
        self._k = min(start, self._highest)

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Self:
        """Take no argument."""
        no_argument("aimd", argument)
        return cls(drafter, shape, draw)

    def plan(self, history: History, room: Room) -> Plan:
        """Draft K levels."""
        depth = min(self._k, room.depth)
        nodes = min(self._shape.nodes, room.nodes) if depth > 0 else 0
        return Plan(self._drafter, nodes, depth, self._draw, why=f"aimd {self._k}")

    def observe(self, step: Step, seconds: float) -> None:
        """Change K by one, or leave it; a pass without a draft says nothing."""
        drafted = step.draft.depth
        if drafted == 0:
            return
        ratio = len(step.verdict.path) / drafted
        if ratio >= GOOD:
            self._k = min(self._k + 1, self._highest)
        elif ratio <= BAD:
            self._k = max(self._k - 1, self._lowest)
