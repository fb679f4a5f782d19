"""K-SEQ: draft selection by optimal transport from k independent candidates (Sun et al. arXiv 2310.15141).

At a node with target distribution p, the candidates X_1 .. X_k are drawn from q, k being fixed before they are:

    beta(r) = sum_x min(q(x), p(x) / r),   rho: a number in [1, k] with 1 - (1 - beta(rho))^k <= rho beta(rho)
    accept X_i with probability min(1, p(X_i) / (rho q(X_i))), in draw order; when all fail, with A = 1 - (1 - beta)^k,
    draw from norm(p - min(q, p / rho) A / beta)

The least such rho accepts most, at least 1 - 1/e of what the best coupling would; any greater one is exact as well,
and the option `rho` asks for one. Candidates of the next node are the
children of all drafts that hold the accepted token. With k = 1 it is the token rule, and candidates that are not from
one distribution are tried group by group, as in recursive rejection.
"""

from typing import ClassVar

import numpy as np

from localspec.engine.distribution import TINY, Distribution, Probs
from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource
from localspec.settings.declaration import Option

HALVINGS = 40  # of [1, k]: rho to 1e-11


class SpecTrVerifier:
    """Selection among independent drafts, each going on while it agrees with what was accepted."""

    name: ClassVar[str] = "spectr"
    accepts: ClassVar[frozenset[Draw]] = frozenset({Draw.FIXED, Draw.IID})
    trees: ClassVar[bool] = True
    is_lossless: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("rho", 1.0, "divide chances by at least this; never by less than exactness takes", 1.0),
    )

    def __init__(self, rho: float = 1.0) -> None:
        self._rho = rho

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Accept the longest path the coins allow; `alike` are the nodes whose path has these tokens."""
        alike = [0]
        while True:
            candidates = sorted(child for node in alike for child in draft.children[node])
            node = int(draft.parents[candidates[0]]) if candidates else alike[0]
            p = dists[node]
            for group in _groups(draft, candidates):
                choice = _Choice(p, draft.dist(group[0]), len(group), self._rho)
                tokens = (int(draft.tokens[child]) for child in group)
                token = next((token for token in tokens if rng.bernoulli(choice.chance(token))), None)
                if token is not None:
                    alike = [child for child in candidates if draft.tokens[child] == token]
                    break
                p = choice.rest()
            else:
                return draft.verdict(node, rng.categorical(p))


def _groups(draft: Draft, nodes: list[int]) -> list[list[int]]:
    """Return `nodes` by the distribution they were drawn from: one group for independent drafts, each point mass its
    own.
    """
    groups: dict[int, list[int]] = {}
    for node in nodes:
        dist = draft.dists[node]
        groups.setdefault(-node if dist is None else id(dist), []).append(node)
    return list(groups.values())


class _Choice:
    """The coins of `k` candidates from one distribution, and what all of them leave of the target's when they fail."""

    def __init__(self, p: Distribution, q: Distribution, k: int, least: float) -> None:
        self._p, self._q, self._k = p, q, k
        self._q_at_p = q.at(p.ids)  # [m]
        self._rho = max(least, self._division())

    def chance(self, token: int) -> float:
        return self._p.prob(token) / (self._rho * self._q.prob(token))

    def rest(self) -> Distribution:
        """Return the distribution that makes the whole p again; p itself where only rounding is left."""
        common = self._common(self._rho)
        beta = float(common.sum())
        if beta < TINY:
            return self._p
        weights = np.maximum(self._p.probs - common * (self._accepted(beta) / beta), 0.0)
        return Distribution.of(self._p.ids, weights) if weights.sum() >= TINY else self._p

    def _division(self) -> float:
        """Return the least rho, from above: the condition holds at k, and at 1 if p and q agree."""
        low, high = 1.0, float(self._k)
        if self._holds(low):
            return low
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if self._holds(middle) else (middle, high)
        return high

    def _holds(self, rho: float) -> bool:
        beta = float(self._common(rho).sum())
        return self._accepted(beta) <= rho * beta

    def _common(self, rho: float) -> Probs:
        return np.minimum(self._q_at_p, self._p.probs / rho)

    def _accepted(self, beta: float) -> float:
        return 1.0 - (1.0 - beta) ** self._k
