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
from localspec.engine.protocols import Chooser, LawSource, Plan, Shape
from localspec.trees.argument import MAX_LEAVES
from localspec.trees.seedling import Drawn, Seedling, draw
from localspec.trees.static import extend

WIDEST = 4  # children of a node
MOST = 0.5  # that a sibling can promise: where a row costs more, none is looked at


class Spine:
    """What `auto` grows under coupled noise."""

    draws: ClassVar[frozenset[Draw]] = frozenset({Draw.COUPLED})

    def shape(self, k: int) -> Shape:
        """Return the budget: any chain with siblings within it may grow."""
        return Shape(k, k, max(1, min(k, MAX_LEAVES)))

    def grow(self, pending: int, position: int, source: LawSource, plan: Plan, chooser: Chooser) -> Draft:
        """Grow the chain to its end, then what is worth a row beside it."""
        seedling = Seedling(pending, position, plan, chooser)
        extend(seedling, (1,) * plan.max_depth, source, plan)
        if not plan.widen(len(seedling.paths) - 1, MOST):
            return seedling.draft()
        slots = list(_along(seedling, plan))
        heapify(slots)
        while slots and not seedling.is_full and seedling.n_leaves < MAX_LEAVES:
            if not plan.widen(len(seedling.paths) - 1, slots[0].promise):
                break
            slot = heappop(slots)
            path = seedling.paths[slot.node]
            if slot.children is None:
                racers = draw(source.law(path), plan.draw, WIDEST, position + len(path), chooser)
                slot.children = islice(racers, 1, None)  # the first is the chain's
            elif slot.child is not None:
                seedling.graft(slot.node, slot.child)
                slot.left -= slot.promise
                slot.rank += 1
            slot.child = next(slot.children, None)
            if slot.child is not None:
                slot.promise = slot.left * plan.acceptance.chance(slot.child.share, slot.rank)
                heappush(slots, slot)
        return seedling.draft()


@dataclass(slots=True)
class Slot:
    """The place for the next sibling below `node`: `promise` is its chance to be the accepted one, or bounds it."""

    node: int
    left: float  # chance that verification comes to it
    promise: float
    rank: int = 1
    children: Iterator[Drawn] | None = field(default=None)  # None: not looked at
    child: Drawn | None = None

    def __lt__(self, other: Slot) -> bool:
        """The one that promises most comes first, of equals the one nearer the root."""
        return (-self.promise, self.node) < (-other.promise, other.node)


def _along(seedling: Seedling, plan: Plan) -> Iterator[Slot]:
    """Yield a slot for each node of a chain but the last, whose law may not be known."""
    reach = 1.0
    for node in range(len(seedling.paths) - 1):
        accepted = reach * plan.acceptance.chance(seedling.share(node + 1), 0)
        yield Slot(node, reach - accepted, reach - accepted)
        reach = accepted
