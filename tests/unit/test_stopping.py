"""What a draft that can be ended at any time is worth: against every policy there is, and against common sense."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from localspec.control.stopping import STEPS, at, solve

CHANCES, WEIGHTS = np.array([0.25, 0.5, 1.0]), np.array([0.5, 0.25, 0.25])


def exact(rows: list[float], draft: list[float], caution: float, k: int = 0, reach: float = 1.0) -> float:
    """Return W_k(reach) by its definition, with no table of reaches."""
    if k + 1 == len(rows):
        return 0.0
    found = 0.0
    for chance, weight in zip(CHANCES, WEIGHTS, strict=True):
        after = reach * float(chance)
        price = (rows[k + 1] - rows[k]) * (1.0 + caution * (1.0 - after))
        found += float(weight) * max(0.0, after - price + exact(rows, draft, caution, k + 1, after))
    return max(0.0, found - (draft[k + 1] - draft[k]))


@pytest.mark.parametrize("caution", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("rows", [[1.0, 1.7, 2.3, 2.7], [1.0, 1.2, 0.9, 1.6], [1.0, 1.02, 1.04, 1.06]])
@pytest.mark.parametrize("token", [0.0, 0.03, 0.3])
def test_it_is_the_definition(rows: list[float], token: float, caution: float) -> None:
    """At reaches that are steps of the table; the chances are such that their products are steps, too."""
    draft = [token * k for k in range(len(rows))]
    worth = solve(rows, draft, CHANCES, WEIGHTS, caution)
    for reach in (1.0, 0.75, 0.5, 0.25):
        assert (reach * STEPS).is_integer()
        assert at(worth, 0, reach) == pytest.approx(exact(rows, draft, caution, 0, reach), abs=0.01)


def test_no_set_of_rules_does_better() -> None:
    """Every policy that draws after some sequences of looks and not after others, for two tokens."""
    rows, draft = [1.0, 1.7, 2.3], [0.0, 0.05, 0.1]
    best = 0.0
    looks = list(zip(CHANCES.tolist(), WEIGHTS.tolist(), strict=True))
    for first in itertools.product((False, True), repeat=3):
        for second in itertools.product((False, True), repeat=9):
            gain = -draft[1]
            for i, (a, p) in enumerate(looks):
                if not first[i]:
                    continue
                gain += p * (a - (rows[1] - rows[0]))
                if any(second[3 * i : 3 * i + 3]):
                    gain -= p * (draft[2] - draft[1])
                for j, (b, q) in enumerate(looks):
                    gain += p * q * (a * b - (rows[2] - rows[1])) * second[3 * i + j]
            best = max(best, gain)
    assert best > 0.0
    assert at(solve(rows, draft, CHANCES, WEIGHTS), 0, 1.0) == pytest.approx(best, abs=1e-9)


def test_looking_is_worth_something_where_drafting_everything_is_not() -> None:
    """A row costs what is accepted on average: only the tokens that the draft is sure of pay."""
    rows, draft = [1.0, 1.5], [0.0, 0.03]
    assert at(solve(rows, draft, np.array([0.5]), np.ones(1)), 0, 1.0) == 0.0
    assert at(solve(rows, draft, CHANCES, WEIGHTS), 0, 1.0) == pytest.approx(0.25 * 0.5 - 0.03)


def test_caution_and_dear_rows_only_ever_lower_it() -> None:
    draft = [0.02 * k for k in range(5)]
    found = [
        at(solve([1.0 + slope * k for k in range(5)], draft, CHANCES, WEIGHTS, caution), 0, 1.0)
        for slope, caution in [(0.0, 0.0), (0.2, 0.0), (0.2, 1.0), (0.2, 8.0), (0.7, 8.0)]
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
