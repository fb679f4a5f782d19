"""DRY: lower the logits of tokens that would extend a repetition, as llama.cpp's `dry` sampler does.

The longest suffix of the text that also ends at an earlier position has length n, and x follows it there:

    logit(x) -= multiplier * base ** (n - allowed)    for the greatest n >= allowed that leads to x

A breaker, such as a line's end, ends every repetition. It is a head token and the tokens after it, none for most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.engine.distribution import Ids
from localspec.settings.request import Sampling

Breakers = Mapping[int, Sequence[tuple[int, ...]]]  # by their first tokens, the rest of each

LARGEST_LOG = np.float32(88.7228391)  # of a float32: what the base is raised to stays below


class Dry:
    """The penalties of the settings after a text; holds no state."""

    def __init__(self, settings: Sampling, breakers: Breakers) -> None:
        self.is_on = settings.dry_multiplier > 0.0 and settings.dry_penalty_last_n != 0
        self._multiplier = float(np.float32(settings.dry_multiplier))
        self._base = np.float32(settings.dry_base)
        self._allowed = settings.dry_allowed_length
        self._last_n = settings.dry_penalty_last_n
        self._breakers = breakers
        # A base of one makes no difference between lengths, and llama.cpp then bounds none.
        self._most = int(LARGEST_LOG / np.log(self._base)) if self._base > np.float32(1.000001) else 0

    def penalties(self, history: Sequence[int]) -> tuple[Ids, NDArray[np.float32]]:
        """Return tokens [m], ascending, and the amounts to subtract from their logits."""
        window = history if self._last_n < 0 else history[-self._last_n :]
        limit = self._limit(window)
        if len(window) <= self._allowed or limit < self._allowed:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        text = np.asarray(window, np.int32)  # [n]
        lengths = _repeated(text, min(limit, self._allowed + self._most) if self._most else limit)  # [n - 1]
        ends = (lengths >= self._allowed).nonzero()[0]
        ids, at = np.unique(text[ends + 1], return_inverse=True)
        greatest = np.zeros(ids.size, np.int64)
        np.maximum.at(greatest, at, lengths[ends])
        is_open = np.array([() not in self._breakers.get(int(token), ()) for token in ids], np.bool_)
        ids, exponents = ids[is_open], greatest[is_open] - self._allowed
        with np.errstate(over="ignore"):
            taken = (self._multiplier * float(self._base) ** exponents.astype(np.float64)).astype(np.float32)
        return ids, taken

    def _limit(self, window: Sequence[int]) -> int:
        """Return how many of the last tokens may be part of a repetition: those after the last breaker."""
        n = len(window)
        for i in range(n):
            tails = self._breakers.get(window[n - 1 - i], ())
            ends = [len(tail) for tail in tails if len(tail) <= i and tuple(window[n - i : n - i + len(tail)]) == tail]
            if ends:
                return i - max(ends)
        return n


def _repeated(text: Ids, most: int) -> NDArray[np.int64]:
    """Return for every position [n - 1] but the last how long a suffix of `text` [n] ends there, at most `most`."""
    last = text.size - 1
    lengths = np.zeros(last, np.int64)
    alive = np.arange(last)
    for length in range(most):
        alive = alive[alive >= length]
        alive = alive[text[alive - length] == text[last - length]]
        if not alive.size:
            break
        lengths[alive] = length + 1
    return lengths
