"""Plain decoding as a drafter: it keeps the contract by never proposing."""

from localspec.engine.protocols import Plan, TreePolicy
from localspec.engine.randomness import SeededRandom
from localspec.methods.plain import Plain
from localspec.testing.contract import ContractLimits, DrafterContract, DrafterUnderTest, Table


class TestPlain(DrafterContract):
    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        return DrafterUnderTest(Plain())

    def test_it_never_drafts(self) -> None:
        """Whatever the plan asks for."""
        draft = Plain().propose(ContractLimits().context(self.text), Plan("it", 5, 5), SeededRandom(1))
        assert len(draft) == 0
