"""Block verification of a drawn chain (Sun et al. arXiv 2403.10444): never accepts less than token by token.

With w_0 = 1 and w_i = min(1, w_{i-1} p_i(y_i) / q_i(y_i)), every prefix of the chain is tried:

    prefix i < K passes with probability R_i / (R_i + 1 - w_i),  R_i = sum_x (w_i p_{i+1}(x) - q_{i+1}(x))+
    prefix K     passes with probability w_K

The longest prefix that passes is accepted, a later success overriding earlier failures; the next token is drawn from
p_{K+1} after the whole chain, else from norm((w_i p_{i+1} - q_{i+1})+).
"""

from typing import ClassVar

from localspec.engine.distribution import Distribution, residual
from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource


class BlockVerifier:
    """Joint acceptance of a chain; reads the rows of every position."""

    name: ClassVar[str] = "block"
    accepts: ClassVar[frozenset[Draw]] = frozenset({Draw.FIXED, Draw.IID, Draw.WITHOUT_REPLACEMENT})
    trees: ClassVar[bool] = False
    is_lossless: ClassVar[bool] = True

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Accept the longest prefix that passes its coin."""
        weight = 1.0
        accepted, after = 0, self._after(draft, dists, 0, weight)[0]
        node = 0
        while draft.children[node]:
            (child,) = draft.children[node]
            token = int(draft.tokens[child])
            weight = min(1.0, weight * dists[node].prob(token) / draft.dist(child).prob(token))
            dist, chance = self._after(draft, dists, child, weight)
            if rng.bernoulli(chance):
                accepted, after = child, dist
            node = child
        return draft.verdict(accepted, rng.categorical(after))

    def _after(self, draft: Draft, dists: Distributions, node: int, weight: float) -> tuple[Distribution, float]:
        """Return the distribution of the token after the prefix ending in `node`, and the chance that the prefix
        passes.
        """
        p = dists[node]
        if not draft.children[node]:
            return p, weight
        rest = residual(p, draft.dist(draft.children[node][0]), weight)
        return rest.dist, rest.mass / (rest.mass + 1.0 - weight) if weight < 1.0 else 1.0
