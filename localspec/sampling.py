"""From a row of logits to the law a token is drawn from: one pure function, used by plain decoding, by every
verifier on target rows and by drafters on their own rows.

The order is llama.cpp's default chain: logit bias, penalties, top-k, typical-p, top-p, min-p, temperature. Each filter
after the penalties keeps a set of tokens; temperature comes last. Temperature 0 is the point mass on the most
probable token that is left, so greedy decoding needs no code of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localspec.config import Sampling
from localspec.draft import Draft
from localspec.errors import BadLogitsError
from localspec.law import Ids, Law, Probs
from localspec.protocols import Logits, Rows

BLOCK = 128  # entries whose maximum is taken at once: wide enough for SIMD, narrow enough to leave few candidates


class Sampler:
    """The sampling settings as a function (row, history) -> Law; holds no state."""

    def __init__(self, settings: Sampling, *, temperature: float | None = None) -> None:
        self._settings = settings
        self._temperature = settings.temperature if temperature is None else temperature
        self._bias_ids = np.array([token for token, _ in settings.logit_bias], np.int32)
        self._bias = np.array([bias for _, bias in settings.logit_bias], np.float32)
        self.needs_history = settings.penalty_last_n != 0 and (
            settings.repeat_penalty != 1.0 or settings.presence_penalty != 0.0 or settings.frequency_penalty != 0.0
        )

    def law(self, logits: Logits, history: Sequence[int] = (), *, with_belief: bool = False) -> Law:
        """Return the law of the next token for the row `logits` [V] after the tokens `history`.

        `with_belief` keeps the law at temperature 1 beside it: the same tokens, before temperature sharpens or
        flattens what the model thinks of them.
        """
        row = self.adjusted(logits, history)
        if self._temperature == 0.0 and self._settings.typical_p >= 1.0 and not with_belief:
            return Law.one_hot(_finite_argmax(row))  # no other filter can remove the most probable token
        ids, kept = self._support(row)
        law = _softmax(ids, kept, self._temperature)
        return replace(law, untempered=_softmax(ids, kept, 1.0)) if with_belief and self._temperature != 1.0 else law

    def _support(self, row: Logits) -> tuple[Ids, Probs]:
        """Return the tokens that the filters leave, ascending, with their logits as float64."""
        settings = self._settings
        if 0 < settings.top_k < row.size:
            ids, kept = _descending(row, _top_k(row, settings.top_k))
            ids, kept = self._filter(ids[: settings.top_k], kept[: settings.top_k], total=None)
        elif settings.typical_p >= 1.0 and settings.top_p >= 1.0 and settings.min_p <= 0.0:
            return np.arange(row.size, dtype=np.int32), row.astype(np.float64)
        else:
            ids, kept = self._filter_all(row)
        order = ids.argsort()
        return ids[order], kept[order]

    def adjusted(self, logits: Logits, history: Sequence[int]) -> Logits:
        """Apply bias and penalties to a copy; the row itself when there are none."""
        if not self._bias_ids.size and not self.needs_history:
            return logits
        row = logits.copy()
        if self._bias_ids.size:
            known = self._bias_ids < row.size  # a draft may lack the target's last tokens
            np.add.at(row, self._bias_ids[known], self._bias[known])  # the same token may be named twice
        if self.needs_history:
            self._penalise(row, history)
        return row

    def _penalise(self, row: Logits, history: Sequence[int]) -> None:
        """Repeat, frequency and presence penalties over the last tokens (llama.cpp's `penalties` sampler)."""
        settings = self._settings
        last_n = settings.penalty_last_n
        window = history if last_n < 0 else history[-last_n:]
        if not len(window):
            return
        seen, counts = np.unique(np.asarray(window, np.int32), return_counts=True)
        known = seen < row.size
        seen, counts = seen[known], counts[known]
        values = row[seen]
        repeat = np.float32(settings.repeat_penalty)
        values = np.where(values <= 0, values * repeat, values / repeat)
        row[seen] = values - counts * np.float32(settings.frequency_penalty) - np.float32(settings.presence_penalty)

    def _filter_all(self, row: Logits) -> tuple[Ids, Probs]:
        """Filter the whole vocabulary without sorting it, where the filters allow."""
        settings = self._settings
        peak = float(row[_finite_argmax(row)])
        if settings.typical_p < 1.0:
            return self._filter(*_descending(row, np.arange(row.size, dtype=np.int32)), total=None)
        total = float(np.exp(row.astype(np.float64) - peak).sum())
        if settings.min_p > 0.0:
            # top-p and min-p both keep a head of the sorted row, so the shorter head is a head of min-p's.
            candidates = np.flatnonzero(row >= np.float32(peak + math.log(settings.min_p))).astype(np.int32)
            return self._filter(*_descending(row, candidates), total=total)
        for k in (min(2048, row.size), row.size):  # a nucleus rarely needs more than the first; the second holds all
            ids, kept = _descending(row, _top_k(row, k))
            if k == row.size or np.exp(kept - peak).sum() >= settings.top_p * total:
                break
        return self._filter(ids, kept, total=total)

    def _filter(self, ids: Ids, kept: Probs, *, total: float | None) -> tuple[Ids, Probs]:
        """Apply typical-p, top-p and min-p to descending logits `kept` [m].

        `total` is the sum of exp(logit - greatest) over the set that top-p looks at; None means over `kept` itself.
        """
        settings = self._settings
        peak = kept[0]  # typical-p may drop the most probable token; min-p then measures from what is left
        if settings.typical_p < 1.0:
            ids, kept = _typical(ids, kept, settings.typical_p)
            peak = kept[0]
        n = kept.size
        if settings.top_p < 1.0:
            mass = np.exp(kept - peak).cumsum()
            n = min(n, int(mass.searchsorted(settings.top_p * (mass[-1] if total is None else total))) + 1)
        if settings.min_p > 0.0:
            n = min(n, int((-kept).searchsorted(-(peak + math.log(settings.min_p)), side="right")))
        return ids[:n], kept[:n]


class TargetLaws:
    """The target's laws for the nodes of one draft, computed when first asked for (ALG 3.2: each sees its own path)."""

    def __init__(self, sampler: Sampler, rows: Rows, draft: Draft, tokens: Sequence[int]) -> None:
        self._sampler = sampler
        self._rows = rows
        self._draft = draft
        self._tokens = tokens
        self._laws: dict[int, Law] = {}

    def __getitem__(self, node: int) -> Law:
        law = self._laws.get(node)
        if law is None:
            history = [*self._tokens, *self._draft.path(node)] if self._sampler.needs_history else ()
            law = self._laws[node] = self._sampler.law(self._rows.logits(node), history)
        return law


def _finite_argmax(row: Logits) -> int:
    """Return the id of the greatest logit, the lowest id on ties; NaN or all -inf is an engine failure."""
    best = int(row.argmax())  # NumPy's argmax returns the first NaN if there is one
    if not math.isfinite(row[best]):
        raise BadLogitsError(
            "the model produced logits that are not numbers",
            hint="compare the file's hash with its publisher's: localspec show --sha256 MODEL",
        )
    return best


def _top_k(row: Logits, k: int) -> NDArray[np.int32]:
    """Return a superset of the k greatest entries' ids, ascending, without sorting the row.

    The k-th greatest block maximum bounds the k-th greatest entry from below.
    """
    _finite_argmax(row)
    blocks = row.size // BLOCK
    if blocks < k:
        if k >= row.size:
            return np.arange(row.size, dtype=np.int32)
        threshold = np.partition(row, row.size - k)[row.size - k]
    else:
        maxima = row[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
        threshold = np.partition(maxima, blocks - k)[blocks - k]
    return np.flatnonzero(row >= threshold).astype(np.int32)


def _descending(row: Logits, ids: Ids) -> tuple[Ids, Probs]:
    """Return `ids` and their logits as float64, greatest first, the lower id first on ties."""
    values = row[ids].astype(np.float64)
    order = (-values).argsort(kind="stable")
    return ids[order], values[order]


def _typical(ids: Ids, kept: Probs, typical_p: float) -> tuple[Ids, Probs]:
    """Keep the tokens whose surprise is nearest the entropy until their mass exceeds `typical_p` (arXiv 2202.00666)."""
    probs = np.exp(kept - kept[0])
    probs /= probs.sum()
    surprise = -np.log(np.maximum(probs, np.finfo(np.float64).tiny))
    entropy = float((probs * surprise).sum())
    nearest = np.abs(surprise - entropy).argsort(kind="stable")
    n = int(probs[nearest].cumsum().searchsorted(typical_p, side="right")) + 1
    chosen = np.sort(nearest[:n])  # positions in descending order of logit
    return ids[chosen], kept[chosen]


def _softmax(ids: Ids, logits: Probs, temperature: float) -> Law:
    """Return softmax(logits / temperature) on the ascending `ids`; temperature 0 keeps the greatest only."""
    peak = logits.max()
    if not math.isfinite(peak):
        _finite_argmax(logits.astype(np.float32))
    if temperature == 0.0:
        return Law.one_hot(int(ids[logits.argmax()]))
    return Law.of(ids, np.exp((logits - peak) / temperature))
