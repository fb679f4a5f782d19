"""Typical acceptance (Cai et al. arXiv 2401.10774). **It changes the output distribution**: for --approximate only.

    a drafted token y is accepted where p(y) > min(epsilon, delta exp(-H(p))),   H in nats

The longest accepted path wins, the more probable one among equals; the token after it is an ordinary draw from p.
Drafts that are merely plausible are taken without a coin, so likely tokens come too often. At temperature 0 nothing
but the argmax is plausible, and the text is the target's own. tests/exact/test_approximate.py measures the bias.
"""

import math
from typing import ClassVar

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource
from localspec.settings.declaration import Option


class TypicalVerifier:
    """Accept whatever is plausible: changes the distribution, so it needs --approximate."""

    name: ClassVar[str] = "typical"
    accepts: ClassVar[frozenset[Draw]] = frozenset(Draw)
    trees: ClassVar[bool] = True
    is_lossless: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("epsilon", 0.09, "a token at least this probable is plausible, whatever the distribution", 0.0, 1.0),
        Option("delta", 0.3, "share of exp(-entropy) that is plausible where the distribution is wide", 0.0, 1.0),
    )

    def __init__(self, epsilon: float = 0.09, delta: float = 0.3) -> None:
        self._epsilon = epsilon
        self._delta = delta

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Find the longest plausible path, then draw from its end."""
        reached = {0: (0, 0.0)}  # node -> depth and log-probability of its path
        for node, children in enumerate(draft.children):
            if node not in reached or not children:  # a leaf's entropy would be for nothing
                continue
            p, (depth, score) = dists[node], reached[node]
            edge = self._edge(p)
            for child in children:
                chance = p.prob(int(draft.tokens[child]))
                if chance > edge:
                    reached[child] = depth + 1, score + math.log(chance)
        best = max(reached, key=lambda node: reached[node])
        return draft.verdict(best, rng.categorical(dists[best]))

    def _edge(self, p: Distribution) -> float:
        return min(self._epsilon, self._delta * math.exp(-p.entropy))
