"""What the draft model may be expected to be sure of in this answer, and how often it is right then.

Both start from what was learned of the pair and follow the answer: texts differ, and so does the draft in them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from localspec.acceptance import BINS, Acceptance, shifted

PAIR = 16.0  # looks that what is known of the pair is worth
FADE = 0.98  # of what this answer showed, a look later
FOLLOW = 0.1  # how far one surprise moves the log-odds of every chance


class Outlook:
    """The chances of `acceptance`, shifted in log-odds by how this answer surprised; a belief is a probability."""

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance
        self._looks = [PAIR * share for share in acceptance.looks]
        self._shift = 0.0

    def chance(self, belief: float) -> float:
        """Return the chance that a first child is accepted of which the draft model thinks so much."""
        return shifted(self._acceptance.chance(belief, 0), self._shift)

    def chances(self) -> NDArray[np.float64]:
        """Return the chances [10] in the middle of every tenth of the belief."""
        return np.array([self.chance((tenth + 0.5) / BINS) for tenth in range(BINS)])

    def weights(self) -> NDArray[np.float64]:
        """Return how often [10] a look finds a belief in every tenth; they sum to 1."""
        total = sum(self._looks)
        return np.array([one / total for one in self._looks])

    def see(self, beliefs: Iterable[float]) -> None:
        """Learn from what looks found, drafted or not."""
        for belief in beliefs:
            self._looks = [FADE * one for one in self._looks]
            self._looks[min(int(belief * BINS), BINS - 1)] += 1.0
            self._acceptance.see(belief)

    def judge(self, belief: float, *, is_accepted: bool) -> None:
        """Follow what became of a drafted token."""
        self._shift += FOLLOW * (is_accepted - self.chance(belief))
