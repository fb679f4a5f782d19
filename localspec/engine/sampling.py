"""From a row of logits to the distribution a token is drawn from: one pure function, used by plain decoding, by every
verifier on target rows and by drafters on their own rows.

The order is llama.cpp's default chain: logit bias, penalties, DRY, top-k, typical-p, top-p, min-p, XTC, temperature.
Each filter after the penalties keeps a set of tokens; temperature comes last. Temperature 0 is the point mass on the
most probable token that is left, so greedy decoding needs no code of its own. A constraint comes before all filters.
Bias and penalties change each logit by itself, so they may come before it.

XTC tosses a coin for every token: with probability x the likeliest tokens are left out. The distribution of the token
is then the mixture (1 - x) p + x p', where p' is that of the tokens that stay. Verification uses the mixture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from localspec.engine.constraint import Constraint
from localspec.engine.distribution import Distribution, Ids
from localspec.engine.draft import Draft
from localspec.engine.protocols import Logits, Rows
from localspec.engine.repetition import Breakers, Dry
from localspec.errors import BadLogitsError, UsageError
from localspec.settings.request import Sampling

SPARE = 8  # times as many tokens as top-k keeps are looked at, so that enough of them are allowed as a rule
GROUPS = 16  # for each of the greatest entries that are looked for: so many that two are seldom in one group

Gaps = NDArray[np.float64]  # [m]: the greatest logit of a row less a token's own
Order = NDArray[np.intp]  # entries of a row, or of what was found in one


class Sampler:
    """The sampling settings as a function (row, history) -> Distribution; holds no state.

    `breakers` are those of DRY, in the tokens of the target. `constraint` restricts every distribution to the tokens
    it allows. A draft's row may give none of these a chance: a Sampler that `drafts` then ignores the constraint.
    """

    def __init__(
        self,
        settings: Sampling,
        *,
        temperature: float | None = None,
        breakers: Breakers | None = None,
        constraint: Constraint | None = None,
        drafts: bool = False,
    ) -> None:
        self._settings = settings
        self._temperature = settings.temperature if temperature is None else temperature
        self._bias_ids = np.array([token for token, _ in settings.logit_bias], np.int32)
        self._bias = np.array([bias for _, bias in settings.logit_bias], np.float32)
        self._dry = Dry(settings, breakers or {})
        self._has_penalties = settings.penalty_last_n != 0 and (
            settings.repeat_penalty != 1.0 or settings.presence_penalty != 0.0 or settings.frequency_penalty != 0.0
        )
        self._is_adjusted = self._bias_ids.size > 0 or self._has_penalties or self._dry.is_on
        self.constraint = constraint
        self._drafts = drafts
        self.needs_history = self._has_penalties or self._dry.is_on or constraint is not None
        self._has_xtc = settings.xtc_probability > 0.0 and settings.xtc_threshold <= 0.5
        # No other filter can remove the most probable token.
        self.is_greedy = self._temperature == 0.0 and settings.typical_p >= 1.0 and not self._has_xtc

    @property
    def has_dry(self) -> bool:
        """Whether repetitions are searched for, so that their breakers matter."""
        return self._dry.is_on

    def dist(self, logits: Logits, history: Sequence[int] = (), *, with_belief: bool = False) -> Distribution:
        """Return the distribution of the next token for the row `logits` [V] after the tokens `history`.

        `with_belief` keeps the distribution at temperature 1 beside it: the same tokens, before temperature sharpens or
        flattens what the model thinks of them.
        """
        row = self.adjusted(logits, history)
        if self.constraint is None:
            return self._filtered(row, with_belief=with_belief)
        allowed = self._allowed(row, self.constraint.allowed(history))
        if allowed is None:
            return self._filtered(row, with_belief=with_belief)
        return self._filtered(row[allowed], with_belief=with_belief).renamed(allowed)

    def _allowed(self, row: Logits, allowed: Ids) -> Ids | None:
        """Return those of the `allowed` tokens that the adjusted `row` knows; None: the row's own distribution."""
        if allowed.size == 0:
            return None
        known = allowed if allowed[-1] < row.size else allowed[allowed < row.size]  # a draft may lack the last tokens
        known = self._looked_at(row, known)
        if known.size and row[known].max() != -np.inf:
            return known
        if self._drafts:
            return None
        raise UsageError(
            "the answer's form allows only tokens that the model cannot write here",
            hint="another form, or no --logit-bias against its tokens",
        )

    def _looked_at(self, row: Logits, allowed: Ids) -> Ids:
        """Return those of the `allowed` tokens that top-k may keep, and some more: inside a text most are allowed."""
        top_k = 1 if self.is_greedy else self._settings.top_k
        if not 0 < top_k < allowed.size // SPARE:
            return allowed
        head = _top_k(row, SPARE * top_k)[0].astype(np.int32)
        likely = head[allowed.take(allowed.searchsorted(head), mode="clip") == head]
        return likely if likely.size >= top_k else allowed

    def _filtered(self, row: Logits, *, with_belief: bool) -> Distribution:
        """Return the distribution that filters and temperature make of an adjusted row."""
        if self.is_greedy and not with_belief:
            return Distribution.one_hot(_greatest(row))
        ids, gaps = self._support(row)
        dist = self._tempered(ids, gaps, self._temperature)
        if with_belief and self._temperature != 1.0:
            return replace(dist, untempered=self._tempered(ids, gaps, 1.0))
        return dist

    def _tempered(self, ids: Ids, gaps: Gaps, temperature: float) -> Distribution:
        """Return the distribution of the tokens that the filters left: with XTC, the mixture of its two outcomes."""
        whole = _softmax(ids, gaps, temperature)
        rest = _without_likeliest(gaps, self._settings.xtc_threshold) if self._has_xtc else None
        if rest is None:
            return whole
        without = _softmax(ids[rest], gaps[rest] - gaps[rest].min(), temperature)
        x = self._settings.xtc_probability
        return Distribution.of(ids, (1.0 - x) * whole.at(ids) + x * without.at(ids))

    def _support(self, row: Logits) -> tuple[Ids, Gaps]:
        """Return the tokens that the filters leave, ascending, with their gaps."""
        settings = self._settings
        limit = settings.top_k if 0 < settings.top_k < row.size else None
        total: float | None = None
        if limit is not None:
            candidates, peak = _top_k(row, limit)
        else:
            peak = _checked(float(row.max()))
            if settings.typical_p >= 1.0 and settings.top_p >= 1.0 and settings.min_p <= 0.0:
                return np.arange(row.size, dtype=np.int32), _gaps(row, peak)
            candidates, total = self._candidates(row, peak)
        gaps = _gaps(row[candidates], peak)
        order = gaps.argsort(kind="stable")[:limit]  # greatest logit first, the lower id first on ties
        order = self._filter(order, gaps[order], total)
        order.sort()
        ids, gaps = candidates[order].astype(np.int32), gaps[order]
        return ids, gaps if settings.typical_p >= 1.0 else gaps - gaps.min()  # the most probable token may be gone

    def adjusted(self, logits: Logits, history: Sequence[int]) -> Logits:
        """Apply bias, penalties and DRY to a copy; the row itself when there are none."""
        if not self._is_adjusted:
            return logits
        row = logits.copy()
        if self._bias_ids.size:
            known = self._bias_ids < row.size  # a draft may lack the target's last tokens
            np.add.at(row, self._bias_ids[known], self._bias[known])  # the same token may be named twice
        if self._has_penalties:
            self._penalise(row, history)
        if self._dry.is_on:
            ids, taken = self._dry.penalties(history)
            known = ids < row.size
            row[ids[known]] -= taken[known]
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

    def _candidates(self, row: Logits, peak: float) -> tuple[Order, float | None]:
        """Return ascending tokens among which are all that the filters leave of a whole vocabulary, found without
        sorting it where the filters allow, and what `_filter` needs to know of the others.
        """
        settings = self._settings
        if settings.typical_p < 1.0:
            return np.arange(row.size), None
        total = float(np.exp(-_gaps(row, peak)).sum()) if settings.top_p < 1.0 else None
        if total is None or settings.min_p > 0.0:
            # top-p and min-p both keep a head of the sorted row, so the shorter head is a head of min-p's.
            return (row >= np.float32(peak + math.log(settings.min_p))).nonzero()[0], total
        for k in (2048, row.size):  # a nucleus rarely needs more than the first; the second holds all
            ids = _top_k(row, k)[0]
            if ids.size == row.size or np.exp(-_gaps(row[ids], peak)).sum() >= settings.top_p * total:
                break
        return ids, total

    def _filter(self, order: Order, gaps: Gaps, total: float | None) -> Order:
        """Return what typical-p, top-p and min-p leave of `order` [m], candidates by their ascending `gaps` [m].

        `total` is the sum of exp(-gap) over the set that top-p looks at; None means over `gaps` itself.
        """
        settings = self._settings
        if settings.typical_p < 1.0:
            chosen = _typical(gaps, settings.typical_p)
            order, gaps = order[chosen], gaps[chosen] - gaps[chosen[0]]
        n = gaps.size
        if settings.top_p < 1.0:
            mass = np.exp(-gaps).cumsum()
            n = min(n, int(mass.searchsorted(settings.top_p * (mass[-1] if total is None else total))) + 1)
        if settings.min_p > 0.0:
            n = min(n, int(gaps.searchsorted(-math.log(settings.min_p), side="right")))
        return order[:n]


