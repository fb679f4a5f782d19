"""Signals of hard tokens, by hand-made laws."""

import math
from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.remote.hard import Signals, rule_of
from tests.recorded import recorded_expressions


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
        (0, (0.6, 0.3, 0.1), (-math.log(0.6), 0.8979, 0.3), False),
        (2, (0.3, 0.1, 0.6), (-math.log(0.6), 0.8979, 0.3), False),
        (9, (0.9, 0.1), (690.7755, 0.3251, 0.8), True),  # a token that the law does not have
    ],
)
def test_signals(token: int, probs: tuple[float, ...], expected: tuple[float, ...], is_hard: bool) -> None:
    found = Signals.of(token, law(*probs))
    assert (found.nll, found.entropy, found.margin) == pytest.approx(expected, abs=1e-4)
    assert found.is_hard is is_hard


@pytest.mark.parametrize("signals", [Signals(2.3, 0.0, 1.0), Signals(0.0, 1.73, 1.0), Signals(0.0, 0.0, 0.2)])
def test_at_each_threshold_nothing_is_hard_yet(signals: Signals) -> None:
    assert not signals.is_hard
    assert replace(signals, nll=signals.nll + 0.01, entropy=signals.entropy + 0.01).is_hard == (signals.margin == 1.0)
    assert replace(signals, margin=0.19).is_hard


test_what_is_recorded = recorded_expressions(__file__, rule_of)
