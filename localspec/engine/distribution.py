"""A probability distribution on tokens with the few operations that verification needs.

A distribution is sparse: only tokens with positive probability are stored, ids ascending, so the distribution behind a
top-k filter has tens of entries whatever the vocabulary. Probabilities are float64 and sum to one (to rounding).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Probs = NDArray[np.float64]

# Below this residual mass a rejection can only be rounding: p and q agree, so p itself is drawn from.
TINY = 1e-12

_CERTAIN: Probs = np.ones(1)
_CERTAIN.setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Tokens `ids` [m] int32, ascending, with probabilities `probs` [m] float64; every other token has zero.

    `untempered` is the distribution of the same row at temperature 1, where somebody wants to know how sure the model
    was.
    """

    ids: Ids
    probs: Probs
    untempered: Distribution | None = None

    @staticmethod
    def of(ids: Ids, weights: Probs) -> Distribution:
        """Normalise non-negative `weights` [m] on ascending `ids` [m]; zero weights leave the support."""
        total = weights.sum()
        if weights.min() <= 0.0:
            support = weights > 0.0
            ids, weights = ids[support], weights[support]
        return Distribution(ids, weights / total)

    @staticmethod
    def one_hot(token: int) -> Distribution:
        """Return the point mass on `token`: what a deterministic draft, and temperature 0, stand for."""
        return Distribution(np.array([token], np.int32), _CERTAIN)

    def prob(self, token: int) -> float:
        at = int(self.ids.searchsorted(token))
        return float(self.probs[at]) if at < self.ids.size and self.ids[at] == token else 0.0

    def at(self, ids: Ids) -> Probs:
        """Return the probabilities [k] of the ascending tokens `ids` [k]."""
        if self.ids.size == ids.size and np.array_equal(self.ids, ids):
            return self.probs
        where = self.ids.searchsorted(ids)
        where[where == self.ids.size] = 0
        return np.where(self.ids[where] == ids, self.probs[where], 0.0)

    def without(self, token: int) -> Distribution | None:
        """Condition on *not* drawing `token`; None when nothing else is in the support."""
        rest = self.ids != token
        return Distribution.of(self.ids[rest], self.probs[rest]) if rest.any() else None

    def renamed(self, names: Ids) -> Distribution:
        """Return the same probabilities on tokens of other numbers: token i becomes the ascending `names`[i]."""
        untempered = None if self.untempered is None else self.untempered.renamed(names)
        return Distribution(names[self.ids], self.probs, untempered)

    @property
    def belief(self) -> Distribution:
        """How sure the model was itself: its distribution at temperature 1 if that was kept, else this one."""
        return self if self.untempered is None else self.untempered

    @property
    def top(self) -> float:
        return float(self.probs.max())

    @property
    def entropy(self) -> float:
        """The entropy in nats; probabilities that are stored are positive."""
        return -float((self.probs * np.log(self.probs)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The positive part (w p - q)+ on the support of p, before normalisation, and its `mass`."""

    dist: Distribution
    mass: float


def residual(p: Distribution, q: Distribution, weight: float = 1.0) -> Residual:
    """Return (weight * p - q)+ normalised, with its mass.

    A mass that is rounding noise gives p itself: it can only be asked for where p and q agree.
    """
    rest = np.maximum(weight * p.probs - q.at(p.ids), 0.0)  # [m]
    mass = float(rest.sum())
    return Residual(p if mass < TINY else Distribution.of(p.ids, rest), mass)
