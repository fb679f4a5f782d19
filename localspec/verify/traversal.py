"""Traversal verification of a drawn tree, bottom up (Weng et al. arXiv 2505.12398): block verification on trees.

Walk the children of a node in draw order with an acceptance weight a, 1 at the root. Child y, drawn from Q, is
visited with weight min(1, a P(y) / Q(y)); a child that is rejected leaves

    res = (a P - Q)+,  R = sum(res):   a <- R / (R + 1 - a),   P <- norm(res)

and a node whose children have all been rejected is accepted with probability a, the token then drawn from its P.
"""

from typing import ClassVar

from localspec.engine.distribution import residual
from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource


class TraversalVerifier:
    """Joint acceptance over a tree; equals block verification on a chain. Reads the rows of every visited node."""

    name: ClassVar[str] = "traversal"
    accepts: ClassVar[frozenset[Draw]] = frozenset({Draw.FIXED, Draw.IID, Draw.WITHOUT_REPLACEMENT})
    trees: ClassVar[bool] = True
    is_lossless: ClassVar[bool] = True

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Accept the first node, in post-order, whose coin falls well; the root always does."""
        verdict = self._visit(draft, dists, rng, 0, 1.0)
        assert verdict is not None, "the root is accepted with probability one"
        return verdict

    def _visit(self, draft: Draft, dists: Distributions, rng: RandomSource, node: int, weight: float) -> Verdict | None:
        if weight <= 0.0:
            return None  # nothing below a token outside the target's support can be accepted
        p = dists[node]
        for child in draft.children[node]:
            q = draft.dist(child)
            token = int(draft.tokens[child])
            chance = min(1.0, weight * p.prob(token) / q.prob(token))
            verdict = self._visit(draft, dists, rng, child, chance)
            if verdict is not None:
                return verdict
            rest = residual(p, q, weight)
            p = rest.dist
            weight = rest.mass / (rest.mass + 1.0 - weight) if weight < 1.0 else 1.0
        if not rng.bernoulli(weight):
            return None
        return draft.verdict(node, rng.categorical(p))