@dataclass(slots=True)
class TargetDistributions:
    """The target's distributions for the nodes of one draft, computed when first asked for (each sees its own
    path). Those before forced tokens need no row.
    """

    sampler: Sampler
    rows: Rows
    draft: Draft
    tokens: Sequence[int]
    _dists: dict[int, Distribution] = field(default_factory=dict)

    def __getitem__(self, node: int) -> Distribution:
        dist = self._dists.get(node)
        if node < self.draft.forced:
            return Distribution.one_hot(int(self.draft.tokens[node + 1]))  # whatever the row is, if there is one
        if dist is None:
            history = [*self.tokens, *self.draft.path(node)] if self.sampler.needs_history else ()
            dist = self._dists[node] = self.sampler.dist(self.rows.logits(node), history)
        return dist


def _greatest(row: Logits) -> int:
    best = int(row.argmax())  # NumPy's argmax returns the first NaN if there is one
    _checked(float(row[best]))
    return best


def _checked(peak: float) -> float:
    """Return the greatest logit of a row; NaN or all -inf is an engine failure."""
    if not math.isfinite(peak):
        raise BadLogitsError(
            "the model produced logits that are not numbers",
            hint="compare the file's hash with its publisher's: localspec show --sha256 MODEL",
        )
    return peak


def _top_k(row: Logits, k: int) -> tuple[Order, float]:
    """Return a superset of the k greatest entries' ids, ascending, and the greatest entry, without sorting the row.

    The k-th greatest of the maxima of many groups bounds the k-th greatest entry from below.
    """
    if k >= row.size:
        return np.arange(row.size), _checked(float(row.max()))
    n = min(row.size, GROUPS * k)
    grouped = row.size // n * n
    maxima: Logits = np.maximum.reduce(row[:grouped].reshape(-1, n))
    rest = row[grouped:]
    if rest.size:
        np.maximum(maxima[: rest.size], rest, out=maxima[: rest.size])
    peak = _checked(float(maxima.max()))  # a NaN of the row is here too
    maxima.partition(n - k)
    order: Order = (row >= maxima[n - k]).nonzero()[0]
    return order, peak


