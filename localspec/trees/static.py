"""Trees of a fixed shape: the chain, and the expansion vector (SpecInfer, arXiv 2305.09781)."""

import math
from collections.abc import Sequence
from typing import ClassVar

from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, Plan, RandomSource, Shape
from localspec.errors import UsageError
from localspec.trees.builder import TreeBuilder


class Static:
    """Every node of level d gets `widths[d]` children; one decode of the drafter per level."""

    name: ClassVar[str] = "static"
    draws: ClassVar[frozenset[Draw]] = frozenset(Draw)

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = tuple(widths)

    def shape(self, k: int) -> Shape:
        """Return the full tree's size; `k` plays no part."""
        levels = [math.prod(self._widths[: level + 1]) for level in range(len(self._widths))]
        return Shape(nodes=sum(levels), depth=len(levels), leaves=levels[-1])

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        """Grow level by level until the widths, the plan's limits or its `go_on` end it."""
        builder = TreeBuilder(pending, position, plan, rng)
        extend(builder, self._widths[: plan.max_depth], source, plan)
        return builder.draft()


def read_widths(tree: str, argument: str) -> tuple[int, ...]:
    """Read "3,2,1": children per level, from the root down. Raises UsageError."""
    try:
        widths = tuple(int(width) for width in argument.split(","))
    except ValueError:
        widths = ()
    if not widths or min(widths) < 1:
        raise UsageError(
            f"--tree {tree}:{argument} is not a list of children per level, one or more each",
            hint=f"--tree {tree}:3,2,1",
        )
    return widths


def extend(builder: TreeBuilder, widths: Sequence[int], source: DistributionSource, plan: Plan) -> None:
    """Give every node of the last level `widths[d]` children, level by level."""
    level = [0]
    for depth, width in enumerate(widths):
        if depth > 0:
            level = [node for node in level if plan.look_on(depth, builder.share(node))]
            source.expand([builder.paths[node] for node in level])
        level = [
            child for node in level for child in builder.add_children(node, source.dist(builder.paths[node]), width)
        ]
        if not level:
            break


class Chain:
    """One child a node, as deep as the plan says. It takes no argument: its length is -k."""

    name: ClassVar[str] = "chain"
    draws: ClassVar[frozenset[Draw]] = frozenset(Draw)

    def shape(self, k: int) -> Shape:
        return Shape(nodes=k, depth=k, leaves=1)

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        return Static((1,) * plan.max_depth).grow(pending, position, source, plan, rng)
