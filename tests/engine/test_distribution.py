"""Distributions and residuals: the arithmetic that every verifier stands on, against dense arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.distribution import TINY, Distribution, residual

SIZE = 8
weights = st.lists(st.just(0.0) | st.floats(1e-9, 1.0), min_size=SIZE, max_size=SIZE).filter(any)


def dist_of(values: list[float]) -> Distribution:
    return Distribution.of(np.arange(SIZE, dtype=np.int32), np.array(values))


def dense(dist: Distribution) -> np.ndarray:
    probs = np.zeros(SIZE)
    probs[dist.ids] = dist.probs
    return probs


@given(weights)
def test_a_dist_is_its_normalised_weights(values: list[float]) -> None:
    """Zeros leave the support, the rest sums to one, ids stay ascending."""
    dist = dist_of(values)
    assert dense(dist) == pytest.approx(np.array(values) / sum(values))
    assert (dist.probs > 0.0).all()
    assert (np.diff(dist.ids) > 0).all()
    assert dist.probs.sum() == pytest.approx(1.0)


@given(weights, st.lists(st.integers(0, SIZE + 3), unique=True, min_size=1).map(sorted))
def test_lookups_agree_with_the_dense_array(values: list[float], ids: list[int]) -> None:
    """`prob` and `at` give zero outside the support, also past its last token; `top` is the greatest."""
    dist = dist_of(values)
    truth = np.append(dense(dist), np.zeros(4))
    assert [dist.prob(token) for token in ids] == truth[ids].tolist()
    assert dist.at(np.array(ids, np.int32)).tolist() == truth[ids].tolist()
    assert dist.at(dist.ids).tolist() == dist.probs.tolist()
    assert dist.top == truth.max()


@given(weights, st.integers(0, SIZE - 1))
def test_without_is_the_dist_given_that_it_is_another_token(values: list[float], token: int) -> None:
    """Conditioning zeroes the token and renormalises; None when nothing is left."""
    dist = dist_of(values)
    rest = dist.without(token)
    left = dense(dist)
    left[token] = 0.0
    if not left.any():
        assert rest is None
    else:
        assert rest is not None
        assert dense(rest) == pytest.approx(left / left.sum())


def test_a_point_mass() -> None:
    """One token with probability one."""
    dist = Distribution.one_hot(5)
    assert (dist.prob(5), dist.prob(4), dist.prob(6)) == (1.0, 0.0, 0.0)
    assert dist.top == 1.0
    assert dist.without(5) is None


@given(weights, weights, st.floats(0.01, 1.0))
def test_the_residual_is_the_positive_part(left: list[float], right: list[float], weight: float) -> None:
    """(weight p - q)+ with its mass, normalised; p itself where nothing but rounding is left."""
    p, q = dist_of(left), dist_of(right)
    truth = np.maximum(weight * dense(p) - dense(q), 0.0)
    rest = residual(p, q, weight)
    assert rest.mass == pytest.approx(truth.sum(), abs=1e-15)
    if rest.mass >= TINY:
        assert dense(rest.dist) == pytest.approx(truth / truth.sum(), abs=1e-9)
    else:
        assert rest.dist is p


@given(weights, weights)
def test_rejection_sampling_adds_up(left: list[float], right: list[float]) -> None:
    """min(p, q) + (1 - sum min(p, q)) residual = p: the identity behind speculative sampling (2211.17192)."""
    p, q = dist_of(left), dist_of(right)
    kept = np.minimum(dense(p), dense(q))
    rest = residual(p, q)
    assert rest.mass == pytest.approx(1.0 - kept.sum(), abs=1e-12)
    assert kept + (1.0 - kept.sum()) * dense(rest.dist) == pytest.approx(dense(p), abs=1e-9)


@given(weights)
def test_equal_dists_leave_no_residual(values: list[float]) -> None:
    """p = q: a rejection can only be rounding, and p is drawn from."""
    p = dist_of(values)
    rest = residual(p, dist_of(values))
    assert rest.mass == 0.0
    assert rest.dist is p


def test_disjoint_supports_leave_p() -> None:
    """q elsewhere: the residual is p with its whole mass."""
    p, q = dist_of([1, 1, 0, 0, 0, 0, 0, 0]), dist_of([0, 0, 0, 1, 0, 0, 0, 2])
    rest = residual(p, q)
    assert rest.mass == pytest.approx(1.0)
    assert dense(rest.dist) == pytest.approx(dense(p))


@pytest.mark.parametrize("left", [1e-3, 1e-6, 1e-9, 1e-11])
def test_a_small_residual_is_no_rounding(left: float) -> None:
    """Rounding is 1e-16; where p and q differ by more, what is left of p is the one token that q is short of."""
    p, q = dist_of([0.5, 0.5, 0, 0, 0, 0, 0, 0]), dist_of([0.5 + left, 0.5 - left, 0, 0, 0, 0, 0, 0])
    rest = residual(p, q)
    assert rest.mass == pytest.approx(left, rel=1e-4)
    assert (rest.dist.ids.tolist(), rest.dist.probs.tolist()) == ([1], [1.0])
