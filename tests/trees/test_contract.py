"""Every expansion policy keeps the drafters' contract: caches, limits, ends, and a nearly full draft context."""

from typing import ClassVar

from localspec.engine.protocols import TreePolicy
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import DraftModel
from localspec.settings.request import Sampling
from localspec.testing.contract import DrafterContract, DrafterUnderTest, Table, TableBackend
from localspec.trees.chain_with_siblings import ChainWithSiblings
from localspec.trees.dyspec import DySpec
from localspec.trees.eagle2 import Eagle2
from localspec.trees.sequoia import Sequoia
from localspec.trees.spectr import SpecTr


class TestTrees(DrafterContract):
    """A draft model with each of them; nodes and depth cut what the policy would grow."""

    policies: ClassVar[tuple[tuple[TreePolicy, int, int], ...]] = (
        (SpecTr(6, drafts=3), 6, 2),
        (Sequoia(accept="0.4/0.3/0.1"), 6, 3),
        (DySpec(), 5, 3),
        (Eagle2(top=3), 5, 3),
        (ChainWithSiblings(), 5, 3),
    )

    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        backend = TableBackend(table, self.n_vocab, n_ctx)
        return DrafterUnderTest(DraftModel(backend, Sampler(Sampling(top_k=0)), policy, lambda: False), (backend,))
