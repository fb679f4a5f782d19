"""DySpec: the tree grows where the draft expects acceptance (Xiong et al. arXiv 2410.11744).

A slot is a place where a child could be drawn; its value v estimates the chance that the verification gets there.
With a the chance that the drawn child is accepted,

    child's value = v a,    slot's value afterwards (the next sibling) = v (1 - a)

The paper takes for a the share of the token in what its earlier siblings left of q, and draws where v is greatest
(calibrated=off). By default a is what past passes taught, and the next draw is where v times the expected a is
greatest.
Where a drafter guesses each token by itself, all distributions are known from the start. The tree of the most probable
tokens is then that of DDTree (arXiv 2604.12989): the n nodes of the greatest products of marginal probabilities.

The decision to draw at a slot comes before the draw and sees only earlier draws, which keeps every rule of residual
rejection exact; leaving out drawn nodes afterwards would not.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from localspec.engine.distribution import TINY, Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, Plan, RandomSource
from localspec.settings.declaration import Option
from localspec.trees.budget import MAX_LEAVES, BudgetTree
from localspec.trees.builder import TreeBuilder

USUAL_SHARE = 0.5  # of a first child


@dataclass(slots=True)
class Slot:
    """The place for the next child of a node whose distribution is known; `rest` is what earlier children left of the
    distribution.
    """

    value: float
    dist: Distribution
    children: Iterator[int]
    prospects: Iterator[float]  # the shares of children that are known before they are drawn
    ahead: float | None  # the next child's, if it is
    squares: float  # of the remaining probabilities: their sum over rest^2 is the expected share of the next child
    rest: float = 1.0
    rank: int = 0  # of the next child


class DySpecBuilder:
    """A tree with slots."""

    def __init__(self, builder: TreeBuilder, source: DistributionSource, plan: Plan, is_calibrated: bool) -> None:
        self._builder = builder
        self._source = source
        self._acceptance = plan.acceptance if is_calibrated else None

    def slot(self, node: int, value: float) -> Slot:
        """Open the slots below `node`, whose path was expanded."""
        dist = self._source.dist(self._builder.paths[node])
        children, prospects = self._builder.iter_children(node, dist, MAX_LEAVES)
        return Slot(value, dist, children, prospects, next(prospects, None), float(dist.probs @ dist.probs))

    def prior_value(self, value: float) -> float:
        """Return the promise of a first child below a node of this value whose distribution is not known yet."""
        return value * self._acceptance.chance(USUAL_SHARE, 0) if self._acceptance else value

    def expected_gain(self, slot: Slot) -> float:
        """Return what the next draw at `slot` is expected to add to the accepted tokens."""
        if self._acceptance is None:
            return slot.value
        share = slot.ahead
        if share is None:
            share = min(1.0, max(slot.squares, 0.0) / slot.rest**2) if slot.rest > TINY else 1.0
        return slot.value * self._acceptance.chance(share, slot.rank)

    def draw(self, slot: Slot) -> tuple[int, float] | None:
        """Draw the next child at `slot`; return it with its value, or None when there is none."""
        child = next(slot.children, None)
        if child is None:
            return None
        q = slot.dist.prob(self._builder.paths[child][-1])
        share = self._builder.share(child)
        value = slot.value * (self._acceptance.chance(share, slot.rank) if self._acceptance else share)
        slot.value -= value
        slot.rank += 1
        slot.ahead = next(slot.prospects, None)
        slot.rest -= q
        slot.squares -= q * q
        return child, value


class DySpec(BudgetTree):
    """A greedy heap: the next child is drawn where it promises most, "dyspec:32,depth=12".

    The drafter decodes node by node, so this suits drafters whose distributions cost nothing; else take sequoia.
    """

    name: ClassVar[str] = "dyspec"
    options: ClassVar[tuple[Option, ...]] = (
        Option("depth", 12, "levels at most", 1, 64),
        Option("calibrated", True, "off: the paper's estimate of acceptance, the draft's own probability"),
    )
    # No IID: a rule for independent siblings may need their number fixed before they are drawn (K-SEQ), and here it
    # depends on what they are. Rules that go from sibling to sibling may have IID, too.
    draws: ClassVar[frozenset[Draw]] = frozenset(Draw) - {Draw.IID}

    def __init__(self, nodes: int | None = None, depth: int = 12, *, calibrated: bool = True) -> None:
        super().__init__(nodes, depth)
        self._is_calibrated = calibrated

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        builder = TreeBuilder(pending, position, plan, rng)
        dyspec = DySpecBuilder(builder, source, plan, self._is_calibrated)
        depth = min(self._depth, plan.max_depth)
        heap: list[tuple[float, int, Slot | int]] = []  # a node stands for its slot while its distribution is not known

        def push(expected_gain: float, slot: Slot | int) -> None:
            heapq.heappush(heap, (-expected_gain, next(order), slot))

        def push_node(node: int) -> None:
            if source.is_free:
                slot = dyspec.slot(node, values[node])
                push(dyspec.expected_gain(slot), slot)
            else:
                push(dyspec.prior_value(values[node]), node)

        order = count()  # first come, first served among equals
        values = {0: 1.0}
        push(1.0, 0)
        while heap and not builder.is_full:
            slot = heapq.heappop(heap)[2]
            if isinstance(slot, int):
                if slot > 0:
                    source.expand([builder.paths[slot]])  # the pending token is known
                slot = dyspec.slot(slot, values[slot])
            elif (drawn := dyspec.draw(slot)) is None:
                continue
            else:
                child, values[child] = drawn
                if len(builder.paths[child]) < depth:
                    push_node(child)
            push(dyspec.expected_gain(slot), slot)
        return builder.draft()
