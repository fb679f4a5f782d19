"""A target elsewhere: each pass has the way there and back, and nothing but its seconds says so."""

from dataclasses import replace
from itertools import pairwise

import pytest

from localspec.control.timing import ORDER, WIDTHS
from tests.control.simulated import World
from tests.control.test_auto import LONGEST, MACHINES, TEXTS, Machine, controller, fixed_rate, run

WAYS = (0.0, 0.5, 2.0, 8.0)  # there and back, in plain passes of the target


def away(name: str, way: float) -> Machine:
    machine = MACHINES[name]
    return replace(machine, target=lambda rows: way + machine.target(rows))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mean", ["0.85", "0.60", "mixed"])
@pytest.mark.parametrize("name", ["few cores", "dear rows"])
def test_drafts_are_as_good_as_those_of_the_best_fixed_length(name: str, mean: str, way: float) -> None:
    """Also where two widths were measured, and the others are learned from passes."""
    machine, chance = away(name, way), TEXTS[mean]
    best = max(fixed_rate(machine, World(chance, 1), k) for k in range(LONGEST + 1))
    *_, (tokens, seconds) = run(machine, World(chance, 1), controller(machine, ORDER[:WIDTHS]))
    assert tokens / seconds >= 0.95 * best
    assert tokens / seconds >= 0.98 / machine.target(1)


@pytest.mark.parametrize("name", ["few cores", "dear rows"])
def test_the_longer_the_way_the_longer_the_drafts(name: str) -> None:
    """In tokens a pass."""
    passes = []
    for way in WAYS:
        machine = away(name, way)
        *_, last = (n for n, _ in enumerate(run(machine, World(0.6, 1), controller(machine))))
        passes.append(last)
    assert all(longer < shorter for shorter, longer in pairwise(passes))
    assert passes[-1] < 0.7 * passes[0]
