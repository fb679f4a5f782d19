"""How much is accepted, against formulas: the rules are not only exact but as good as their papers say.

Every expectation is the exact one over all branches of one pass.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from localspec.engine.draft import Draw, Step
from localspec.trees.static import Static
from localspec.verify.block import BlockVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import EXACT, OPEN, PROMPT, Setup, passes
from tests.exact.reference import reference_dist

IID, WOR, FIXED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED
SEEDS = range(6)
DISTS = {
    "open": OPEN,
    "filtered": replace(OPEN, temperature=0.7, top_k=2, repeat_penalty=1.25),
    "hot": replace(OPEN, temperature=2.0, min_p=0.05),
}


def everywhere(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test under every filter on several pairs of models."""
    for mark in (pytest.mark.parametrize("seed", SEEDS), pytest.mark.parametrize("dists", DISTS)):
        test = mark(test)
    return pytest.mark.thinned(3)(test)


def committed(setup: Setup) -> float:
    """Return E[N], the expected number of tokens one pass commits."""
    return sum(weight * len(step.tokens) for weight, step in passes(setup))


def drafts(setup: Setup) -> Iterator[tuple[float, list[dict[int, float]], list[dict[int, float]], tuple[int, ...]]]:
    """Yield every chain of drawn tokens: its probability, the target's and the draft's distributions along it, the
    tokens.
    """
    target, draft = setup.tables()

    def grow(weight: float, ps: list, qs: list, tokens: tuple[int, ...]) -> Iterator:
        if len(tokens) == setup.depth:
            yield weight, ps, qs, tokens
            return
        text = (*PROMPT, *tokens)
        p = reference_dist(target(text), text, setup.sampling)
        q = reference_dist(draft(text), text, setup.sampling)
        for token, chance in q.items():
            yield from grow(weight * chance, [*ps, p], [*qs, q], (*tokens, token))

    yield from grow(1.0, [], [], ())


@everywhere
def test_token_rule_accepts_the_overlap(dists: str, seed: int) -> None:
    """E[N] = 1 + sum A_k, where A_k is the chance that k tokens in a row survive min(1, p/q) (2211.17192)."""
    setup = Setup(TokenVerifier(), depth=3, nodes=3, sampling=DISTS[dists], seed=seed, max_tokens=99)
    expected = 1.0
    for weight, ps, qs, tokens in drafts(setup):
        survives = weight
        for p, q, token in zip(ps, qs, tokens, strict=True):
            survives *= min(1.0, p.get(token, 0.0) / q[token])
            expected += survives
    assert committed(setup) == pytest.approx(expected, abs=EXACT)


@everywhere
def test_block_rule_accepts_its_weights(dists: str, seed: int) -> None:
    """E[N] = 1 + sum E[w_i] with w_i = min(1, w_{i-1} p/q): the chance that at least i tokens are kept (2403.10444)."""
    setup = Setup(BlockVerifier(), depth=3, nodes=3, sampling=DISTS[dists], seed=seed, max_tokens=99)
    expected = 1.0
    for weight, ps, qs, tokens in drafts(setup):
        w = 1.0
        for p, q, token in zip(ps, qs, tokens, strict=True):
            w = min(1.0, w * p.get(token, 0.0) / q[token])
            expected += weight * w
    assert committed(setup) == pytest.approx(expected, abs=EXACT)


@everywhere
def test_match_accepts_what_the_target_would_say(dists: str, seed: int) -> None:
    """A chosen chain y under sample-and-match: E[N] = 1 + sum of prod p(y_i), and no residual rule does better."""
    setup = Setup(MatchVerifier(), depth=3, nodes=3, draw=FIXED, sampling=DISTS[dists], seed=seed, max_tokens=99)
    target, draft = setup.tables()
    text, survives, expected = PROMPT, 1.0, 1.0
    for _ in range(setup.depth):
        q = reference_dist(draft(text), text, setup.sampling)
        token = max(q, key=lambda token: q[token])
        survives *= reference_dist(target(text), text, setup.sampling).get(token, 0.0)
        expected += survives
        text = (*text, token)
    for rule in (MatchVerifier(), TokenVerifier(), BlockVerifier(), TreeVerifier(), TraversalVerifier()):
        assert committed(replace(setup, verifier=rule)) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("dists", DISTS)
def test_block_is_never_worse_than_token(dists: str) -> None:
    """Block verification accepts at least as much on every pair, strictly more on some."""
    gains = []
    for seed in SEEDS:
        setup = Setup(TokenVerifier(), depth=3, nodes=3, sampling=DISTS[dists], seed=seed, max_tokens=99)
        gains.append(committed(replace(setup, verifier=BlockVerifier())) - committed(setup))
    assert min(gains) > -EXACT
    assert max(gains) > 1e-3


@pytest.mark.parametrize("draw", [IID, WOR])
@pytest.mark.parametrize("dists", DISTS)
def test_traversal_is_never_worse_than_tree(dists: str, draw: Draw) -> None:
    """Traversal accepts at least as much as top-down rejection on the same trees, strictly more on some."""
    gains = []
    for seed in SEEDS:
        setup = Setup(TreeVerifier(), Static((2, 1)), 4, 2, draw, sampling=DISTS[dists], seed=seed, max_tokens=99)
        gains.append(committed(replace(setup, verifier=TraversalVerifier())) - committed(setup))
    assert min(gains) > -EXACT
    assert max(gains) > 1e-4


def outcomes(setup: Setup) -> dict[tuple[tuple[int, ...], int, int], float]:
    """Return the joint distribution of (drafted tokens, how many were accepted, the target's own token)."""
    dist: dict[tuple[tuple[int, ...], int, int], float] = {}
    for weight, step in passes(setup):
        dist[_outcome(step)] = dist.get(_outcome(step), 0.0) + weight
    return dist


def _outcome(step: Step) -> tuple[tuple[int, ...], int, int]:
    return tuple(step.draft.tokens.tolist()), len(step.verdict.path), step.verdict.token


@everywhere
@pytest.mark.parametrize(
    ("one", "other"),
    [(TokenVerifier(), TreeVerifier()), (BlockVerifier(), TraversalVerifier())],
    ids=["token", "block"],
)
def test_tree_rules_are_chain_rules_on_chains(one, other, dists: str, seed: int) -> None:
    """On a chain, tree rejection is the token rule and traversal the block rule: the same joint distribution with the
    draft.
    """
    setup = Setup(one, depth=3, nodes=3, sampling=DISTS[dists], seed=seed, max_tokens=99)
    left, right = outcomes(setup), outcomes(replace(setup, verifier=other))
    assert all(abs(left.get(key, 0.0) - right.get(key, 0.0)) < EXACT for key in left.keys() | right.keys())


@pytest.mark.parametrize("dists", DISTS)
def test_more_children_are_never_worse(dists: str) -> None:
    """A second child raises what tree rejection accepts; without replacement it is worth more, on these pairs."""
    for seed in SEEDS:
        setup = Setup(TreeVerifier(), Static((1,)), 1, 1, WOR, sampling=DISTS[dists], seed=seed, max_tokens=99)
        one = committed(setup)
        two = committed(replace(setup, policy=Static((2,)), nodes=2))
        twice = committed(replace(setup, policy=Static((2,)), nodes=2, draw=IID))
        assert one - EXACT < twice < two + EXACT
