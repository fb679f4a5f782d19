"""SpecTr's drafts: several independent chains below the pending token (Sun et al. arXiv 2310.15141)."""

from typing import ClassVar

from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, Plan, RandomSource, Shape
from localspec.settings.declaration import Option
from localspec.trees.budget import MAX_LEAVES, MAX_NODES, BudgetTree
from localspec.trees.static import Static


class SpecTr(BudgetTree):
    """Independent chains of equal length that share the nodes, "spectr:32,drafts=4"; chains may begin alike."""

    name: ClassVar[str] = "spectr"
    options: ClassVar[tuple[Option, ...]] = (Option("drafts", 4, "chains", 1, MAX_LEAVES),)
    draws: ClassVar[frozenset[Draw]] = frozenset(Draw)

    def __init__(self, nodes: int | None = None, drafts: int = 4) -> None:
        super().__init__(nodes, MAX_NODES)
        self._drafts = drafts

    def shape(self, k: int) -> Shape:
        """Return as many full chains as the budget holds, one token each at least."""
        nodes = self.budget(k)
        drafts = min(self._drafts, nodes)
        depth = nodes // max(drafts, 1)
        return Shape(drafts * depth, depth, max(drafts, 1))

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        drafts = max(1, min(self._drafts, plan.max_nodes))
        return Static((drafts,) + (1,) * (plan.max_depth - 1)).grow(pending, position, source, plan, rng)
