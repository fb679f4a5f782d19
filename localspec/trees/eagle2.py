"""EAGLE-2's dynamic tree: expand the most confident nodes, then keep the best of all (Li et al. arXiv 2406.16858).

A node's value is the product of the draft's probabilities on its path. Each level lists the `top` children of the
`top` best nodes of the level above; the draft is the best `nodes` of everything listed.
"""

from __future__ import annotations

from typing import ClassVar

from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, Plan, RandomSource
from localspec.settings.declaration import Option
from localspec.trees.builder import MAX_LEAVES, BudgetTree
from localspec.trees.candidate_tree import CandidateTree


class Eagle2(BudgetTree):
    """The best nodes of a wider tree that follows the draft's confidence, "eagle2:32,top=4,depth=8"."""

    name: ClassVar[str] = "eagle2"
    options: ClassVar[tuple[Option, ...]] = (
        Option("top", 4, "nodes expanded a level, and children of each", 1, MAX_LEAVES),
        Option("depth", 8, "levels at most", 1, 64),
    )
    draws: ClassVar[frozenset[Draw]] = frozenset({Draw.FIXED, Draw.COUPLED})

    def __init__(self, nodes: int | None = None, top: int = 4, depth: int = 8) -> None:
        super().__init__(nodes, depth)
        self._top = top

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        """Expand level by level, one decode of the drafter each, then rerank.

        A node that is not among the best by now never will be, nor will what is below it: it is not expanded.
        """
        pool = CandidateTree(pending, position, source, plan, rng)
        level = [0]
        for _ in range(min(self._depth, plan.max_depth)):
            best = {0, *pool.best(plan.max_nodes)}
            frontier = sorted(best.intersection(level), key=lambda c: (-pool.values[c], c))[: self._top]
            level = pool.grow(frontier, self._top)
            if not level:
                break
        return pool.draft(plan.max_nodes)
