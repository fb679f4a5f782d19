"""The thinned default run still has every test, and every value of every parameter of it."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.conftest import KEPT, LEFT_OUT


def test_no_value_of_a_parameter_is_left_out(request: pytest.FixtureRequest) -> None:
    """Of all tests that were collected, whichever runs them."""
    stash = request.config.stash
    kept, wanted = places_of(stash[KEPT]), places_of([*stash[KEPT], *stash[LEFT_OUT]])
    assert [name for name, places in wanted.items() if places != kept[name]] == []


def places_of(items: list[pytest.Item]) -> dict[tuple[str, str], set[int]]:
    """Return which places in the list of its values each parameter of each thinned test takes."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("thinned"):
            for name, place in item.callspec.indices.items():
                found[item.nodeid.partition("[")[0], name].add(place)
    return found
