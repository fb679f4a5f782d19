"""Medians, intervals and the order of measurements, by property."""

import itertools
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.measurement import schedule
from localspec.bench.statistics import ENOUGH, median_interval, percentile, ratio_interval

RATES = st.lists(st.floats(0.01, 1e4), min_size=1, max_size=30)


@given(RATES)
def test_the_interval_holds_the_median_and_lies_within_the_values(values: list[float]) -> None:
    found = median_interval(values)
    assert found is not None
    assert found.median == pytest.approx(median(values))
    assert found.n == len(values)
    assert (found.low is None) == (len(values) < ENOUGH)
    if found.low is not None and found.high is not None:
        assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
        assert found.low <= found.median * (1 + 1e-9)
        assert found.high >= found.median * (1 - 1e-9)


@given(RATES, st.floats(0.1, 10.0))
def test_a_ratio_scales(values: list[float], factor: float) -> None:
    """Paired: a method that is always f times as fast has ratio f and no doubt; unpaired: the median is the same."""
    faster = [factor * value for value in values]
    paired = ratio_interval(faster, values, is_paired=True)
    assert paired is not None
    assert paired.median == pytest.approx(factor)
    assert paired.low is None or paired.low == pytest.approx(factor)
    apart = ratio_interval(faster, values, is_paired=False)
    assert apart is not None
    assert apart.median == pytest.approx(factor)


def test_the_same_values_give_the_same_interval() -> None:
    values = [1.0, 2.0, 5.0, 3.0, 8.0, 2.5, 2.2]
    assert median_interval(values) == median_interval(values)
    assert median_interval([2.0] * 10) == median_interval([2.0] * 10)


def test_nothing_has_no_median() -> None:
    assert median_interval([]) is None
    assert ratio_interval([], [1.0], is_paired=False) is None
    assert percentile([], 0.5) is None
    assert percentile([3.0], 0.95) == 3.0


@pytest.mark.parametrize("n", [7, 8, 11, 12])
def test_an_interval_covers(n: int) -> None:
    """Of 400 samples, the interval misses the true median in one of twenty at most (four deviations let by)."""
    import numpy as np

    rng = np.random.default_rng(n)
    misses = 0
    for _ in range(400):
        found = median_interval(list(rng.normal(5.0, 1.0, n)))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        misses += not found.low <= 5.0 <= found.high
    assert misses <= 20 + 4 * 4


@given(st.integers(1, 5), st.lists(st.floats(0, 2), min_size=1, max_size=3, unique=True), st.integers(1, 4))
def test_every_cell_comes_once_and_each_round_turns_the_order(n: int, temperatures: list[float], repeats: int) -> None:
    names = ("plain", "a", "b")
    cells = schedule(n, temperatures, names, repeats)
    assert len(set(cells)) == len(cells) == n * len(temperatures) * len(names) * repeats
    rounds = [cells[i : i + len(names)] for i in range(0, len(cells), len(names))]
    for group in rounds:
        assert len({(cell.prompt, cell.temperature, cell.repeat) for cell in group}) == 1
    within = [rounds[i : i + n * repeats] for i in range(0, len(rounds), n * repeats)]
    for one in within:
        orders = [tuple(cell.contender for cell in group) for group in one]
        assert all(a == tuple(reversed(b)) for a, b in itertools.pairwise(orders))
