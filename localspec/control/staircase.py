"""What the cost of a pass by its rows looks like: where a further row is nearly free, and where the cliffs are.

The cost is a staircase: a processor takes rows in groups, and another kernel takes over from some width on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

FREE = 0.05  # of a pass of one row: what a row may cost that is called nearly free
CLIFF = 1.2  # times the width before: less is a slope
STEEP = 3.0  # times the mean cost of a row, over all widths: a straight line has no cliff


@dataclass(frozen=True, slots=True)
class Stair:
    """The widths `before` and `rows`, neighbours among those measured. `ratio` is the cost of one over the other's.

    `each` is what a row between them costs, in passes of one row.
    """

    before: int
    rows: int
    ratio: float
    each: float
    is_free: bool
    is_cliff: bool


def stairs(costs: Mapping[int, float]) -> list[Stair]:
    """Return the stairs of `costs` (any unit, by rows; those of one row must be among them), from the lowest on."""
    known = sorted(costs)
    one, widest = costs[1], known[-1]
    mean = (costs[widest] - one) / max(widest - 1, 1) / one
    found = []
    for before, rows in pairwise(known):
        ratio = costs[rows] / costs[before]
        each = (costs[rows] - costs[before]) / (rows - before) / one
        is_cliff = ratio >= CLIFF and each >= STEEP * max(mean, 0.0) and each > FREE
        found.append(Stair(before, rows, ratio, each, each <= FREE, is_cliff))
    return found
