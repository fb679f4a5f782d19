"""Signals of hard tokens, by hand-made laws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.remote.hard import HardRule, Signals, rule_of


def law(*probs: float) -> Distribution:
    return Distribution(np.arange(len(probs), dtype=np.int32), np.array(probs))


@pytest.mark.parametrize(
    ("token", "probs", "expected", "is_hard"),
    [
        (0, (1.0,), (0.0, 0.0, 1.0), False),
        (0, (0.9, 0.1), (-math.log(0.9), 0.3251, 0.8), False),
        (1, (0.95, 0.05), (-math.log(0.05), 0.1985, 0.9), True),  # an unlikely token
        (0, (0.5, 0.5), (math.log(2), math.log(2), 0.0), True),  # no margin
        (0, (0.4, *[0.1] * 6), (-math.log(0.4), 1.7481, 0.3), True),  # a wide law
        (0, (0.5, *[0.1] * 5), (-math.log(0.5), 1.4979, 0.4), False),
    ],
)
def test_signals(token: int, probs: tuple[float, ...], expected: tuple[float, ...], is_hard: bool) -> None:
    found = Signals.of(token, law(*probs))
    assert (found.nll, found.entropy, found.margin) == pytest.approx(expected, abs=1e-4)
    assert found.is_hard is is_hard


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (" 17", HardRule.NUMBER),
        ("3", HardRule.NUMBER),
        (" 2026-11", HardRule.DATE),
        (" March", HardRule.DATE),
        (" Alice", HardRule.NAME),
        (" the", None),
        ("(", None),
        ("", None),
    ],
)
def test_classes(text: str, rule: HardRule | None) -> None:
    assert rule_of(text) is rule
