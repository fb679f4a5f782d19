"""OPT-Tree: the tree of n nodes with the highest expected acceptance, as deep as pays (Wang et al. arXiv 2406.17276).

A node's value is the product of the draft's probabilities on its path, the value W of a tree the sum over its nodes.
Level by level the nodes that are among the best n so far are expanded; when a level adds less than `threshold` to
W, the tree is finished. The threshold is what a level of drafting costs, in tokens.
"""

from __future__ import annotations

from typing import ClassVar

from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, Plan, RandomSource
from localspec.settings.declaration import Option
from localspec.trees.builder import BudgetTree
from localspec.trees.candidate_tree import CandidateTree


class OptTree(BudgetTree):
    """The best tree by the draft's probabilities, as deep as a level is worth it, "opt-tree:32,threshold=0.1"."""

    name: ClassVar[str] = "opt-tree"
    options: ClassVar[tuple[Option, ...]] = (
        Option("threshold", 0.1, "tokens that another level must promise", 0.0, 1.0),
        Option("depth", 10, "levels at most", 1, 64),
    )
    draws: ClassVar[frozenset[Draw]] = frozenset({Draw.FIXED, Draw.COUPLED})

    def __init__(self, nodes: int | None = None, threshold: float = 0.1, depth: int = 10) -> None:
        super().__init__(nodes, depth)
        self._threshold = threshold

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        """Expand level by level, one decode of the drafter each, while the best tree's value grows enough."""
        pool = CandidateTree(pending, position, source, plan, rng)
        level, worth = [0], 0.0
        for _ in range(min(self._depth, plan.max_depth)):
            level = pool.grow(level, plan.max_nodes)
            best = pool.best(plan.max_nodes)
            before, worth = worth, sum(pool.values[candidate] for candidate in best)
            if worth - before < self._threshold:
                break
            level = sorted(set(best).intersection(level), key=lambda c: (-pool.values[c], c))
        return pool.draft(plan.max_nodes)
