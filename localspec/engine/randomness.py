"""Randomness of production: a seeded stream for draws and coins, keyed noise for coupled decoding.

The two must not touch: coins and draws advance one generator, while the noise of a position depends on (seed,
position, token) alone, so that the text of coupled decoding is a function of model, prompt and seed.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from localspec.engine.distribution import TINY, Distribution, Ids, Probs

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
KEPT = 256  # positions whose key is kept: drafter and target ask for each a few times


class SeededRandom:
    """The random source of production."""

    def __init__(self, seed: int) -> None:
        self._stream = np.random.default_rng(seed)
        self._seed = seed
        self._keys: dict[int, np.uint64] = {}

    def copy(self) -> SeededRandom:
        """Return a source that draws the same, and takes nothing from this one."""
        copied = SeededRandom.__new__(SeededRandom)
        copied._stream, copied._seed, copied._keys = deepcopy(self._stream), self._seed, self._keys
        return copied

    def bernoulli(self, a: float) -> bool:
        return bool(self._stream.random() < a)

    def categorical(self, dist: Distribution) -> int:
        """Draw one token by inversion; where there is only one, nothing is left to chance."""
        if dist.ids.size == 1:
            return int(dist.ids[0])
        cumulative = dist.probs.cumsum()
        at = int(cumulative.searchsorted(self._stream.random() * cumulative[-1], side="right"))
        return int(dist.ids[min(at, dist.ids.size - 1)])

    def gumbel_top_k(self, position: int, dist: Distribution, k: int = 1) -> list[int]:
        """Return the k tokens that arrive first when token v arrives at Exp(1) / p(v) (arXiv 1611.01144's Gumbel-max).

        -ln(u)/p is least where ln(p) + Gumbel is greatest, so the first arrival has exactly the distribution p.
        """
        if dist.ids.size == 1:
            return [self.categorical(dist)]  # whatever the noise: that of a position depends on no draw before it
        arrivals = self._arrivals(position, dist)
        return [int(token) for token in dist.ids[_first(arrivals, k)]]

    def gumbel_top_k_margins(self, position: int, dist: Distribution, k: int = 1) -> list[tuple[int, float]]:
        """Return the race's k first, each with its share of the speeds of itself and those behind it."""
        arrivals = self._arrivals(position, dist)
        first = _first(arrivals, k)
        speeds = 1.0 / np.maximum(arrivals, TINY)  # [m]
        lead = speeds[first]  # [k]
        speeds[first] = 0.0
        field = speeds.sum() + lead[::-1].cumsum()[::-1]  # [k]: each with all that is behind it
        return list(zip(dist.ids[first].tolist(), (lead / field).tolist(), strict=True))

    def _arrivals(self, position: int, dist: Distribution) -> Probs:
        return self.exponentials(position, dist.ids) / dist.probs  # [m]

    def exponentials(self, position: int, ids: Ids) -> Probs:
        """Return the noise [m] of the tokens `ids` [m] at one position, each Exp(1), whatever else is asked for.

        A token's noise is its own entry of a SplitMix64 stream (Steele et al. 2014), which can be read at any index:
        a distribution of forty tokens costs forty numbers in a vocabulary of any size.
        """
        z = self._key(position) + (ids.astype(np.uint64) + np.uint64(1)) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        uniform = ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53  # [0, 1)
        return -np.log1p(-uniform)

    def _key(self, position: int) -> np.uint64:
        """Return the start of a position's stream; distinct positions and seeds start far apart."""
        key = self._keys.get(position)
        if key is None:
            if len(self._keys) >= KEPT:
                del self._keys[next(iter(self._keys))]
            key = self._keys[position] = np.random.SeedSequence([self._seed, position]).generate_state(1, np.uint64)[0]
        return key


def _first(arrivals: Probs, k: int) -> NDArray[np.intp]:
    """Return where the k least of `arrivals` [m] are, the least first."""
    return np.array([arrivals.argmin()]) if k == 1 else np.argsort(arrivals, kind="stable")[:k]
