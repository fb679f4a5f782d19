"""Log-probabilities of committed tokens: of the rows that judged them, which plain decoding would have evaluated too.

A row is read before the sampler, as the model wrote it, or after it, as the law that the token was drawn from. Nothing
here runs unless a request asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.engine.distribution import Ids
from localspec.engine.draft import Judged, Step
from localspec.engine.protocols import Logits, Rows
from localspec.engine.sampling import Sampler

LogProbs = NDArray[np.float64]  # natural logarithms; -inf where a token has no chance


@dataclass(frozen=True, slots=True)
class Judging:
    """How log-probabilities are told: of the `n_top` likeliest tokens too; with a `sampler`, of what it leaves."""

    n_top: int
    sampler: Sampler | None = None

    def of(self, step: Step, rows: Rows, tokens: Sequence[int]) -> tuple[Judged, ...]:
        """Return one for each token of a pass; `tokens` are all so far, those of the pass included."""
        found = []
        for i, (token, node) in enumerate(zip(step.tokens, step.kept, strict=True)):
            ids, logprobs = self._law(rows.logits(node), tokens[: step.position + i])
            own = logprobs[ids == token]
            found.append(Judged(token, float(own[0]) if own.size else -math.inf, self._top(ids, logprobs)))
        return tuple(found)

    def _law(self, row: Logits, history: Sequence[int]) -> tuple[Ids, LogProbs]:
        """Return tokens [m] with their log-probabilities [m]."""
        if self.sampler is not None:
            dist = self.sampler.dist(row, history)
            return dist.ids, np.log(dist.probs)
        return np.arange(row.size, dtype=np.int32), log_softmax(row)

    def _top(self, ids: Ids, logprobs: LogProbs) -> tuple[tuple[int, float], ...]:
        """Return the likeliest, the lower id first on ties."""
        n = min(self.n_top, ids.size)
        if not n:
            return ()
        likely = (logprobs >= np.partition(logprobs, -n)[-n]).nonzero()[0]
        best = likely[np.lexsort((ids[likely], -logprobs[likely]))[:n]]
        return tuple((int(ids[at]), float(logprobs[at])) for at in best)


def log_softmax(row: Logits) -> LogProbs:
    """Return the log-probabilities [V] of a row [V]."""
    shifted = row.astype(np.float64) - float(row.max())
    found: LogProbs = shifted - np.log(np.exp(shifted).sum())
    return found
