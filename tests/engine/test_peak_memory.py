"""The peak of memory is that of the answer, not of all that the process did before."""

import sys
from pathlib import Path

import numpy as np
import pytest

from localspec.engine.event_stream import RESET, peak_memory, reset_peak_memory

BIG = 1 << 28


@pytest.mark.skipif(not RESET.exists(), reason="only Linux counts anew")
def test_what_was_given_back_before_is_not_counted() -> None:
    held = np.ones(BIG, np.uint8)
    assert peak_memory() > BIG
    before = peak_memory()
    del held
    reset_peak_memory()
    assert peak_memory() < before - BIG // 2


def test_elsewhere_it_is_the_most_since_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("localspec.engine.event_stream.STATUS", tmp_path / "none")
    monkeypatch.setattr("localspec.engine.event_stream.RESET", tmp_path / "none" / "either")
    reset_peak_memory()
    assert peak_memory() > (1 << 22 if sys.platform != "darwin" else 1 << 20)
