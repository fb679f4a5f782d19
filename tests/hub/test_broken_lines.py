"""A line that breaks again and again, but brings bytes each time, is not given up."""

import pytest

from localspec.errors import NetworkError
from localspec.models.hub.transfer import FRUITLESS
from tests.hub.machine import TARGET, Machine
from tests.hub.models import TARGET as TARGET_BYTES


def test_broken_connections_count_in_a_row(machine: Machine) -> None:
    """Many more of them than are allowed without a byte, some of those in between."""
    brings = len(TARGET_BYTES) // (4 * FRUITLESS)
    machine.server.faults.cuts = [brings, 0] * FRUITLESS + [brings] * FRUITLESS
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert len(machine.server.downloads()) == 3 * FRUITLESS + 1


def test_as_many_in_a_row_without_a_byte_end_it(machine: Machine) -> None:
    machine.server.faults.cuts = [1000, *[0] * 50]
    with pytest.raises(NetworkError):
        machine.pull(TARGET)
    assert len(machine.server.downloads()) == 1 + FRUITLESS


def test_answers_that_end_early_count_in_a_row_too(machine: Machine) -> None:
    """A hub, or a proxy before it, that sends a part of what was asked for and ends as if that were all."""
    part = len(TARGET_BYTES) // (2 * FRUITLESS)
    machine.server.faults.lengths = [part] * (2 * FRUITLESS)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert len(machine.server.downloads()) > 2 * FRUITLESS
