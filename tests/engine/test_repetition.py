"""DRY and XTC against the slow reference, on any text and row; what breakers end."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from localspec.engine.repetition import Dry
from localspec.engine.sampling import Sampler
from localspec.settings.request import Sampling
from tests.exact.reference import reference_dist, softmax

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
DRY = replace(OPEN, dry_multiplier=0.8)


def dist_of(s: Sampling, row: np.ndarray, history: list[int]) -> dict[int, float]:
    dist = Sampler(s).dist(row, history)
    return dict(zip(dist.ids.tolist(), dist.probs.tolist(), strict=True))


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 2), max_size=60),
    st.integers(0, 4),
    st.sampled_from([-1, 0, 3, 10, 64]),
    st.sampled_from([1.0, 1.75]),
)
def test_dry_is_the_reference(text: list[int], allowed: int, last_n: int, base: float) -> None:
    """Texts of three tokens repeat themselves in every way."""
    s = replace(DRY, dry_allowed_length=allowed, dry_penalty_last_n=last_n, dry_base=base)
    row = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
    assert dist_of(s, row, text) == pytest.approx(reference_dist(row, text, s), rel=1e-6, abs=1e-12)


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5]), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.05, 0.11, 0.3, 0.5, 0.6]),
    st.sampled_from([0.0, 0.7, 2.0]),
    st.sampled_from([replace(OPEN, top_k=3), replace(OPEN, top_p=0.8), replace(OPEN, min_p=0.2), OPEN]),
)
def test_xtc_is_the_reference(logits: list[float], x: float, threshold: float, temperature: float, s: Sampling) -> None:
    """Also at temperature 0, where the coin is all that is left to chance, and behind each filter."""
    s = replace(s, xtc_probability=x, xtc_threshold=threshold, temperature=temperature)
    row = np.array(logits, np.float32)
    probs = softmax(range(len(logits)), dict(enumerate(logits))).values()
    assume(all(abs(p - threshold) > 1e-9 for p in probs))
    assert dist_of(s, row, []) == pytest.approx(reference_dist(row, [], s), rel=1e-9, abs=1e-15)


def test_xtc_leaves_the_least_of_the_likely_tokens() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    always = dist_of(replace(OPEN, xtc_probability=1.0), row, [])
    assert always == pytest.approx({2: 0.75, 3: 0.25}, rel=1e-6)
    half = dist_of(replace(OPEN, xtc_probability=0.5), row, [])
    assert half == pytest.approx({0: 0.25, 1: 0.15, 2: 0.45, 3: 0.15}, rel=1e-6)
    assert dist_of(replace(OPEN, xtc_probability=1.0, xtc_threshold=0.4), row, []) == dist_of(OPEN, row, [])


def test_the_longer_the_repetition_the_less_likely_is_its_next_token() -> None:
    text = [1, 2, 3, 4, 5, 1, 2, 3, 4]
    ids, taken = Dry(DRY, {}).penalties(text)
    assert ids.tolist() == [5]
    assert taken.tolist() == [pytest.approx(0.8 * 1.75**2)]
    assert Dry(replace(DRY, dry_allowed_length=5), {}).penalties(text)[0].size == 0


def test_breakers_end_a_repetition() -> None:
    """Token 3 holds a breaker; 7 begins one that goes on with 8; a breaker itself is never lowered."""
    text = [1, 2, 3, 4, 5, 1, 2, 3, 4]
    assert Dry(DRY, {3: [()]}).penalties(text)[0].size == 0  # only token 4 stands after it
    assert Dry(replace(DRY, dry_allowed_length=1), {3: [()]}).penalties(text)[0].tolist() == [5]
    assert Dry(DRY, {5: [()]}).penalties(text)[0].size == 0
    other = [1, 7, 8, 4, 6, 5, 1, 7, 8, 4, 6]
    (two,) = Dry(DRY, {7: [(8,)]}).penalties(other)[1].tolist()
    (five,) = Dry(DRY, {7: [(9,)]}).penalties(other)[1].tolist()
    assert (two, five) == (pytest.approx(0.8), pytest.approx(0.8 * 1.75**3))


@pytest.mark.parametrize(("last_n", "ids"), [(-1, [7]), (64, []), (105, [7]), (104, [])])
def test_minus_one_searches_the_whole_text(last_n: int, ids: list[int]) -> None:
    text = [1, 2, 7, *range(10, 110), 1, 2]
    assert Dry(replace(DRY, dry_penalty_last_n=last_n), {}).penalties(text)[0].tolist() == ids


def test_a_base_of_any_size_overflows_nothing() -> None:
    ids, taken = Dry(replace(DRY, dry_base=100.0, dry_penalty_last_n=-1), {}).penalties([1, 2] * 200)
    assert ids.tolist() == [1]
    assert np.isfinite(taken).all()


def test_a_draft_without_the_targets_last_tokens() -> None:
    row = np.array([0.0, 1.0], np.float32)
    assert dist_of(DRY, row, [5, 5, 5, 5]) == dist_of(OPEN, row, [])
