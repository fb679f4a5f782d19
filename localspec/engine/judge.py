"""Who decides what becomes of a draft: the target with its sampling settings, its rule and its source of chance.

The loop asks nothing else about the target. `LocalJudge` holds it in this process. A judge elsewhere gets the draft,
and answers with the verdict.

Log-probabilities of committed tokens are those of the rows that judged them, which plain decoding would have evaluated
too.

A row is read before the sampler, as the model wrote it, or after it, as the distribution that the token was drawn
from. Nothing here runs unless a request asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.engine.constraint import Constraint
from localspec.engine.distribution import Ids
from localspec.engine.draft import Draft, Judged, Nodes, Step, Verdict
from localspec.engine.protocols import Backend, Cancel, Capabilities, Logits, RandomSource, Rows, Verifier
from localspec.engine.sampling import Sampler, TargetDistributions

Mark = Callable[[], None]  # called between evaluating a draft and judging it


class Judge(Protocol):
    """What the loop asks about the target. Between two verdicts the judge holds all tokens but the pending one."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def constraint(self) -> Constraint | None:
        """What restricts the answer, where this side knows it: drafts are cut by it."""

    @property
    def length(self) -> int:
        """Committed tokens that the target holds."""

    @property
    def evaluated(self) -> int:
        """Tokens the target evaluated since it was made."""

    @property
    def to_replay(self) -> int:
        """Committed tokens that the next pass evaluates again; nothing is drafted then."""

    def start(self, draft: Draft, tokens: Sequence[int], mark: Mark, cancel: Cancel) -> tuple[Verdict, Rows]:
        """Read the prompt `tokens`, and judge the empty `draft` of its last one. Raises Cancelled."""

    def verdict(self, draft: Draft, tokens: Sequence[int], mark: Mark) -> tuple[Verdict, Rows]:
        """Judge a `draft` after `tokens`, of which the last is pending; its rows last until the next decode."""

    def keep(self, nodes: Nodes) -> None:
        """Commit the path `nodes` of the draft that was judged, node 0 first; drop its other nodes."""


@dataclass(slots=True)
class LocalJudge:
    """The target in this process."""

    target: Backend
    sampler: Sampler
    verifier: Verifier
    rng: RandomSource
    constraint: Constraint | None = field(init=False)

    def __post_init__(self) -> None:
        self.constraint = self.sampler.constraint

    @property
    def capabilities(self) -> Capabilities:
        return self.target.capabilities

    @property
    def length(self) -> int:
        return self.target.length

    @property
    def evaluated(self) -> int:
        return self.target.evaluated

    @property
    def to_replay(self) -> int:
        return self.target.to_replay

    def start(self, draft: Draft, tokens: Sequence[int], mark: Mark, cancel: Cancel) -> tuple[Verdict, Rows]:
        """Evaluate what the cache lacks of the prompt; the verdict is drawn from its last row."""
        rows = self.target.prefill(tokens, cancel)
        mark()
        return self._judged(draft, tokens, rows), rows

    def verdict(self, draft: Draft, tokens: Sequence[int], mark: Mark) -> tuple[Verdict, Rows]:
        """Evaluate the draft in one decode, and judge it by the target's distributions at its nodes."""
        rows = self.target.extend(draft.tokens, draft.parents, draft.outputs)
        mark()
        return self._judged(draft, tokens, rows), rows

    def keep(self, nodes: Nodes) -> None:
        self.target.keep(nodes)

    def _judged(self, draft: Draft, tokens: Sequence[int], rows: Rows) -> Verdict:
        dists = TargetDistributions(self.sampler, rows, draft, tokens)
        return self.verifier.verify(draft, dists, self.rng, len(tokens))


LogProbs = NDArray[np.float64]  # natural logarithms; -inf where a token has no chance


@dataclass(frozen=True, slots=True)
class Judging:
    """How log-probabilities are told: of the `n_top` likeliest tokens too; with a `sampler`, of what it leaves."""

    n_top: int
    sampler: Sampler | None = None

    def of(self, step: Step, rows: Rows, tokens: Sequence[int]) -> tuple[Judged, ...]:
        """Return one for each token of a pass; `tokens` are all so far, those of the pass included."""
        judged = []
        for i, (token, node) in enumerate(zip(step.tokens, step.kept, strict=True)):
            judged.append(self.judged(rows.logits(node), token, tokens[: step.position + i]))
        return tuple(judged)

    def judged(self, row: Logits, token: int, history: Sequence[int] = ()) -> Judged:
        """Return what `row` [V] says of a token that follows `history`."""
        ids, logprobs = self._logprobs(row, history)
        own = logprobs[ids == token]
        return Judged(token, float(own[0]) if own.size else -math.inf, self._top(ids, logprobs))

    def _logprobs(self, row: Logits, history: Sequence[int]) -> tuple[Ids, LogProbs]:
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
    logprobs: LogProbs = shifted - np.log(np.exp(shifted).sum())
    return logprobs
