"""The distribution test on recorded rows: every shipped rule passes, and well-known wrong ones are caught."""

from collections import Counter

import numpy as np
import pytest

from localspec.engine.distribution import Distribution, residual
from localspec.engine.draft import Draw
from localspec.engine.protocols import Plan, TreePolicy, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Intersection, SameTokens
from localspec.lossless.recorded import (
    DEPTH,
    OTHER,
    ModelDistributions,
    Recording,
    TriedRule,
    cells,
    draw,
    record,
    try_rule,
)
from localspec.settings.request import Sampling
from localspec.testing.contract import TableBackend, random_table
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.wrong import Rejection, Resampling, absolute_residual, inverted, only_if_likelier, the_target
from tests.lexicons import lexicon

N_VOCAB = 6
ALPHA = 1e-5
SAMPLER = Sampler(Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0))


@pytest.fixture(scope="module")
def recording() -> Recording:
    table = random_table(N_VOCAB, 3, scale=1.0)
    target = TableBackend(table, N_VOCAB)
    draft = TableBackend(random_table(N_VOCAB, 4, near=table, distance=0.8), N_VOCAB)
    same = SameTokens(N_VOCAB, N_VOCAB)
    return record((1, 2, 3), ModelDistributions(target, SAMPLER, same), ModelDistributions(draft, SAMPLER, same))


def test_a_draft_with_other_tokens_is_recorded_in_the_targets() -> None:
    """The draft numbers the same tokens backwards, so each path is fed to it by its own numbers."""
    table, texts = random_table(N_VOCAB, 3, scale=1.0), [b"%d" % token for token in range(N_VOCAB)]
    backwards = Intersection(lexicon(texts), lexicon(texts[::-1]))
    draft = TableBackend(lambda tokens: table(tuple(N_VOCAB - 1 - t for t in tokens))[::-1], N_VOCAB)
    same = SameTokens(N_VOCAB, N_VOCAB)
    judged = ModelDistributions(TableBackend(table, N_VOCAB), SAMPLER, same)
    found = record((1, 2, 3), judged, ModelDistributions(draft, SAMPLER, backwards))
    for path, dist in found.draft.items():
        target = found.target[path].at(dist.ids)
        assert dist.probs == pytest.approx(target / target.sum())


def rule(verifier: Verifier, policy: TreePolicy, draw: Draw) -> TriedRule:
    shape = policy.shape(DEPTH)
    return TriedRule(policy, Plan("it", shape.nodes, min(DEPTH, shape.depth), draw), verifier)


RIGHT = [
    (TokenVerifier(), Chain(), Draw.IID),
    (BlockVerifier(), Chain(), Draw.IID),
    (TreeVerifier(), Static((2, 2)), Draw.WITHOUT_REPLACEMENT),
    (TraversalVerifier(), Static((2, 1, 1)), Draw.WITHOUT_REPLACEMENT),
    (CoupledVerifier(), Static((3, 2)), Draw.COUPLED),
    (MatchVerifier(), Chain(), Draw.FIXED),
]


def one_of_the_others(p: Distribution, q: Distribution, token: int) -> Distribution:
    """Return the residual with all that the draft cannot say given to one token of it: the total is right."""
    dist = residual(p, q).dist
    is_other = ~np.isin(dist.ids, q.ids)
    if not is_other.any():
        return dist
    weights = np.where(is_other, 0.0, dist.probs)
    weights[np.flatnonzero(is_other)[0]] = dist.probs[is_other].sum()
    return Distribution.of(dist.ids, weights)


def never_the_others(p: Distribution, q: Distribution, token: int) -> Distribution:
    """Return a token that the target excludes in the place of those that the draft cannot say."""
    dist = residual(p, q).dist
    is_other = ~np.isin(dist.ids, q.ids)
    return Distribution.one_hot(N_VOCAB) if is_other.any() else dist


WRONG = [
    Rejection(correct=one_of_the_others),
    Rejection(correct=never_the_others),
    Rejection(correct=the_target),
    Rejection(correct=absolute_residual),
    Rejection(accept=only_if_likelier),
    Rejection(accept=inverted),
    Rejection(bonus_row=1),
    Resampling(),
]


def test_the_recording_is_what_the_models_say(recording: Recording) -> None:
    """Every path has both distributions; the draft's has the likeliest tokens only; caches hold the text alone."""
    table = random_table(N_VOCAB, 3, scale=1.0)
    assert len(recording.target) == 1 + 3 + 9 + 27
    for path, dist in recording.target.items():
        expected = SAMPLER.dist(table((1, 2, 3, *path)))
        assert dist.at(expected.ids) == pytest.approx(expected.probs)
        assert len(recording.follows[path]) == 3


def test_cells_are_a_dist(recording: Recording) -> None:
    """They exclude each other, sum to one, and end at full depth or in a token that is not followed."""
    least = 0.01
    found = dict(cells(recording, least))
    assert sum(found.values()) == pytest.approx(1.0)
    assert all(OTHER not in cell[:-1] for cell in found)
    assert any(cell[-1] == OTHER for cell in found)
    unfollowed = {cell: p for cell, p in found.items() if cell[-1] not in (OTHER, *recording.follows[cell[:-1]])}
    assert unfollowed, "tokens that are likely and not followed"
    assert min(unfollowed.values()) >= least
    assert all(len(cell) == DEPTH + 1 for cell in found.keys() - unfollowed.keys() if cell[-1] != OTHER)


@pytest.mark.parametrize(("verifier", "policy", "way"), RIGHT, ids=lambda value: getattr(value, "name", ""))
def test_right_rules_pass(recording: Recording, verifier: Verifier, policy: TreePolicy, way: Draw) -> None:
    trial = try_rule(recording, rule(verifier, policy, way), draws=1500, alpha=ALPHA, seed=5, cancel=lambda: False)
    assert trial.outcome.p_value > ALPHA
    assert trial.outcome.impossible == 0
    assert trial.outcome.df > 8
    assert trial.accepted > 0.2


@pytest.mark.parametrize("verifier", WRONG, ids=range(len(WRONG)))
def test_wrong_rules_are_caught(recording: Recording, verifier: Verifier) -> None:
    way = Draw.FIXED if isinstance(verifier, Resampling) else Draw.IID
    trial = try_rule(recording, rule(verifier, Chain(), way), draws=1500, alpha=ALPHA, seed=5, cancel=lambda: False)
    assert trial.outcome.p_value < ALPHA


def test_draws_of_plain_decoding_have_the_dist(recording: Recording) -> None:
    """A plan without nodes: every token is a plain pass of its own."""
    plain = TriedRule(Chain(), Plan("it", 0, 0), MatchVerifier())
    counts = Counter(draw(recording, plain, SeededRandom(i)) for i in range(300))
    assert all(accepted == 0 for _, accepted in counts)
    assert {text for text, _ in counts} <= dict(cells(recording, 0.0)).keys()


def test_a_cancel_ends_the_draws(recording: Recording) -> None:
    calls = iter(range(100))
    trial = try_rule(
        recording,
        rule(TokenVerifier(), Chain(), Draw.IID),
        draws=50,
        alpha=ALPHA,
        seed=0,
        cancel=lambda: next(calls) >= 7,
    )
    assert trial.outcome.n == 7
