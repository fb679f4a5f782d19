"""Mask tokens: the contract, where the masks stand, and whose guesses become the next draft."""

from typing import ClassVar

import numpy as np
import pytest

from localspec.engine.draft import Draft, Draw, Step
from localspec.engine.loop import Engine
from localspec.engine.protocols import History, Plan, RandomSource, Rows, Shape, TreePolicy
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.errors import UsageError
from localspec.methods.mask_tokens import MOST_NODES, MaskTokens
from localspec.methods.plain import Plain
from localspec.settings.request import Sampling, Speculation
from localspec.speculation.resolve import resolve_axes
from localspec.testing.contract import (
    ContractLimits,
    DrafterContract,
    DrafterUnderTest,
    Scripted,
    Table,
    TableBackend,
    random_table,
)
from localspec.trees.budget import MAX_LEAVES, MAX_NODES
from localspec.trees.dyspec import DySpec
from localspec.trees.eagle2 import Eagle2
from localspec.trees.static import Chain, Static
from localspec.verify.match import MatchVerifier

GREEDY = Sampling(temperature=0.0)
KIND = "mask-tokens"


class TestMaskTokens(DrafterContract):
    """With budgets that hold the masks alone, and with some that hold trees with masks below each node."""

    policies: ClassVar[tuple[tuple[TreePolicy, int, int], ...]] = (
        (Chain(), 1, 1),
        (Chain(), 8, 2),
        (Chain(), 15, 3),
        (Static((2, 2)), 20, 2),
        (Static((3, 2, 1)), 5, 2),
    )

    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        return DrafterUnderTest(MaskTokens((2, 3), Sampler(Sampling()), policy))


class Watched(MaskTokens):
    """Checks each draft by the target's table: its shape, and whose rows it was grown from."""

    def __init__(self, masks: tuple[int, ...], policy: TreePolicy, table: Table) -> None:
        super().__init__(masks, Sampler(GREEDY), policy)
        self.table = table
        self.drafts: list[Draft] = []
        self.kept: list[int] = []

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        draft = super().propose(history, plan, rng)
        self.drafts.append(draft)
        if isinstance(self._policy, Chain):
            text = tuple(history.tokens[:-1])  # the masks stood behind the last node that was kept
            seen = [(*text, *self._masks[: i + 1].tolist()) for i in range(len(self._masks))]
            guessed = [int(self.table(each).argmax()) for each in seen]
            drafted = draft.tokens[1 : self._n_nodes].tolist()
            assert drafted == guessed[: len(drafted)]
        return draft

    def observe(self, step: Step, rows: Rows) -> None:
        super().observe(step, rows)
        self.kept.append(len(step.kept))


def run(policy: TreePolicy, k: int, masks: tuple[int, ...], *, is_perfect: bool = False, n_ctx: int = 200) -> Watched:
    """Generate to the end with a target that repeats itself often, so that drafts are accepted in part."""
    table = random_table(4, 5, scale=3.0)
    if is_perfect:
        table = _counting
    shape = MaskTokens.pass_shape(policy.shape(k))
    drafter = Watched(masks, policy, table)
    context = ContractLimits(max_tokens=60, n_ctx=n_ctx).context((0, 1, 2, 1))
    engine = Engine.local(
        TableBackend(table, 4, n_ctx), {"it": drafter}, MatchVerifier(),
        Scripted([Plan("it", shape.nodes, shape.depth, Draw.FIXED)]),
        Sampler(GREEDY), SeededRandom(3), lambda: 0.0, lambda: False,
    )  # fmt: skip
    for _ in engine.generate(context):
        pass
    return drafter


def _counting(tokens: tuple[int, ...]) -> np.ndarray:
    """Be certain of the place modulo 4, whatever the tokens are: masks guess right."""
    row = np.zeros(4, np.float32)
    row[len(tokens) % 4] = 9.0
    return row


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_masks_below_the_kept_node_draft(k: int) -> None:
    """Watched checks every draft. Drafts are kept whole, in part and not at all."""
    drafter = run(Chain(), k, (7, 8, 9))
    assert max(draft.depth for draft in drafter.drafts) == min(k, 3)
    assert len(set(drafter.kept)) > 1


def test_a_target_whose_masks_guess_right_accepts_all() -> None:
    drafter = run(Chain(), 3, (7, 8, 9), is_perfect=True)
    assert drafter.kept[0] == 1, "the first pass has masks and no draft"
    assert drafter.kept[1:-1] == [4] * (len(drafter.kept) - 2)


