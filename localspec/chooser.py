"""Randomness of production: a seeded stream for draws and coins, keyed noise for coupled decoding.

The two must not touch: coins and draws advance one generator, while the noise of a position depends on (seed,
position, token) alone, so that the text of coupled decoding is a function of model, prompt and seed (ALG V2).
"""

from __future__ import annotations

import numpy as np

from localspec.law import Law, Probs

KEPT = 256  # positions whose noise is kept: the deepest tree looks at one position more than it has levels


class SeededChooser:
    """The Chooser of production, for a vocabulary of `n_vocab` tokens."""

    def __init__(self, seed: int, n_vocab: int) -> None:
        self._stream = np.random.default_rng(seed)
        self._seed = seed
        self._n_vocab = n_vocab
        self._noise: dict[int, Probs] = {}

    def bernoulli(self, a: float) -> bool:
        """Return True with probability min(1, a)."""
        return bool(self._stream.random() < a)

    def categorical(self, law: Law) -> int:
        """Draw one token by inversion."""
        cumulative = law.probs.cumsum()
        at = int(np.searchsorted(cumulative, self._stream.random() * cumulative[-1], side="right"))
        return int(law.ids[min(at, law.ids.size - 1)])

    def race(self, position: int, law: Law, k: int = 1) -> list[int]:
        """Return the k tokens that arrive first when token v arrives at Exp(1) / p(v) (arXiv 1611.01144's Gumbel-max).

        -ln(u)/p is least where ln(p) + Gumbel is greatest, so the first arrival has exactly the law p.
        """
        arrivals = self._exponentials(position)[law.ids] / law.probs  # [m]
        if k == 1:
            return [int(law.ids[arrivals.argmin()])]
        return [int(token) for token in law.ids[np.argsort(arrivals, kind="stable")[:k]]]

    def _exponentials(self, position: int) -> Probs:
        """Return the noise [V] of one position: every token's, whatever filters a law went through."""
        noise = self._noise.get(position)
        if noise is None:
            if len(self._noise) >= KEPT:
                del self._noise[next(iter(self._noise))]
            generator = np.random.Generator(np.random.Philox(key=[self._seed, position]))
            noise = self._noise[position] = generator.standard_exponential(self._n_vocab, method="inv")
        return noise
