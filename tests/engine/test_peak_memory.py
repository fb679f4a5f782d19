"""The peak of memory is that of the answer, not of all that the process did before."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from localspec.engine import peak_memory

BIG = 1 << 28


@pytest.mark.skipif(not peak_memory.RESET.exists(), reason="only Linux counts anew")
def test_what_was_given_back_before_is_not_counted() -> None:
    held = np.ones(BIG, np.uint8)
    assert peak_memory.of_process() > BIG
    before = peak_memory.of_process()
    del held
    peak_memory.reset()
    assert peak_memory.of_process() < before - BIG // 2


def test_elsewhere_it_is_the_most_since_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peak_memory, "STATUS", tmp_path / "none")
    monkeypatch.setattr(peak_memory, "RESET", tmp_path / "none" / "either")
    peak_memory.reset()
    assert peak_memory.of_process() > (1 << 22 if sys.platform != "darwin" else 1 << 20)
