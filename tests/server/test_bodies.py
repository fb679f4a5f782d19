"""What each API reads of a body is as it was recorded."""

from pathlib import Path

import pytest

from tests.recorded import Section, sections
from tests.server.bodies import answered


@pytest.mark.parametrize("section", sections(*Path(__file__).parent.glob("bodies/*.txt")))
def test_it_is_read_as_recorded(section: Section, request: pytest.FixtureRequest) -> None:
    section.check(answered, request)
