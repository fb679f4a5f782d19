"""Rules that look right and are not: each has been published, shipped or suggested.

They plug into the same seams as the right ones. A test suite that does not flag every one of them is worthless.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from localspec.engine.distribution import Distribution, residual
from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, DistributionSource, Plan, RandomSource, Shape, TreePolicy

Accept = Callable[[Distribution, Distribution, int], float]
Correct = Callable[[Distribution, Distribution, int], Distribution]


def ratio(p: Distribution, q: Distribution, token: int) -> float:
    """Return p/q of the token: the right acceptance probability, capped by the coin."""
    return p.prob(token) / q.prob(token)


@dataclass(frozen=True)
class Rejection:
    """The token rule on a chain with its two halves exchangeable: when to accept, and what to draw then."""

    accept: Accept = ratio
    correct: Correct = lambda p, q, token: residual(p, q).dist
    bonus_row: int = 0  # how many rows too early the bonus is read

    accepts: ClassVar[frozenset[Draw]] = frozenset(Draw)
    trees: ClassVar[bool] = False

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        node = 0
        while draft.children[node]:
            (child,) = draft.children[node]
            p, q, token = dists[node], draft.dist(child), int(draft.tokens[child])
            if not rng.bernoulli(self.accept(p, q, token)):
                return draft.verdict(node, rng.categorical(self.correct(p, q, token)))
            node = child
        row = max(0, node - self.bonus_row)
        return draft.verdict(node, rng.categorical(dists[row]))


def dense(dist: Distribution, size: int) -> np.ndarray:
    """Return a distribution as an array over the vocabulary."""
    probs = np.zeros(size)
    probs[dist.ids] = dist.probs
    return probs


def dist_of(weights: np.ndarray) -> Distribution:
    """Return the distribution proportional to dense weights."""
    return Distribution.of(np.arange(weights.size, dtype=np.int32), weights)


def absolute_residual(p: Distribution, q: Distribution, token: int) -> Distribution:
    """ "Sample from abs(target - draft)": the sign of p - q is lost."""
    size = int(max(p.ids.max(), q.ids.max())) + 1
    gap = np.abs(dense(p, size) - dense(q, size))
    return dist_of(gap) if gap.sum() > 0 else p


def scalar_residual(p: Distribution, q: Distribution, token: int) -> Distribution:
    """p minus q at the rejected token alone: all that is left when only the scalar q was sent."""
    weights = dense(p, int(max(p.ids.max(), token)) + 1)
    weights[token] = max(0.0, weights[token] - q.prob(token))
    return dist_of(weights) if weights.sum() > 0 else p


def the_target(p: Distribution, q: Distribution, token: int) -> Distribution:
    """The shortcut: after a rejection, draw from p."""
    return p


def only_if_likelier(p: Distribution, q: Distribution, token: int) -> float:
    """Accept if and only if p/q >= 1."""
    return float(p.prob(token) >= q.prob(token))


def inverted(p: Distribution, q: Distribution, token: int) -> float:
    """min(1, q/p): the two letters exchanged."""
    return q.prob(token) / p.prob(token) if token in p.ids else 1.0


def typical(p: Distribution, q: Distribution, token: int) -> float:
    """Medusa's typical acceptance: p(x) above a threshold that falls with the entropy (lossy by design)."""
    entropy = float(-(p.probs * np.log(p.probs)).sum())
    return float(p.prob(token) > min(0.09, 0.3 * np.exp(-entropy)))


def confident_draft(p: Distribution, q: Distribution, token: int) -> float:
    """A cascade: what the draft is sure of is committed unverified."""
    return 1.0 if q.top > 0.6 else ratio(p, q, token)


def one_uniform_for_both(p: Distribution, q: Distribution, token: int) -> float:
    """The coin reuses the uniform that drew the token by inversion.

    Given the token, that uniform lies evenly in the token's own slice of q, so the coin's chance is the part of the
    slice below p/q.
    """
    at = int(np.searchsorted(q.ids, token))
    low = float(q.probs[:at].sum())
    return min(1.0, max(0.0, (ratio(p, q, token) - low) / q.prob(token)))


@dataclass(frozen=True)
class Resampling:
    """Prompt-lookup code that draws t ~ p, compares it with the draft, and on a mismatch draws *again* from p."""

    accepts: ClassVar[frozenset[Draw]] = frozenset(Draw)
    trees: ClassVar[bool] = False

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        node = 0
        while draft.children[node]:
            (child,) = draft.children[node]
            if rng.categorical(dists[node]) != draft.tokens[child]:
                return draft.verdict(node, rng.categorical(dists[node]))
            node = child
        return draft.verdict(node, rng.categorical(dists[node]))


