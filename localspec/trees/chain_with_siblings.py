"""A chain, and beside its tokens those that came next in the same races, as long as a row for one pays.

The drafter was run for the chain, so that a sibling costs a row of the target and nothing else: where a pass of eight
rows takes as long as one of five, three are free. A sibling at a node promises

    reach of the node x (1 - a(elder siblings)) x a(share, rank)

with a what past passes taught (`acceptance.py`); the greatest is added first. Coupled noise only: what stands beside a
drawn chain is seldom reached, for joint rejection accepts more of the chain itself (0.85 of its tokens against 0.73 on
the bundled pair at temperature 0.8), and brought nothing that was told from chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import ClassVar

from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, Plan, RandomSource, Shape
from localspec.trees.budget import MAX_LEAVES
from localspec.trees.builder import Drawn, TreeBuilder, draw
from localspec.trees.static import extend

WIDEST = 4  # children of a node
MAX_SIBLING_GAIN = 0.5  # that a sibling can promise: where a row costs more, none is looked at


class ChainWithSiblings:
    """What `auto` grows under coupled noise."""

    draws: ClassVar[frozenset[Draw]] = frozenset({Draw.COUPLED})

    def shape(self, k: int) -> Shape:
        """Return the budget: any chain with siblings within it may grow."""
        return Shape(k, k, max(1, min(k, MAX_LEAVES)))

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        builder = TreeBuilder(pending, position, plan, rng)
        extend(builder, (1,) * plan.max_depth, source, plan)
        if not plan.widen(len(builder.paths) - 1, MAX_SIBLING_GAIN):
            return builder.draft()
        slots = list(_along(builder, plan))
        heapify(slots)
        while slots and not builder.is_full and builder.n_leaves < MAX_LEAVES:
            if not plan.widen(len(builder.paths) - 1, slots[0].expected_gain):
                break
            slot = heappop(slots)
            path = builder.paths[slot.node]
            if slot.children is None:
                racers = draw(source.dist(path), plan.draw, WIDEST, position + len(path), rng)
                slot.children = islice(racers, 1, None)  # the first is the chain's
            elif slot.child is not None:
                builder.attach(slot.node, slot.child)
                slot.left -= slot.expected_gain
                slot.rank += 1
            slot.child = next(slot.children, None)
            if slot.child is not None:
                slot.expected_gain = slot.left * plan.acceptance.chance(slot.child.share, slot.rank)
                heappush(slots, slot)
        return builder.draft()


@dataclass(slots=True)
class SiblingSlot:
    """The place for the next sibling below `node`. `expected_gain` is its chance to be accepted, or a bound of it."""

    node: int
    left: float  # chance that verification comes to it
    expected_gain: float
    rank: int = 1
    children: Iterator[Drawn] | None = field(default=None)  # None: not looked at
    child: Drawn | None = None

    def __lt__(self, other: SiblingSlot) -> bool:
        """The one that promises most comes first, of equals the one nearer the root."""
        return (-self.expected_gain, self.node) < (-other.expected_gain, other.node)


def _along(builder: TreeBuilder, plan: Plan) -> Iterator[SiblingSlot]:
    """Yield a slot for each node of a chain but the last, whose distribution may not be known."""
    reach = 1.0
    for node in range(len(builder.paths) - 1):
        accepted = reach * plan.acceptance.chance(builder.share(node + 1), 0)
        yield SiblingSlot(node, reach - accepted, reach - accepted)
        reach = accepted
