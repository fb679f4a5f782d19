"""The seeded random source: reproducible, fair coins, draws with their distribution. (Its races:
tests/exact/test_coupled.py.)
"""

import math

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.engine.randomness import SeededRandom

LAW = Distribution(np.array([1, 4, 5, 9], np.int32), np.array([0.1, 0.2, 0.3, 0.4]))
N = 20_000


def transcript(seed: int) -> list[object]:
    rng = SeededRandom(seed)
    return [
        value
        for position in range(50)
        for value in (rng.bernoulli(0.5), rng.categorical(LAW), tuple(rng.gumbel_top_k(position, LAW, 3)))
    ]


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63, 2**64 - 1])
def test_a_seed_decides_everything(seed: int) -> None:
    """The same seed gives the same choices, every other seed others; the whole 64-bit range works."""
    assert transcript(seed) == transcript(seed)
    assert transcript(seed) != transcript(seed ^ 1)


def test_races_leave_the_stream_alone() -> None:
    """Coupled noise is no part of the stream of coins and draws: using it moves nothing."""
    left, right = SeededRandom(3), SeededRandom(3)
    for position in range(100):
        right.gumbel_top_k(position, LAW)
        assert left.categorical(LAW) == right.categorical(LAW)
        assert left.bernoulli(0.3) == right.bernoulli(0.3)


@pytest.mark.parametrize("a", [0.0, -1e-18, 1.0, 7.5])
def test_certain_coins(a: float) -> None:
    """Nothing at or below zero, everything at or above one."""
    rng = SeededRandom(1)
    assert {rng.bernoulli(a) for _ in range(1000)} == {a >= 1.0}


@pytest.mark.parametrize("a", [0.02, 0.5, 0.9])
def test_coins_have_their_probability(a: float) -> None:
    """Within five standard deviations of 20 000 flips, at a fixed seed."""
    rng = SeededRandom(2)
    heads = sum(rng.bernoulli(a) for _ in range(N))
    assert abs(heads - N * a) < 5 * math.sqrt(N * a * (1 - a))


def test_draws_have_their_dist() -> None:
    """Each token within five standard deviations, and no token outside the support."""
    rng = SeededRandom(4)
    counts = dict.fromkeys(LAW.ids.tolist(), 0)
    for _ in range(N):
        counts[rng.categorical(LAW)] += 1
    for token, p in zip(LAW.ids.tolist(), LAW.probs.tolist(), strict=True):
        assert abs(counts[token] - N * p) < 5 * math.sqrt(N * p * (1 - p))


def test_draws_do_not_depend_on_rounding_of_the_sum() -> None:
    """A distribution that sums to a little less or more than one never falls off its end."""
    for total in (1 - 1e-12, 1 + 1e-12, 0.5):
        dist = Distribution(LAW.ids, LAW.probs * total)
        rng = SeededRandom(5)
        assert {rng.categorical(dist) for _ in range(2000)} == set(LAW.ids.tolist())


def test_races_of_more_than_there_are() -> None:
    """All arrive, each once."""
    assert sorted(SeededRandom(6).gumbel_top_k(3, LAW, 99)) == LAW.ids.tolist()


@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_the_odds_are_of_the_race(k: int) -> None:
    """The same tokens in the same order, each with its share of the speeds that are left; the last has all of it."""
    rng = SeededRandom(5)
    for position in range(200):
        speeds = LAW.probs / rng.exponentials(position, LAW.ids)
        rest = dict(zip(LAW.ids.tolist(), speeds.tolist(), strict=True))
        gumbel_top_k_margins = rng.gumbel_top_k_margins(position, LAW, k)
        assert [token for token, _ in gumbel_top_k_margins] == rng.gumbel_top_k(position, LAW, k)
        for token, share in gumbel_top_k_margins:
            assert share == pytest.approx(rest[token] / sum(rest.values()))
            del rest[token]


def test_a_token_that_arrives_at_once_has_all_the_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of nothing is possible, once in 2^53."""
    rng = SeededRandom(6)
    monkeypatch.setattr(rng, "exponentials", lambda position, ids: np.array([1.0, 0.0, 2.0, 3.0]))
    (first, share), (second, other) = rng.gumbel_top_k_margins(0, LAW, 2)
    assert (first, second) == (4, 5)
    assert share == pytest.approx(1.0)
    assert 0.0 < other < 1.0


def test_no_two_tokens_of_a_vocabulary_share_their_noise() -> None:
    """Where noise is coarse, tokens of equal probability tie, and the one of the smaller number wins."""
    noise = SeededRandom(1).exponentials(0, np.arange(2**18, dtype=np.int32))
    assert np.unique(noise).size == noise.size