@dataclass(frozen=True)
class LastSuccess:
    """Block verification that weighs the whole prefix but stops at the first failure, with the block residual."""

    accepts: ClassVar[frozenset[Draw]] = frozenset(Draw)
    trees: ClassVar[bool] = False

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        node, weight = 0, 1.0
        while draft.children[node]:
            (child,) = draft.children[node]
            q = draft.dist(child)
            after = min(1.0, weight * ratio(dists[node], q, int(draft.tokens[child])))
            if not rng.bernoulli(after):
                return draft.verdict(node, rng.categorical(residual(dists[node], q, weight).dist))
            node, weight = child, after
        return draft.verdict(node, rng.categorical(dists[node]))


class Policy:
    """A tree policy that grows the right draft and then spoils it."""

    def __init__(self, inner: TreePolicy, spoil: Callable[[Draft, DistributionSource, RandomSource], Draft]) -> None:
        self._inner = inner
        self._spoil = spoil

    def shape(self, k: int) -> Shape:
        return self._inner.shape(k)

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        return self._spoil(self._inner.grow(pending, position, source, plan, rng), source, rng)


def with_dists(draft: Draft, dists: list[Distribution | None], draw: Draw) -> Draft:
    """Return the same tree with other distributions reported."""
    return Draft.of(draft.tokens.tolist(), draft.parents.tolist(), dists, draw)


def softmax_of_an_argmax(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
    """Tokens were chosen as argmax q, and are reported as drawn from q."""
    dists = [None, *(source.dist(tuple(draft.path(int(parent)))) for parent in draft.parents[1:])]
    return with_dists(draft, dists, Draw.IID)


def flattened(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
    """Tokens were drawn from a filtered or tempered q, and q before that is reported."""
    dists: list[Distribution | None] = [None]
    for node in range(1, len(draft) + 1):
        q = draft.dist(node)
        weights = np.full(int(q.ids.max()) + 1, 1e-3)
        weights[q.ids] = np.sqrt(q.probs)
        dists.append(dist_of(weights))
    return with_dists(draft, dists, Draw.IID)


def not_renormalised(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
    """Siblings drawn without replacement, their q zeroed at earlier ones but never renormalised."""
    dists: list[Distribution | None] = [None]
    for node in range(1, len(draft) + 1):
        q = draft.dist(node)
        full = draft.dist(draft.children[int(draft.parents[node])][0])
        dists.append(Distribution(q.ids, full.at(q.ids)))
    return with_dists(draft, dists, Draw.WITHOUT_REPLACEMENT)


def as_if_replaced(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
    """Siblings drawn without replacement, reported as independent draws."""
    dists = [None, *(draft.dist(draft.children[int(parent)][0]) for parent in draft.parents[1:])]
    return with_dists(draft, dists, Draw.IID)


def cut(draft: Draft, n: int) -> Draft:
    """Return the draft's first `n` nodes."""
    tokens, parents = draft.tokens[: n + 1].tolist(), draft.parents[: n + 1].tolist()
    return Draft.of(tokens, parents, draft.dists[: n + 1], Draw.IID)


def unlikely_dropped(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
    """p_min: draw a token, look at its own q, and drop it with what follows when that is small."""
    for node in range(1, len(draft) + 1):
        if draft.dist(node).prob(int(draft.tokens[node])) < 0.4:
            return cut(draft, node - 1)
    return draft


def pruned_afterwards(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
    """Keep the prefix whose realised probability under q is best for its length: a search over the drawn block."""
    score, best, product = 0.0, 0, 1.0
    for node in range(1, len(draft) + 1):
        product *= draft.dist(node).prob(int(draft.tokens[node]))
        if product * node > score:
            score, best = product * node, node
    return cut(draft, best)


def best_first(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
    """Siblings sorted by q instead of tried in the order they were drawn."""
    order = sorted(range(1, len(draft) + 1), key=lambda node: -draft.dist(1).prob(int(draft.tokens[node])))
    tokens = [int(draft.tokens[0]), *(int(draft.tokens[node]) for node in order)]
    dists: list[Distribution | None] = [None]
    rest: Distribution | None = draft.dist(1)
    for token in tokens[1:]:
        assert rest is not None
        dists.append(rest)
        rest = rest.without(token)
    return Draft.of(tokens, draft.parents.tolist(), dists, Draw.WITHOUT_REPLACEMENT)
