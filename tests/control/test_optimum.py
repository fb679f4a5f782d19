"""What the account leaves of fixed lengths at best: against plain recursion, and at both ends of what may be lost."""

from __future__ import annotations

import functools

import pytest

from localspec.tuning import EPS
from scripts.optimum import Length, optimum

PAIR = (Length(1.75, (0.25, 0.75)), Length(2.5, (0.25, 0.125, 0.125, 0.5)))
PLENTY = 30.0  # plain passes to lose


def by_recursion(lengths: tuple[Length, ...], n: int, head_start: float) -> float:
    """Return the same with every room as it comes, on no grid."""

    @functools.cache
    def passes(left: int, budget: float) -> float:
        if left <= 0:
            return 0.0
        best = 1.0 + passes(left - 1, budget + EPS)
        for length in lengths:
            after = budget + EPS * length.passes - length.passes
            if after + 1.0 >= 0.0:
                ways = enumerate(length.chances, start=1)
                taken = length.passes + sum(p * passes(left - tokens, after + tokens) for tokens, p in ways)
                best = min(best, taken)
        return best

    return n / passes(n, head_start)


@pytest.mark.parametrize("head_start", [0.5, 1.0, 1.3, 2.0])
def test_it_is_what_recursion_finds(head_start: float) -> None:
    assert optimum(PAIR, 14, head_start) == pytest.approx(by_recursion(PAIR, 14, head_start), rel=2e-3)


def test_where_anything_may_be_lost_it_is_the_best_length() -> None:
    best = sum(tokens * p for tokens, p in enumerate(PAIR[1].chances, start=1)) / PAIR[1].passes
    assert optimum(PAIR, 400, PLENTY) == pytest.approx(best, rel=0.01)


def test_what_may_be_lost_is_worth_something_in_short_answers_above_all() -> None:
    short, long = (optimum(PAIR, n, 1.0) / optimum(PAIR, n, PLENTY) for n in (64, 512))
    assert short < long < 1.0


def test_where_nothing_is_accepted_it_is_plain_decoding() -> None:
    assert optimum((Length(1.1, (1.0, 0.0)),), 50, PLENTY) == pytest.approx(1.0)
    assert optimum((), 50, 1.0) == pytest.approx(1.0)