@pytest.mark.parametrize("policy", [Chain(), Static((2, 2)), Eagle2(6), DySpec(6)], ids=lambda p: p.name)
def test_a_chain_of_masks_stands_below_each_node(policy: TreePolicy) -> None:
    """The masks are scratch nodes that see the node's path and the masks before them; all rows are wanted."""
    bound = MaskTokens.pass_shape(policy.shape(3))
    drafter = run(policy, 3, (7, 8, 9))
    for draft in drafter.drafts[:-3]:  # the last may be cut
        n = 1 + len(draft) - int(draft.scratch.sum())
        k = int(draft.scratch.sum()) // n
        assert not draft.scratch[:n].any()
        assert draft.outputs.all()
        for node in range(n):
            tip = n + k * node + k - 1
            assert draft.path(tip) == [*draft.path(node), 7, 8, 9][: len(draft.path(node)) + k]
        assert len(draft) <= bound.nodes
        assert draft.depth <= bound.depth
        assert draft.n_leaves <= bound.leaves


@pytest.mark.parametrize("n_ctx", range(6, 40))
def test_near_the_end_of_the_context(n_ctx: int) -> None:
    """Fewer nodes and masks fit; the table asserts that every node has a cell."""
    drafter = run(Static((2, 2)), 6, (7, 8), n_ctx=n_ctx)
    assert drafter.drafts


def test_another_pass_in_between_ends_the_guesses() -> None:
    """They tell of one place in the text."""
    table = random_table(4, 5)
    drafter = MaskTokens((7, 8), Sampler(GREEDY), Chain())
    context = ContractLimits(max_tokens=40, n_ctx=200).context((0, 1, 2, 1))
    plans = [Plan("it", 8, 2, Draw.FIXED), Plan("plain")]
    engine = Engine.local(
        TableBackend(table, 4, 200), {"it": drafter, "plain": Plain()}, MatchVerifier(), Scripted(plans),
        Sampler(GREEDY), SeededRandom(3), lambda: 0.0, lambda: False,
    )  # fmt: skip
    assert all(step.n_drafted == 0 for step in engine.generate(context))


def test_the_widest_tree_has_sequences() -> None:
    """Where the masks become few, the nodes must not become more than there are sequences."""
    assert MOST_NODES + 1 == MAX_LEAVES
    drafter = MaskTokens((7,), Sampler(Sampling(temperature=1.0)), Static((4, 4, 4)))
    drafter._rows, drafter._at = [np.zeros(8, np.float32)] * 3, 2
    draft = drafter.propose(ContractLimits().context((0, 1)), Plan("it", MAX_NODES, 3, Draw.COUPLED), SeededRandom(1))
    assert draft.n_leaves == MAX_LEAVES


def test_the_axes() -> None:
    """A chain stays one for the rules; the shape of the pass counts the masks."""
    axes = resolve_axes(Speculation(method=KIND), has_draft=True, is_seeded=False, draft_kind=KIND)
    assert (axes.verify, axes.draw, axes.shape) == ("block", Draw.IID, Shape(nodes=15, depth=3, leaves=4))
    tree = Speculation(method=KIND, tree="eagle2:8,depth=3")
    axes = resolve_axes(tree, has_draft=True, is_seeded=True, draft_kind=KIND)
    assert (axes.verify, axes.shape) == ("coupled", Shape(nodes=8 + 3 * 9, depth=3, leaves=9))
    axes = resolve_axes(Speculation(method="draft-model"), has_draft=True, is_seeded=False, draft_kind=KIND)
    assert axes.method == KIND


def test_auto_decodes_plainly() -> None:
    """Its rows cost more than they save on a processor."""
    axes = resolve_axes(Speculation(), has_draft=True, is_seeded=False, draft_kind=KIND)
    assert (axes.method, axes.shape.nodes, axes.is_automatic) == ("plain", 0, True)


@pytest.mark.parametrize("asked", [Speculation(method=KIND, k=16), Speculation(method=KIND, tree="eagle2:32")])
def test_a_pass_that_is_too_wide(asked: Speculation) -> None:
    with pytest.raises(UsageError, match="a pass takes at most 127 with 32 leaves"):
        resolve_axes(asked, has_draft=True, is_seeded=False, draft_kind=KIND)


def test_a_pair_without_masks_is_refused() -> None:
    with pytest.raises(UsageError, match="--method mask-tokens needs a file of mask tokens, and the pair has none"):
        resolve_axes(Speculation(method=KIND), has_draft=False, is_seeded=False)
    with pytest.raises(UsageError, match="needs a file of mask tokens, and the pair has a draft model"):
        resolve_axes(Speculation(method=KIND), has_draft=True, is_seeded=False, draft_kind="model")
