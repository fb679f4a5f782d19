"""What a race says of its ratio: no more than its interval holds."""

from __future__ import annotations

import pytest

from localspec.bench.race import judged
from localspec.bench.statistics import Interval


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Interval(1.4, None, None, 1), "speculation pays"),
        (Interval(0.9, None, None, 1), "speculation does not pay here"),
        (Interval(1.01, None, None, 2), "speculation neither pays nor costs"),
        (Interval(0.99, None, None, 2), "speculation neither pays nor costs"),
        (Interval(1.03, 0.62, 1.79, 6), "the rounds do not decide whether it pays"),
        (Interval(1.03, 1.01, 1.05, 6), "speculation pays"),
        (Interval(0.97, 0.95, 0.99, 6), "speculation does not pay here"),
    ],
)
def test_a_ratio_is_judged_by_its_interval(ratio: Interval, words: str) -> None:
    assert judged(ratio) == words
