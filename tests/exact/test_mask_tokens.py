"""Mask tokens keep the target's distribution: the guesses of a pass are drawn, verified and replaced in the next.

Whole generations, every branch of chance replayed. A row of a wrong node, or one of an older pass, is a worse guess and
no error; a distribution that a token was not drawn from would show.
"""

from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import History, Plan, RandomSource, TreePolicy, Verifier
from localspec.engine.sampling import Sampler
from localspec.methods.mask_tokens import MaskTokens
from localspec.settings.request import Sampling
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import (
    FILTERS,
    OPEN,
    Setup,
    answers,
    assert_exact,
    assert_texts_are_plain,
    target_answers,
    total_variation,
    watched,
)

MASKS = (3, 4)  # behind the vocabulary of three
WITHOUT = Draw.WITHOUT_REPLACEMENT
CASES: dict[str, tuple[Verifier, TreePolicy, int, Draw]] = {
    "token": (TokenVerifier(), Chain(), 2, Draw.IID),
    "block": (BlockVerifier(), Chain(), 2, Draw.IID),
    "match": (MatchVerifier(), Chain(), 2, Draw.FIXED),
    "tree": (TreeVerifier(), Static((2, 1)), 4, WITHOUT),
    "traversal": (TraversalVerifier(), Static((2, 1)), 4, WITHOUT),
}


def setup_of(case: str, kind: type[MaskTokens] = MaskTokens, sampling: Sampling = OPEN, **settings: Any) -> Setup:
    rule, policy, k, draw = CASES[case]
    shape = MaskTokens.pass_shape(policy.shape(k))
    setup = Setup(
        rule,
        policy,
        nodes=shape.nodes,
        depth=shape.depth,
        draw=draw,
        sampling=sampling,
        drafter=lambda table: kind(MASKS, Sampler(sampling), policy),
    )
    return replace(setup, **settings)


@pytest.mark.slow
@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("filters", FILTERS)
def test_whole_generations(case: str, temperature: float, filters: str) -> None:
    """Five tokens: the second pass drafts two from the first, a third from masks below an accepted node or the root."""
    sampling = replace(FILTERS[filters], temperature=temperature)
    setup = setup_of(case, sampling=sampling, seed=3, max_tokens=5)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("case", CASES)
def test_temperature_zero_is_the_argmax(case: str) -> None:
    for seed in range(5):
        setup = setup_of(case, sampling=replace(OPEN, temperature=0.0), seed=seed, max_tokens=20)
        dist = answers(setup)
        assert len(dist) == 1
        assert_exact(dist, target_answers(setup))


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("policy", [Chain(), Static((2, 1))], ids=["chain", "tree"])
def test_coupled_noise_keeps_the_text(filters: str, policy: TreePolicy) -> None:
    """With the noise of a seed the text is that of plain decoding with this seed."""
    shape = MaskTokens.pass_shape(policy.shape(2))
    sampling = FILTERS[filters]
    setup = Setup(
        CoupledVerifier(), nodes=shape.nodes, depth=shape.depth, draw=Draw.COUPLED, sampling=sampling, max_tokens=30,
        drafter=lambda table: MaskTokens(MASKS, Sampler(sampling), policy),
    )  # fmt: skip
    assert_texts_are_plain(setup)


def test_the_guesses_are_used() -> None:
    """The answers of this file meet drafts that are kept whole, in part and not at all, and passes without any."""
    kind = watched(MaskTokens)
    answers(setup_of("token", kind, seed=3, max_tokens=5))
    assert kind.seen >= {(0, 0), (2, 0), (2, 1), (2, 2)}


class Careless(MaskTokens):
    """Says of the first token that it was drawn from what the second was drawn from."""

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        draft = super().propose(history, plan, rng)
        if draft.depth < 2:
            return draft
        return replace(draft, dists=(None, draft.dists[2], *draft.dists[2:]))


def test_another_distribution_than_the_drawn_is_caught() -> None:
    """The control: the very same tokens under a wrong label."""
    right = setup_of("token", seed=3, max_tokens=5)
    wrong = setup_of("token", Careless, seed=3, max_tokens=5)
    bias = total_variation(answers(wrong), target_answers(wrong))
    print(f"total variation {bias:.4f}")
    assert bias > 0.01
    assert_exact(answers(right), target_answers(right))
