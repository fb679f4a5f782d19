"""Sequoia: the best tree of n nodes for a measured acceptance vector (Chen et al. arXiv 2402.12374).

With P[b] the chance that a node's b-th child is the accepted one, a tree's value is the sum over its nodes of the
product of P along the way down. F(m, l) is the best value of m nodes, the top one included, with l levels below it:

    G(m, l, 0) = 0 for m = 0;   G(m, l, b) = max_y  G(m - y, l, b - 1) + P[b] F(y, l - 1)
    F(m, l) = 1 + max_b G(m - 1, l, b)

G being the best value of m nodes below a node with b children. The shape is fixed before any token is drawn. Unless it
is given, P is learned: from the prior on, it is read off the passes so far every so often.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from localspec.engine.draft import Draft, Draw, Nodes
from localspec.engine.protocols import DistributionSource, Plan, RandomSource
from localspec.errors import UsageError
from localspec.settings.declaration import Option
from localspec.trees.budget import MAX_LEAVES, MAX_NODES, BudgetTree
from localspec.trees.builder import TreeBuilder

Indices = NDArray[np.int64]
Tree = tuple[Nodes, ...]  # the children of every node, the top one first, in draw order

LEARNED = "learned"


class Sequoia(BudgetTree):
    """The best shape for how often a first, second, ... child is right, "sequoia:32,depth=10,accept=0.7/0.1/0.05"."""

    name: ClassVar[str] = "sequoia"
    options: ClassVar[tuple[Option, ...]] = (
        Option("depth", 32, "levels at most", 1, 64),
        Option("accept", LEARNED, "chances that the first, second, ... child is the accepted one, as 0.7/0.1/0.05"),
    )
    draws: ClassVar[frozenset[Draw]] = frozenset(Draw)

    def __init__(self, nodes: int | None = None, depth: int = 32, accept: str = LEARNED) -> None:
        super().__init__(nodes, depth)
        self._accept = None if accept == LEARNED else _vector(accept)

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        builder = TreeBuilder(pending, position, plan, rng)
        accept = self._accept or plan.acceptance.vector
        tree = best_tree(accept, min(plan.max_nodes, MAX_NODES), min(self._depth, plan.max_depth))
        level = [(0, 0)]  # (node of the draft, node of the plan)
        while level:
            inner = [(node, tree[planned]) for node, planned in level if tree[planned]]
            source.expand([builder.paths[node] for node, _ in inner if node > 0])
            level = []
            for node, below in inner:
                grown = builder.add_children(node, source.dist(builder.paths[node]), len(below))
                level += zip(grown, below, strict=False)
        return builder.draft()


@lru_cache(maxsize=4096)
def best_tree(accept: tuple[float, ...], nodes: int, depth: int) -> Tree:
    """Return the best tree of at most `nodes` below the top and `depth` levels.

    Where the best has more than MAX_LEAVES leaves, it is the best of fewer nodes.
    """
    tree = _Plans.of(accept).trace(nodes, depth)
    return tree if n_leaves(tree) <= MAX_LEAVES else best_tree(accept, nodes - 1, depth)


def n_leaves(tree: Tree) -> int:
    return sum(not below for below in tree)


class _Plans:
    """The two recursions solved for up to MAX_NODES nodes below the top, and the way back from values to trees."""

    def __init__(self, accept: Sequence[float]) -> None:
        self._accept = accept
        single = np.full(MAX_NODES + 2, -np.inf)
        single[1] = 1.0
        self._values = [single]  # by levels: F of every number of nodes
        self._widths = [np.zeros(single.size, np.int64)]  # by levels: the best b of every number of nodes
        self._shares: list[list[Indices]] = [[]]  # by levels and b: the best y of every number of nodes below

    @staticmethod
    @lru_cache(maxsize=64)
    def of(accept: tuple[float, ...]) -> _Plans:
        """Return the solution for a vector, computed once."""
        return _Plans(accept)

    def trace(self, nodes: int, depth: int) -> Tree:
        """Return the best tree of at most `nodes` below the top, in the order of levels."""
        while len(self._values) <= depth:
            self._add_level()
        queue = [(1 + int(self._values[depth][1 : nodes + 2].argmax()), depth)]  # (nodes, levels) of every subtree
        tree: list[Nodes] = []
        for size, levels in queue:
            sizes = self._split(size - 1, levels, int(self._widths[levels][size]))
            tree.append(tuple(range(len(queue), len(queue) + len(sizes))))
            queue += [(below, levels - 1) for below in sizes]
        return tuple(tree)

    def _split(self, nodes: int, levels: int, width: int) -> list[int]:
        """Return the sizes of the best subtrees of `width` children, the first child's first."""
        sizes = []
        for b in range(width, 0, -1):
            sizes.append(int(self._shares[levels][b - 1][nodes]))
            nodes -= sizes[-1]
        return sizes[::-1]

    def _add_level(self) -> None:
        below = self._values[-1]
        size = np.arange(below.size)
        rest = size[:, None] - size[None, :]  # [m, y]: nodes left for the earlier children
        forest = np.where(size == 0, 0.0, -np.inf)  # G of no children
        forests, shares = [forest], []
        for chance in self._accept:
            choices = np.where(rest >= 0, forest[rest], -np.inf) + chance * below  # [m, y]
            shares.append(choices.argmax(1))
            forest = choices.max(1)
            forests.append(forest)
        table = np.array(forests)  # [1 + B, m]
        self._values.append(np.concatenate(([-np.inf], 1.0 + table.max(0)[:-1])))
        self._widths.append(np.concatenate(([0], table.argmax(0)[:-1])))
        self._shares.append(shares)


def _vector(text: str) -> tuple[float, ...]:
    """Read "0.7/0.1/0.05"; the chances of one token cannot sum to more than one."""
    try:
        accept = tuple(float(word) for word in text.split("/"))
    except ValueError:
        accept = ()
    is_dist = 0.0 < sum(accept) <= 1.0 + 1e-9 and all(0.0 < chance <= 1.0 for chance in accept)
    if not is_dist or len(accept) > MAX_LEAVES:
        raise UsageError(
            f"--tree sequoia with accept={text} is no list of up to {MAX_LEAVES} chances that sum to one at most",
            hint="--tree sequoia:16,accept=0.7/0.1/0.05",
        )
    return accept
