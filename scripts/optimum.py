"""The best speed of fixed lengths under the loss account, by dynamic programming, to compare a rule with.

The account lets a draft begin only if it can bear that all of it is rejected. So the first drafts are short or have to
wait, and no rule can avoid that cost. The optimum knows the cost of each length beforehand, and how often how much of
it is accepted. For each number of tokens left and each balance of the account it takes the choice that ends soonest. A
rule that also looks at the draft's confidence, as `auto` does, can be better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.tuning import EPS

ROOMS = np.linspace(0.0, 32.0, 3201)  # plain passes that may still be lost; where there are more, nothing is forbidden


@dataclass(frozen=True, slots=True)
class Length:
    """Drafts of one length: the time of a pass, in plain passes, and the chances that it commits 1, 2, ... tokens."""

    passes: float
    chances: Sequence[float]


def optimum(lengths: Sequence[Length], n: int, head_start: float) -> float:
    """Return the speed, in plain decoding's, of an answer of `n` tokens; `head_start` is L0 in plain passes."""
    times = np.zeros((n + 1, ROOMS.size))  # passes to the end by tokens left
    for left in range(1, n + 1):
        times[left] = 1.0 + np.interp(ROOMS + EPS, ROOMS, times[left - 1])
        for length in lengths:
            room = ROOMS + EPS * length.passes - length.passes
            taken = np.full(ROOMS.size, length.passes)
            for tokens, chance in enumerate(length.chances, start=1):
                taken += chance * np.interp(room + tokens, ROOMS, times[max(left - tokens, 0)])
            can_begin = room + 1.0 >= 0.0  # a rejected draft commits one token
            times[left] = np.where(can_begin, np.minimum(times[left], taken), times[left])
    return n / float(np.interp(head_start, ROOMS, times[n]))
