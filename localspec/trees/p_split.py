"""Split where the draft hesitates: llama.cpp's speculative example (`p_split`), without its errors.

A node gets a first child always and an f-th one while q_(f), the f-th greatest probability, exceeds `split`. The
widths are read off the distributions before anything is drawn, so drawn children are as exact as chosen ones.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, Plan, RandomSource
from localspec.settings.declaration import Option
from localspec.trees.builder import MAX_LEAVES, BudgetTree, TreeBuilder

MAX_CHILDREN = 8  # children of one node


class PSplit(BudgetTree):
    """Chains that split where several tokens are likely, "p-split:16,split=0.1,branches=8,depth=16"."""

    name: ClassVar[str] = "p-split"
    options: ClassVar[tuple[Option, ...]] = (
        Option("split", 0.1, "a token more likely than this gets a branch", 0.0, 1.0),
        Option("branches", 8, "leaves at most", 1, MAX_LEAVES),
        Option("depth", 16, "levels at most", 1, 64),
    )
    draws: ClassVar[frozenset[Draw]] = frozenset(Draw)

    def __init__(self, nodes: int | None = None, split: float = 0.1, branches: int = 8, depth: int = 16) -> None:
        super().__init__(nodes, depth, branches)
        self._split = split

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        """Grow level by level; one decode of the drafter per level."""
        builder = TreeBuilder(pending, position, plan, rng)
        level = [0]
        for depth in range(min(self._depth, plan.max_depth)):
            if depth > 0:
                source.expand([builder.paths[node] for node in level])
            below: list[int] = []
            for node in level:
                dist = source.dist(builder.paths[node])
                below += builder.add_children(node, dist, 1 + min(self._splits(dist), self._leaves - builder.n_leaves))
            level = below
            if not level or builder.is_full:
                break
        return builder.draft()

    def _splits(self, dist: Distribution) -> int:
        """Count the tokens after the first that are likely enough for a branch of their own."""
        greatest = np.sort(dist.probs)[::-1][1:MAX_CHILDREN]
        return int((greatest > self._split).sum())
