"""Recursive rejection over a tree, with or without replacement (SpecInfer arXiv 2305.09781, Sequoia arXiv 2402.12374).

At a node with target distribution P, the children are tried in the order they were drawn; child y was drawn from Q:

    accept y with probability min(1, P(y) / Q(y)); otherwise P <- norm((P - Q)+)

and when every child has failed the token is drawn from what is left of P. Drawing without replacement needs no second
rule: each child carries the distribution it was really drawn from, which is Q without its earlier siblings,
renormalised.
"""

from typing import ClassVar

from localspec.engine.distribution import residual
from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource


class TreeVerifier:
    """Multi-round rejection, top down: reads the rows of the walked path only."""

    name: ClassVar[str] = "tree"
    accepts: ClassVar[frozenset[Draw]] = frozenset({Draw.FIXED, Draw.IID, Draw.WITHOUT_REPLACEMENT})
    trees: ClassVar[bool] = True
    is_lossless: ClassVar[bool] = True

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Accept the longest path the coins allow, then draw from the last node's remaining distribution."""
        node = 0
        while True:
            p = dists[node]
            for child in draft.children[node]:
                q = draft.dist(child)
                token = int(draft.tokens[child])
                if rng.bernoulli(p.prob(token) / q.prob(token)):
                    node = child
                    break
                p = residual(p, q).dist
            else:
                return draft.verdict(node, rng.categorical(p))
