"""A draft model with other tokens keeps the contract of drafters, and counts its own tokens."""

from localspec.engine.protocols import Logits, Mask, Plan, Tokens, TreePolicy
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Intersection
from localspec.methods.draft_model import DraftModel
from localspec.settings.request import Sampling
from localspec.testing.contract import (
    ContractLimits,
    DrafterContract,
    DrafterUnderTest,
    Table,
    TableBackend,
    TableRows,
    random_table,
)
from localspec.trees.static import Chain
from tests.lexicons import lexicon

TEXTS = [b"a", b"b", b"c", b"d"]


class BackwardsRows(TableRows):
    """Rows in the order of the other vocabulary."""

    def __init__(self, rows: TableRows) -> None:
        self._inner = rows

    def logits(self, node: int) -> Logits:
        return self._inner.logits(node)[::-1]


class Backwards(TableBackend):
    """A model whose tokens are numbered backwards; it tells those it holds by the target's numbers."""

    def cached(self, tokens: Tokens) -> int:
        return super().cached([3 - int(token) for token in tokens])

    def prefill(self, tokens: Tokens, cancel: object) -> TableRows:
        wanted = [3 - int(token) for token in tokens]
        assert len(wanted) <= self.capabilities.n_ctx, "past the context"
        self.truncate(super().cached(wanted))
        self.evaluated += len(wanted) - self.length
        self.committed = wanted
        self.calls += 1
        return BackwardsRows(TableRows(self, {0: self._table(tuple(wanted))}))

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> TableRows:
        return BackwardsRows(super().extend([3 - int(token) for token in tokens], parents, outputs))


def drafter(backend: TableBackend, policy: TreePolicy, texts: list[bytes]) -> DraftModel:
    translation = Intersection(lexicon(TEXTS), lexicon(texts))
    return DraftModel(backend, Sampler(Sampling()), policy, lambda: False, translation=translation)


class TestTranslatedDraft(DrafterContract):
    """The same model under other numbers does all that it did."""

    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        backend = Backwards(table, 4, n_ctx)
        return DrafterUnderTest(drafter(backend, policy, TEXTS[::-1]), (backend,))


def test_its_own_tokens_are_counted() -> None:
    """Of "abab" it reads two tokens; after "c" it has three, and its context holds eight."""
    backend = TableBackend(random_table(4, 3), 4, n_ctx=8)
    draft = drafter(backend, Chain(), [b"ab", b"c", b"a", b"d"])
    text = ContractLimits().context((0, 1, 0, 1))
    draft.begin(text)
    assert draft.behind(text) == 2
    assert draft.tokens_left(text) == 6
    draft.propose(text, Plan("it", 1, 1), SeededRandom(1))
    assert backend.evaluated == 2
    backend.keep(())
    longer = ContractLimits().context((0, 1, 0, 1, 2, 0))
    assert draft.behind(longer) == 2  # "c" and "a"
    draft.propose(longer, Plan("it", 1, 1), SeededRandom(1))
    assert backend.committed == [0, 0, 1, 2]
    merged = ContractLimits().context((0, 1, 0, 1, 2, 0, 1))
    assert draft.behind(merged) == 1  # "ab" in the place of "a"
    assert draft.tokens_left(merged) == 4


def test_what_it_cannot_read_it_does_not_draft_for() -> None:
    draft = drafter(TableBackend(random_table(4, 3), 4), Chain(), [b"a"])
    text = ContractLimits().context((1, 2))
    assert draft.behind(text) == draft.tokens_left(text) == 0
    assert len(draft.propose(text, Plan("it", 2, 2), SeededRandom(1))) == 0
