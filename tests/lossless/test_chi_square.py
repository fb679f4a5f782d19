"""The chi-square distribution in closed form, against tables, and the test's error and power against simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.lossless.chi_square import EXPECTED, POWER, compare, detectable, survival

TABLE = [  # degrees of freedom, 5 % point, 0.1 % point: any book of tables
    (1, 3.841, 10.828),
    (2, 5.991, 13.816),
    (5, 11.070, 20.515),
    (10, 18.307, 29.588),
    (30, 43.773, 59.703),
    (100, 124.342, 149.449),
]


@pytest.mark.parametrize(("df", "five", "tenth"), TABLE)
def test_survival_is_that_of_the_tables(df: int, five: float, tenth: float) -> None:
    assert survival(five, df) == pytest.approx(0.05, rel=2e-3)
    assert survival(tenth, df) == pytest.approx(0.001, rel=5e-3)


@given(st.floats(0.0, 500.0), st.floats(0.0, 100.0), st.integers(1, 200))
def test_survival_falls_with_x_and_grows_with_df(x: float, more: float, df: int) -> None:
    assert 0.0 <= survival(x + more, df) <= survival(x, df) + 1e-12 <= 1.0 + 1e-12
    assert survival(x, df) <= survival(x, df + 2) + 1e-12


def test_a_right_dist_passes_and_a_biased_one_of_the_stated_size_does_not() -> None:
    """Two hundred experiments: the error is about alpha, and the bias the test promises to find is found."""
    rng = np.random.default_rng(1)
    n, alpha = 2000, 0.01
    dist = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05])
    least = detectable(len(dist) - 1, n, alpha)
    shift = np.array([1, 1, -1, -1, 0, 0, 0]) * least / 2  # total variation: least
    assert np.abs(shift).sum() / 2 == pytest.approx(least)
    exact = {(i,): float(p) for i, p in enumerate(dist)}

    def share(drawn: np.ndarray) -> float:
        experiments = rng.multinomial(n, drawn, size=200)
        return float(
            np.mean(
                [
                    compare({(i,): int(c) for i, c in enumerate(one)}, exact, alpha).p_value < alpha
                    for one in experiments
                ]
            )
        )

    assert share(dist) <= 0.05
    assert share(dist + shift) >= POWER - 0.03


def test_what_rare_cells_do_by_chance_is_no_proof() -> None:
    """Twenty expected and forty-one seen is rarer than 6e-6 by the chi-square distribution, and not by the distribution
    itself.
    """
    alpha, dist = 6e-6, {(0,): 0.01, (1,): 0.99}
    unlucky = {(0,): 41, (1,): 1959}
    statistic = 21**2 / 20 + 21**2 / 1980
    assert survival(statistic, 1) < alpha
    assert alpha < compare(unlucky, dist, alpha).p_value < 10 * alpha
    assert compare({(0,): 60, (1,): 1940}, dist, alpha).p_value < alpha


def test_what_the_dist_excludes_is_proof() -> None:
    outcome = compare({(0,): 999, (7,): 1}, {(0,): 1.0}, 1e-5)
    assert (outcome.p_value, outcome.impossible) == (0.0, 1)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(50, 5000))
def test_every_cell_expects_enough(weights: list[int], n: int) -> None:
    """Rare cells are merged, mass and draws are kept: draws that follow the distribution exactly have statistic zero or
    near.
    """
    total = sum(weights)
    dist = {(i,): weight / total for i, weight in enumerate(weights)}
    counts = {cell: round(n * p) for cell, p in dist.items()}
    outcome = compare(counts, dist, 1e-5)
    assert outcome.df <= max(0, sum(counts.values()) / EXPECTED)
    assert outcome.p_value > 0.01


def test_no_draws_find_nothing() -> None:
    assert detectable(3, 0, 0.01) == 1.0
    assert detectable(0, 100, 0.01) == 1.0
    assert compare({}, {(0,): 1.0}, 1e-5).p_value == 1.0
