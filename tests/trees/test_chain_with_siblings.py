"""Siblings beside a coupled chain: which are added, in what order, and what stays as it was without them."""

from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.acceptance import Acceptance
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import Capabilities, Plan
from localspec.engine.randomness import SeededRandom
from localspec.settings.request import Speculation
from localspec.speculation.capabilities import ModelCapabilities, fit_axes
from localspec.speculation.resolve import Axes, resolve_axes
from localspec.trees.budget import MAX_LEAVES
from localspec.trees.chain_with_siblings import MAX_SIBLING_GAIN, WIDEST, ChainWithSiblings
from localspec.trees.static import Chain
from tests.trees.test_trees import RandomDistributions

PLAN = Plan("d", max_nodes=9, max_depth=3, draw=Draw.COUPLED, learned=Acceptance(Draw.COUPLED))
POSITION = 7


def grown(
    seed: int, plan: Plan, dists: RandomDistributions | None = None, policy: ChainWithSiblings | Chain | None = None
) -> Draft:
    return (policy or ChainWithSiblings()).grow(
        5, POSITION, dists or RandomDistributions(seed), plan, SeededRandom(seed)
    )


def promises(draft: Draft) -> list[float]:
    """Return the chance of every node of a spine to be the accepted one of its level, by the books."""
    left = {0: 1.0}
    ranks: dict[int, int] = {}
    found = [1.0]
    for node in range(1, len(draft.tokens)):
        parent = int(draft.parents[node])
        rank = ranks.get(parent, 0)
        found.append(left[parent] * PLAN.acceptance.chance(draft.share(node), rank))
        left[parent] -= found[node]
        left[node] = found[node]
        ranks[parent] = rank + 1
    return found


@pytest.mark.parametrize("seed", range(12))
def test_free_rows_are_filled_with_what_promises_most(seed: int) -> None:
    """The chain as it is without siblings; then the next of its races, each promising no more than the one before."""
    dists = RandomDistributions(seed)
    draft = grown(seed, replace(PLAN, widen=lambda n_nodes, expected_gain: expected_gain > 0.0), dists)
    chain = grown(seed, PLAN, policy=Chain())
    assert draft.tokens[:4].tolist() == chain.tokens.tolist()
    assert draft.parents[:4].tolist() == [-1, 0, 1, 2]
    assert len(draft) == PLAN.max_nodes
    beside = promises(draft)[4:]
    assert beside == sorted(beside, reverse=True)
    assert dists.n_decodes == 2, "a sibling costs the drafter nothing"
    for node in range(3):
        gumbel_top_k = SeededRandom(seed).gumbel_top_k(POSITION + node, dists.at(tuple(draft.path(node))), WIDEST)
        children = [int(draft.tokens[child]) for child in draft.children[node]]
        assert children == gumbel_top_k[: len(children)]
    others = [
        promises_of(dists, draft, node, len(draft.children[node]))
        for node in range(3)
        if len(draft.children[node]) < WIDEST
    ]
    assert max(others, default=0.0) <= min(beside) + 1e-12, "nothing better was left out"


def promises_of(dists: RandomDistributions, draft: Draft, node: int, rank: int) -> float:
    found = promises(draft)
    gumbel_top_k_margins = SeededRandom(int(dists._seed)).gumbel_top_k_margins(
        POSITION + node, dists.at(tuple(draft.path(node))), WIDEST
    )
    if rank >= len(gumbel_top_k_margins):
        return 0.0
    left = found[node] - sum(found[child] for child in draft.children[node])
    return left * PLAN.acceptance.chance(gumbel_top_k_margins[rank][1], rank)


def test_each_is_asked_for_with_its_promise() -> None:
    """And the first refusal ends it: what comes after promises less."""
    asked: list[tuple[int, float]] = []

    def widen(n_nodes: int, expected_gain: float) -> bool:
        asked.append((n_nodes, expected_gain))
        return n_nodes < 5

    draft = grown(3, replace(PLAN, widen=widen))
    assert len(draft) == 5
    assert asked[0] == (3, MAX_SIBLING_GAIN), "where nothing could be worth a row nothing is looked at"
    assert asked[-1][0] == 5
    assert [expected_gain for _, expected_gain in asked[1:]] == sorted(
        (expected_gain for _, expected_gain in asked[1:]), reverse=True
    )


@pytest.mark.parametrize("draw", [Draw.COUPLED, Draw.IID, Draw.FIXED])
def test_without_a_word_it_is_a_chain(draw: Draw) -> None:
    plan = replace(PLAN, draw=draw)
    assert not plan.widen(1, MAX_SIBLING_GAIN)
    draft, chain = grown(4, plan), grown(4, plan, policy=Chain())
    assert draft.tokens.tolist() == chain.tokens.tolist()
    assert draft.parents.tolist() == chain.parents.tolist()


def test_a_dist_of_one_token_has_nothing_beside_it() -> None:
    class Sure(RandomDistributions):
        def at(self, path: tuple[int, ...]) -> Distribution:
            return Distribution.one_hot(len(path))

    draft = grown(1, replace(PLAN, widen=lambda n_nodes, expected_gain: True), Sure(1))
    assert draft.is_chain
    assert np.array_equal(draft.tokens, [5, 0, 1, 2])


def test_leaves_have_an_end() -> None:
    plan = replace(PLAN, max_nodes=127, max_depth=60, widen=lambda n_nodes, expected_gain: True)
    assert grown(2, plan).n_leaves == MAX_LEAVES


def axes(is_seeded: bool, spoken: Speculation | None = None) -> Axes:
    return resolve_axes(spoken or Speculation(), has_draft=True, is_seeded=is_seeded)


def test_auto_grows_it_under_coupled_noise_alone() -> None:
    """What was asked for by name is what is grown."""
    assert isinstance(axes(is_seeded=True).policy, ChainWithSiblings)
    assert isinstance(axes(is_seeded=False, spoken=Speculation(verify="coupled")).policy, ChainWithSiblings)
    assert isinstance(axes(is_seeded=False).policy, Chain)
    assert isinstance(axes(is_seeded=True, spoken=Speculation("draft-model")).policy, Chain)
    assert isinstance(axes(is_seeded=True, spoken=Speculation(length="confidence:0.5")).policy, Chain)


@pytest.mark.parametrize(("max_leaves", "policy"), [(1, Chain), (15, Chain), (16, ChainWithSiblings)])
def test_a_cache_without_branches_gets_a_chain(max_leaves: int, policy: type) -> None:
    held = ModelCapabilities(
        "llama", Capabilities(can_rollback=True, max_leaves=max_leaves, max_rows=128, n_ctx=512, n_vocab=9), False
    )
    fitted = fit_axes(axes(is_seeded=True), Speculation(), held, held)
    assert isinstance(fitted.axes.policy, policy)
    assert fitted.axes.shape.leaves == (16 if policy is ChainWithSiblings else 1)
    assert fitted.axes.method == "draft-model"
    assert fitted.warnings == ()
