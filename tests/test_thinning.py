"""The thinned default run still has every test, and every value of every parameter of it."""

import pytest

from tests.conftest import KEPT, LEFT_OUT, places_of


def test_no_value_of_a_parameter_is_left_out(request: pytest.FixtureRequest) -> None:
    """Of all tests that were collected, whichever runs them."""
    stash = request.config.stash
    kept, wanted = places_of(stash[KEPT]), places_of([*stash[KEPT], *stash[LEFT_OUT]])
    assert [name for name, places in wanted.items() if places.keys() != kept[name].keys()] == []
