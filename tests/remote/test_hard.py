"""Hard tokens, by hand-made distributions and by their texts."""

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.remote import hard
from localspec.remote.hard import is_unsure, matters


def dist(*probs: float) -> Distribution:
    return Distribution(np.arange(len(probs), dtype=np.int32), np.array(probs))


@pytest.mark.parametrize(
    ("token", "probs", "is_hard"),
    [
        (0, (1.0,), False),
        (0, (0.9, 0.1), False),
        (1, (0.95, 0.05), True),  # an unlikely token
        (0, (0.5, 0.5), True),  # no margin
        (0, (0.4, *[0.1] * 6), True),  # a wide distribution
        (0, (0.5, *[0.1] * 5), False),
        (0, (0.6, 0.3, 0.1), False),
        (2, (0.3, 0.1, 0.6), False),
        (9, (0.9, 0.1), True),  # a token that the distribution does not have
    ],
)
def test_is_unsure(token: int, probs: tuple[float, ...], is_hard: bool) -> None:
    assert is_unsure(token, dist(*probs)) is is_hard


@pytest.mark.parametrize(
    ("name", "token", "probs", "value"),
    [
        ("NLL", 1, (0.75, 0.25), -float(np.log(0.25))),
        ("ENTROPY", 0, (0.75, 0.25), dist(0.75, 0.25).entropy),
        ("MARGIN", 0, (0.75, 0.25), 0.5),
    ],
)
def test_at_each_threshold_nothing_is_hard_yet(
    name: str, token: int, probs: tuple[float, ...], value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hard, name, value)
    assert not is_unsure(token, dist(*probs))
    monkeypatch.setattr(hard, name, value + (0.01 if name == "MARGIN" else -0.01))
    assert is_unsure(token, dist(*probs))


def test_matters() -> None:
    texts = [" 17", "3", " 2026-11", " March", "inMarch", " Alice", "É-t", "²"]
    assert [text for text in [*texts, " the", "(", "", "a", "A", " alice"] if matters(text)] == texts
