"""What a draft is worth that can be ended at any time: optimal stopping, solved from the longest draft backwards.

A chain of k tokens that are all accepted with chance r, its *reach*, may be ended, or looked beyond: one more pass of
the draft model tells how sure it is of a next token, and so the chance a that this is accepted. Then the token is drawn
or not. In tokens, with lambda the value of time, T the target's passes by rows and D the draft's by tokens,

    W_k(r) = max(0,  E_a max(0, r a - lambda (T(2+k) - T(1+k)) + W_{k+1}(r a))  -  lambda (D(k+1) - D(k)))

A row is charged (1 + c (1 - r a)) times, c >= 0 being the caution: what it costs is lost where it is rejected.

What a draft model is sure of varies from token to token, and that is worth something: where a row costs 0.7 of a pass
and 0.7 of all tokens are accepted, drafting all of them wins nothing, drafting those that it is sure of does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

STEPS = 16  # of the reach, from 0 to 1: between them W is interpolated

Worth = list[list[float]]  # W_k(r) in tokens, by k and by step of r


def solve(
    rows: Sequence[float],
    draft: Sequence[float],
    chances: NDArray[np.float64],
    weights: NDArray[np.float64],
    caution: float = 0.0,
) -> Worth:
    """Return W for drafts of up to `len(rows)` - 1 tokens.

    `rows` are lambda T(1+k) and `draft` lambda D(k), by k. A look finds the chance `chances[b]` with probability
    `weights[b]`.
    """
    reach = np.linspace(0.0, 1.0, STEPS + 1)
    after = np.multiply.outer(reach, chances).ravel()  # the reach with one more token
    low = np.minimum((after * STEPS).astype(np.intp), STEPS - 1)
    between = np.zeros((after.size, STEPS + 1))  # W at `after` from W at the steps
    at = np.arange(after.size)
    between[at, low + 1] = after * STEPS - low
    between[at, low] = 1.0 - between[at, low + 1]
    risk = 1.0 + caution * (1.0 - after)
    worth = np.zeros(STEPS + 1)
    found = [worth]
    for k in range(len(rows) - 2, -1, -1):
        drawn = np.maximum(after + between @ worth - (rows[k + 1] - rows[k]) * risk, 0.0)
        looked = drawn.reshape(STEPS + 1, -1) @ weights
        worth = np.maximum(looked - (draft[k + 1] - draft[k]), 0.0)
        found.append(worth)
    return [one.tolist() for one in reversed(found)]


def at(worth: Worth, k: int, reach: float) -> float:
    """Return W_k(`reach`)."""
    low = min(int(reach * STEPS), STEPS - 1)
    share = reach * STEPS - low
    return (1.0 - share) * worth[k][low] + share * worth[k][low + 1]
