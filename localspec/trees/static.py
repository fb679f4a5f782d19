"""Trees of a shape fixed before any law is seen: the chain, and the expansion vector (SpecInfer arXiv 2305.09781)."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.draft import Draft
from localspec.protocols import Chooser, LawSource, Plan
from localspec.trees.seedling import Seedling


class Static:
    """Every node of level d gets `widths[d]` children; one decode of the drafter per level."""

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = tuple(widths)

    def grow(self, pending: int, position: int, source: LawSource, plan: Plan, chooser: Chooser) -> Draft:
        """Grow level by level until the widths, the plan's limits or its `go_on` end it."""
        seedling = Seedling(pending, position, plan, chooser)
        level = [0]
        for depth, width in enumerate(self._widths[: plan.max_depth]):
            if depth > 0:
                seedling.evaluate(level, source)
            level = [child for node in level for child in seedling.sprout(node, source.law(node), width)]
            if not level:
                break
        return seedling.draft()


class Chain:
    """One child a node, as deep as the plan says."""

    def grow(self, pending: int, position: int, source: LawSource, plan: Plan, chooser: Chooser) -> Draft:
        """Grow the tree of width one."""
        return Static((1,) * plan.max_depth).grow(pending, position, source, plan, chooser)
