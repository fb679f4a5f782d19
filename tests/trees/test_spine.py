"""Siblings beside a coupled chain: which are added, in what order, and what stays as it was without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.acceptance import Acceptance
from localspec.engine.distribution import Law
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import Plan, Traits, never
from localspec.engine.randomness import SeededChooser
from localspec.settings.request import Speculation
from localspec.speculation.capabilities import Held, fit_axes
from localspec.speculation.resolve import Axes, resolve_axes
from localspec.trees.argument import MAX_LEAVES
from localspec.trees.spine import MOST, WIDEST, Spine
from localspec.trees.static import Chain
from tests.trees.test_trees import RandomLaws

PLAN = Plan("d", max_nodes=9, max_depth=3, draw=Draw.COUPLED, learned=Acceptance(Draw.COUPLED))
POSITION = 7


def grown(seed: int, plan: Plan, laws: RandomLaws | None = None, policy: Spine | Chain | None = None) -> Draft:
    return (policy or Spine()).grow(5, POSITION, laws or RandomLaws(seed), plan, SeededChooser(seed))


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
    laws = RandomLaws(seed)
    draft = grown(seed, replace(PLAN, widen=lambda n_nodes, promise: promise > 0.0), laws)
    chain = grown(seed, PLAN, policy=Chain())
    assert draft.tokens[:4].tolist() == chain.tokens.tolist()
    assert draft.parents[:4].tolist() == [-1, 0, 1, 2]
    assert len(draft) == PLAN.max_nodes
    beside = promises(draft)[4:]
    assert beside == sorted(beside, reverse=True)
    assert laws.n_decodes == 2, "a sibling costs the drafter nothing"
    for node in range(3):
        race = SeededChooser(seed).race(POSITION + node, laws.at(tuple(draft.path(node))), WIDEST)
        children = [int(draft.tokens[child]) for child in draft.children[node]]
        assert children == race[: len(children)]
    others = [
        promises_of(laws, draft, node, len(draft.children[node]))
        for node in range(3)
        if len(draft.children[node]) < WIDEST
    ]
    assert max(others, default=0.0) <= min(beside) + 1e-12, "nothing better was left out"


def promises_of(laws: RandomLaws, draft: Draft, node: int, rank: int) -> float:
    """Return what the next child of a node of the chain would promise."""
    found = promises(draft)
    odds = SeededChooser(int(laws._seed)).odds(POSITION + node, laws.at(tuple(draft.path(node))), WIDEST)
    if rank >= len(odds):
        return 0.0
    left = found[node] - sum(found[child] for child in draft.children[node])
    return left * PLAN.acceptance.chance(odds[rank][1], rank)


def test_each_is_asked_for_with_its_promise() -> None:
    """And the first refusal ends it: what comes after promises less."""
    asked: list[tuple[int, float]] = []

    def widen(n_nodes: int, promise: float) -> bool:
        asked.append((n_nodes, promise))
        return n_nodes < 5

    draft = grown(3, replace(PLAN, widen=widen))
    assert len(draft) == 5
    assert asked[0] == (3, MOST), "where nothing could be worth a row nothing is looked at"
    assert asked[-1][0] == 5
    assert [promise for _, promise in asked[1:]] == sorted((promise for _, promise in asked[1:]), reverse=True)


@pytest.mark.parametrize("draw", [Draw.COUPLED, Draw.IID, Draw.FIXED])
def test_without_a_word_it_is_a_chain(draw: Draw) -> None:
    plan = replace(PLAN, draw=draw)
    assert plan.widen is never
    draft, chain = grown(4, plan), grown(4, plan, policy=Chain())
    assert draft.tokens.tolist() == chain.tokens.tolist()
    assert draft.parents.tolist() == chain.parents.tolist()


def test_a_law_of_one_token_has_nothing_beside_it() -> None:
    class Sure(RandomLaws):
        def at(self, path: tuple[int, ...]) -> Law:
            return Law.one_hot(len(path))

    draft = grown(1, replace(PLAN, widen=lambda n_nodes, promise: True), Sure(1))
    assert draft.is_chain
    assert np.array_equal(draft.tokens, [5, 0, 1, 2])


def test_leaves_have_an_end() -> None:
    plan = replace(PLAN, max_nodes=127, max_depth=60, widen=lambda n_nodes, promise: True)
    assert grown(2, plan).n_leaves == MAX_LEAVES


def axes(is_seeded: bool, spoken: Speculation | None = None) -> Axes:
    return resolve_axes(spoken or Speculation(), has_draft=True, is_seeded=is_seeded)


def test_auto_grows_it_under_coupled_noise_alone() -> None:
    """What was asked for by name is what is grown."""
    assert isinstance(axes(is_seeded=True).policy, Spine)
    assert isinstance(axes(is_seeded=False, spoken=Speculation(verify="coupled")).policy, Spine)
    assert isinstance(axes(is_seeded=False).policy, Chain)
    assert isinstance(axes(is_seeded=True, spoken=Speculation("draft-model")).policy, Chain)
    assert isinstance(axes(is_seeded=True, spoken=Speculation(length="confidence:0.5")).policy, Chain)


@pytest.mark.parametrize(("max_leaves", "policy"), [(1, Chain), (15, Chain), (16, Spine)])
def test_a_cache_without_branches_gets_a_chain(max_leaves: int, policy: type) -> None:
    held = Held("llama", Traits(can_rollback=True, max_leaves=max_leaves, max_rows=128, n_ctx=512, n_vocab=9), False)
    fitted = fit_axes(axes(is_seeded=True), Speculation(), held, held)
    assert isinstance(fitted.axes.policy, policy)
    assert fitted.axes.shape.leaves == (16 if policy is Spine else 1)
    assert fitted.axes.method == "draft-model"
    assert fitted.warnings == ()
