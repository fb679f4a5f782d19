"""Medians with their uncertainty. Resampling is over prompts: two answers to one prompt are not two witnesses."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 4000
OUTSIDE = 40  # one of so many lies below a 95 % interval, and one above it
ENOUGH = 6  # values: all n of them together hold the median with 1 - 2^(1-n), which is less than 95 % below six
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of `n` values with its bootstrap 95 % interval, which fewer than `ENOUGH` do not have."""

    median: float
    low: float | None
    high: float | None
    n: int

    def spelt(self, digits: int = 2) -> str:
        if self.low is None or self.high is None:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the median with the percentile bootstrap's interval, None without values. The same values, the same
    interval: the resampling is seeded.

    Of few values the bootstrap alone promises too much: of seven it leaves out both ends, between which the median lies
    with 98 %, and without which with 87 %. So it is at least as wide as the values that hold it with 95 %.
    """
    if not values:
        return None
    array = np.asarray(values, np.float64)  # [n]
    middle = float(np.median(array))
    if len(array) < ENOUGH:
        return Interval(middle, None, None, len(array))
    low, high = _between(np.median(_resampled(array, 0), axis=1))
    array.sort()
    left = _left_out(len(array))
    return Interval(middle, min(low, float(array[left])), max(high, float(array[-1 - left])), len(array))


def ratio_interval(above: Sequence[float], below: Sequence[float], *, is_paired: bool) -> Interval | None:
    """Return above / below: the median of paired ratios, or the ratio of the medians of two independent samples."""
    if not above or not below:
        return None
    if is_paired:
        return median_interval([a / b for a, b in zip(above, below, strict=True)])
    a, b = np.asarray(above, np.float64), np.asarray(below, np.float64)
    middle, n = float(np.median(a) / np.median(b)), min(len(a), len(b))
    if n < 2 * ENOUGH:  # here nothing widens what the bootstrap promises of few values
        return Interval(middle, None, None, n)
    low, high = _between(np.median(_resampled(a, 0), axis=1) / np.median(_resampled(b, 1), axis=1))
    return Interval(middle, low, high, n)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which `share` (0..1) of them lie, None without values."""
    return float(np.quantile(np.asarray(values, np.float64), share)) if values else None


def _resampled(array: Values, seed: int) -> Values:
    """Return [RESAMPLES, n] values drawn with replacement."""
    return array[np.random.default_rng(seed).integers(0, len(array), (RESAMPLES, len(array)))]


def _between(middles: Values) -> tuple[float, float]:
    low, high = np.quantile(middles, (1 / OUTSIDE, 1 - 1 / OUTSIDE))
    return float(low), float(high)


def _left_out(n: int) -> int:
    """Return how many of `n` values can go at either end while the rest hold the median, whatever the distribution.

    Each value is below the median with one half: the median is below the lowest but k where at most k values are.
    """
    ways = below = 1  # to have exactly k values below the median, and to have at most k, of 2^n
    k = 0
    while OUTSIDE * below <= 2**n:
        ways = ways * (n - k) // (k + 1)
        below += ways
        k += 1
    return k - 1
