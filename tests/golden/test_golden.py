"""The program gives what was recorded of it; `scripts/golden NAME` records a deliberate change."""

import difflib

import pytest

from tests.cli.harness import needs_pair
from tests.golden.record import HERE, RECORDS, recorded


@needs_pair
@pytest.mark.parametrize("name", RECORDS)
def test_all_is_as_recorded(name: str) -> None:
    before = (HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    change = list(difflib.unified_diff(before, recorded(name).splitlines(), "recorded", "now", lineterm="", n=1))
    assert not change, "\n".join([*change, "", f"If this is meant: scripts/golden {name}"])