def _gaps(logits: Logits, peak: float) -> Gaps:
    """Return as float64 how far each logit is below the greatest."""
    gaps: Gaps = np.subtract(peak, logits, dtype=np.float64)
    return gaps


def _typical(gaps: Gaps, typical_p: float) -> Order:
    """Return which of the ascending `gaps` stay, in this order: tokens whose surprise is nearest the entropy, until
    their mass exceeds `typical_p` (arXiv 2202.00666).
    """
    probs = np.exp(-gaps)
    probs /= probs.sum()
    surprise = -np.log(np.maximum(probs, np.finfo(np.float64).tiny))
    entropy = float((probs * surprise).sum())
    nearest = np.abs(surprise - entropy).argsort(kind="stable")
    n = int(probs[nearest].cumsum().searchsorted(typical_p, side="right")) + 1
    return np.sort(nearest[:n])


def _without_likeliest(gaps: Gaps, threshold: float) -> Order | None:
    """Return which of `gaps` [m] stay when XTC acts, None where it changes nothing.

    Of the tokens with at least this probability the least likely stays, the last one on ties.
    """
    probs = np.exp(-gaps)
    likely = (probs >= threshold * probs.sum()).nonzero()[0]
    if likely.size < 2:
        return None
    remaining = np.ones(gaps.size, np.bool_)
    remaining[likely] = False
    remaining[likely[::-1][probs[likely[::-1]].argmin()]] = True
    order: Order = remaining.nonzero()[0]
    return order


def _softmax(ids: Ids, gaps: Gaps, temperature: float) -> Distribution:
    """Return softmax(-gaps / temperature) on the ascending `ids`; temperature 0 keeps the greatest logit only."""
    if temperature == 0.0:
        return Distribution.one_hot(int(ids[gaps.argmin()]))
    return Distribution.of(ids, np.exp(gaps / -temperature))
