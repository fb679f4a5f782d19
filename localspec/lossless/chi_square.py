"""Pearson's chi-square test with its power, in closed form.

    X2 = sum (observed - N p)^2 / (N p)      on cells with N p >= 20; rarer ones are one cell together

Far out, at the errors that are tested here, its tail is longer than the chi-square distribution's: at an error of 6e-6
up to four times with cells that expect 20. So what looks wrong is compared with draws of the distribution itself before
it is called so.

A bias of total variation d between the cells' distributions makes X2 non-central with lambda >= 4 N d^2
(Cauchy-Schwarz), which is how a test that found nothing can say how little could have escaped it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Cell = tuple[int, ...]
EXPECTED = 20.0  # draws in a cell, at least
SIMULATED = 2_000_000  # experiments at most that a suspicion is compared with
CLEAR = 1e-3  # times the error: no longer tail makes up for that
AT_ONCE = 5_000_000  # numbers drawn in one go
POWER = 0.99


@dataclass(frozen=True, slots=True)
class Outcome:
    """`p_value`: how often a right rule looks this wrong. `impossible`: draws where the distribution has no mass."""

    statistic: float
    df: int
    p_value: float
    n: int
    impossible: int


def compare(counts: Mapping[Cell, int], dist: Mapping[Cell, float], alpha: float) -> Outcome:
    """Compare draws with the distribution they should have, to be called wrong at p-values below `alpha`.

    A draw that the distribution excludes is proof by itself: p-value 0.
    """
    n = sum(counts.values())
    if not n:
        return Outcome(0.0, 0, 1.0, 0, 0)
    impossible = sum(count for cell, count in counts.items() if dist.get(cell, 0.0) <= 0.0)
    cells = _merged(counts, dist, n)
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    df = len(cells) - 1
    p_value = 0.0 if impossible else survival(statistic, df) if df else 1.0
    if CLEAR * alpha <= p_value < alpha:
        p_value = _simulated(statistic, [expected for _, expected in cells], n, alpha)
    return Outcome(statistic, df, p_value, n, impossible)


def detectable(df: int, n: int, alpha: float) -> float:
    """Return the total variation of a bias that `n` draws find with probability `POWER` at error `alpha`; 1 at most."""
    if df == 0 or n == 0:
        return 1.0
    critical = _first_false(lambda x: survival(x, df) > alpha)
    noncentral = _first_false(lambda x: _power(critical, df, x) < POWER)
    return min(1.0, 0.5 * math.sqrt(noncentral / n))


def survival(x: float, df: int) -> float:
    """Return P(X2 > x) for `df` >= 1 degrees of freedom.

    Q(a + 1, y) = Q(a, y) + y^a e^-y / Gamma(a + 1) from Q(1/2, y) = erfc(sqrt y) or Q(1, y) = e^-y, at y = x/2.
    """
    assert df >= 1
    y = x / 2
    if y <= 0:
        return 1.0
    a = 0.5 if df % 2 else 1.0
    total = math.erfc(math.sqrt(y)) if df % 2 else math.exp(-y)
    while a < df / 2:
        total += math.exp(a * math.log(y) - y - math.lgamma(a + 1))
        a += 1
    return min(1.0, total)


def _merged(counts: Mapping[Cell, int], dist: Mapping[Cell, float], n: int) -> list[tuple[float, float]]:
    """Return (observed, expected) of each cell, the rarest ones as one that expects enough."""
    ordered = sorted(((n * p, float(counts.get(cell, 0))) for cell, p in dist.items() if p > 0), reverse=True)
    cells = [(seen, expected) for expected, seen in ordered if expected >= EXPECTED]
    rare = [(seen, expected) for expected, seen in ordered if expected < EXPECTED]
    if rare:
        seen, expected = sum(s for s, _ in rare), sum(e for _, e in rare)
        while expected < EXPECTED and cells:
            more_seen, more = cells.pop()
            seen, expected = seen + more_seen, expected + more
        cells.append((seen, expected))
    return cells


def _simulated(statistic: float, expected: list[float], n: int, alpha: float) -> float:
    """Return how often `n` draws of the distribution itself look as wrong, at least once in as many experiments as
    there were.

    It ends early where that is clear to be more often than `alpha`.
    """
    rng = np.random.default_rng(0)
    means = np.array(expected)
    total = min(SIMULATED, math.ceil(20 / alpha))
    done = n_beyond = 0
    while done < total and n_beyond <= alpha * total:
        some = min(total - done, max(1, AT_ONCE // means.size))
        drawn = rng.multinomial(n, means / means.sum(), size=some)
        n_beyond += int((((drawn - means) ** 2 / means).sum(axis=1) >= statistic).sum())
        done += some
    return (1 + n_beyond) / (1 + done)


def _power(critical: float, df: int, noncentral: float) -> float:
    """Return P(X2 > critical) of the non-central distribution: a Poisson mixture of central ones."""
    half = noncentral / 2
    if half == 0:
        return survival(critical, df)
    spread = int(8 * math.sqrt(half)) + 10
    middle = int(half)
    return sum(
        math.exp(j * math.log(half) - half - math.lgamma(j + 1)) * survival(critical, df + 2 * j)
        for j in range(max(0, middle - spread), middle + spread)
    )


def _first_false(is_below: Callable[[float], bool]) -> float:
    """Return where `is_below` turns false; it is true at 0. Doubling first: far out its sums are long."""
    low, high = 0.0, 16.0
    while is_below(high):
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high
