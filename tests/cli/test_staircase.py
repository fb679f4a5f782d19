"""The staircase as people see it: its stairs, cliffs and free rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localspec.cli.staircase import stairs
from localspec.tuning import SIZES

COSTS = {
    "a line": (lambda rows: 1.0 * rows, [], []),
    "a kernel for nine": (lambda rows: 1 + 0.02 * rows if rows <= 8 else 2.5 + 0.02 * rows, [9], range(2, 8)),
    "two rows": (lambda rows: 1.0 if rows == 1 else 1.81 + 0.01 * rows, [2], range(3, 129)),
    "flat": (lambda rows: 1.0, [], range(2, 129)),
    "falling": (lambda rows: 2.0 - 0.01 * rows, [], range(2, 129)),
}


@pytest.mark.parametrize(("cost", "cliffs", "free"), COSTS.values(), ids=COSTS)
def test_stairs(cost: Callable[[int], float], cliffs: list[int], free: range) -> None:
    """A cliff stands out of the slope; rows are free where they cost next to nothing; a straight line has neither."""
    found = stairs({rows: cost(rows) for rows in SIZES})
    assert [one.rows for one in found] == list(SIZES[1:])
    assert [one.rows for one in found if one.is_cliff] == cliffs
    assert {one.rows for one in found if one.is_free} >= set(free) & set(SIZES)
    assert not any(one.is_free and one.is_cliff for one in found)
    assert all(one.ratio == pytest.approx(cost(one.rows) / cost(one.before)) for one in found)
