"""DySpec: the tree grows where the draft expects acceptance (Xiong et al. arXiv 2410.11744).

A slot is a place where a child could be drawn; its value estimates the chance that the verification gets there. With
r the share of the drawn token in what its earlier siblings left of q,

    child's value = v r,    slot's value afterwards (the next sibling) = v (1 - r)

The decision to draw at a slot comes before the draw and sees only earlier draws, which keeps every rule of residual
rejection exact (ALG 3.7); leaving out drawn nodes afterwards would not.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from localspec.draft import Draft, Draw
from localspec.law import Law
from localspec.options import Option
from localspec.protocols import Chooser, LawSource, Plan, Shape
from localspec.trees.argument import MAX_LEAVES, budget, read_argument
from localspec.trees.seedling import Seedling

DEPTH = Option("depth", 12, "levels at most", 1, 64)

# No IID: a rule for independent siblings may need their number fixed before they are drawn (K-SEQ), and here it
# depends on what they are. Rules that go from sibling to sibling may have IID, too.
DRAWS = frozenset(Draw) - {Draw.IID}


@dataclass(slots=True)
class Slot:
    """The place below `node` for its next child; `rest` is what earlier children left of its law."""

    value: float
    node: int
    law: Law
    children: Iterator[int]
    is_shared: bool  # with replacement: every child is drawn from the whole law
    rest: float = 1.0

    def draw(self, seedling: Seedling) -> tuple[int, float] | None:
        """Draw the next child; return it with its value, or None when there is none."""
        child = next(self.children, None)
        if child is None:
            return None
        q = self.law.prob(seedling.paths[child][-1])
        r = q if self.is_shared else min(1.0, q / self.rest) if self.rest > 0.0 else 1.0
        value = self.value * r
        self.value -= value
        self.rest -= q
        return child, value


class Garden:
    """A seedling with slots: what both forms of the policy grow in."""

    def __init__(self, pending: int, position: int, source: LawSource, plan: Plan, chooser: Chooser) -> None:
        self.seedling = Seedling(pending, position, plan, chooser)
        self._source = source
        self._is_shared = plan.draw is Draw.IID

    def slot(self, node: int, value: float) -> Slot:
        """Open the slots below `node`, whose path was expanded."""
        law = self._source.law(self.seedling.paths[node])
        children = self.seedling.offspring(node, law, MAX_LEAVES)
        return Slot(value, node, law, children, self._is_shared)

    def expand(self, nodes: list[int]) -> None:
        """Evaluate `nodes` in one decode; the pending token is known."""
        self._source.expand([self.seedling.paths[node] for node in nodes if node > 0])


class DySpec:
    """A greedy heap: the next child is drawn where acceptance is most likely, "dyspec:32,depth=12".

    The drafter decodes node by node, so this suits drafters whose laws cost nothing; else take dyspec-layered.
    """

    options: ClassVar[tuple[Option, ...]] = (DEPTH,)
    draws: ClassVar[frozenset[Draw]] = DRAWS

    def __init__(self, nodes: int | None = None, depth: int = 12) -> None:
        self._nodes = nodes
        self._depth = depth

    @classmethod
    def parse(cls, argument: str) -> DySpec:
        """Read "NODES,depth=D"."""
        read = read_argument("dyspec", argument, cls.options)
        return cls(read.nodes, read.integer("depth"))

    def shape(self, k: int) -> Shape:
        """Return the budget: any tree within it may grow."""
        return _shape(budget(self._nodes, k), self._depth)

    def grow(self, pending: int, position: int, source: LawSource, plan: Plan, chooser: Chooser) -> Draft:
        """Draw at the slot of the highest value until the budget is spent."""
        garden = Garden(pending, position, source, plan, chooser)
        seedling = garden.seedling
        depth = min(self._depth, plan.max_depth)
        heap: list[tuple[float, int, Slot | int]] = [(-1.0, 0, 0)]  # a node stands for its slot, not yet evaluated
        n_pushed = 0
        while heap and not seedling.is_full:
            negative, _, slot = heapq.heappop(heap)
            if isinstance(slot, int):
                garden.expand([slot])
                slot = garden.slot(slot, -negative)
            drawn = slot.draw(seedling)
            if drawn is None:
                continue
            child, value = drawn
            n_pushed += 2  # first come, first served among equals
            heapq.heappush(heap, (-slot.value, n_pushed, slot))
            if len(seedling.paths[child]) < depth:
                heapq.heappush(heap, (-value, n_pushed + 1, child))
        return seedling.draft()


class DySpecLayered:
    """Level by level, children as long as a slot's value reaches the threshold, "dyspec-layered:32,threshold=0.03".

    One decode of the drafter per level. Threshold 0 stands for one over the number of nodes.
    """

    options: ClassVar[tuple[Option, ...]] = (
        DEPTH,
        Option("threshold", 0.0, "least chance of being reached; 0: one over the nodes", 0.0, 1.0),
    )
    draws: ClassVar[frozenset[Draw]] = DRAWS

    def __init__(self, nodes: int | None = None, depth: int = 12, threshold: float = 0.0) -> None:
        self._nodes = nodes
        self._depth = depth
        self._threshold = threshold

    @classmethod
    def parse(cls, argument: str) -> DySpecLayered:
        """Read "NODES,depth=D,threshold=T"."""
        read = read_argument("dyspec-layered", argument, cls.options)
        return cls(read.nodes, read.integer("depth"), read.number("threshold"))

    def shape(self, k: int) -> Shape:
        """Return the budget: any tree within it may grow."""
        return _shape(budget(self._nodes, k), self._depth)

    def grow(self, pending: int, position: int, source: LawSource, plan: Plan, chooser: Chooser) -> Draft:
        """Draw every slot of a level down to the threshold, then the next level's."""
        garden = Garden(pending, position, source, plan, chooser)
        threshold = self._threshold or 1.0 / max(plan.max_nodes, 1)
        level = {0: 1.0}  # nodes with their values
        for _ in range(min(self._depth, plan.max_depth)):
            garden.expand(list(level))
            below: dict[int, float] = {}
            for node, value in level.items():
                slot = garden.slot(node, value)
                while slot.value >= threshold and (drawn := slot.draw(garden.seedling)) is not None:
                    below[drawn[0]] = drawn[1]
            level = {node: value for node, value in below.items() if value >= threshold}
            if not level or garden.seedling.is_full:
                break
        return garden.seedling.draft()


def _shape(nodes: int, depth: int) -> Shape:
    return Shape(nodes, min(depth, nodes), max(1, min(nodes, MAX_LEAVES)))
