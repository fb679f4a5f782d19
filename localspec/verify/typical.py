"""Typical acceptance (Cai et al. arXiv 2401.10774). **It changes the output distribution**: for --approximate only.

    a drafted token y is accepted where p(y) > min(eps, delta exp(-H(p))),   eps = 0.09, delta = 0.3, H in nats

The longest accepted path wins, the more probable one among equals; the token after it is an ordinary draw from p.
Drafts that are merely plausible are taken without a coin, so likely tokens come too often. At temperature 0 nothing
but the argmax is plausible, and the text is the target's own. tests/exact/test_approximate.py measures the bias.
"""

from __future__ import annotations

import math
from typing import ClassVar

from localspec.draft import Draft, Draw, Verdict
from localspec.law import Law
from localspec.protocols import Chooser, Laws


class Typical:
    """Accept whatever is plausible: changes the distribution, so it needs --approximate."""

    accepts: ClassVar[frozenset[Draw]] = frozenset(Draw)
    trees: ClassVar[bool] = True
    is_lossless: ClassVar[bool] = False

    def __init__(self, eps: float = 0.09, delta: float = 0.3) -> None:
        self._eps = eps
        self._delta = delta

    def walk(self, draft: Draft, laws: Laws, chooser: Chooser, position: int) -> Verdict:
        """Find the longest plausible path, then draw from its end."""
        reached = {0: (0, 0.0)}  # node -> depth and log-probability of its path
        for node, children in enumerate(draft.children):
            if node not in reached or not children:
                continue
            p, (depth, score) = laws[node], reached[node]
            edge = self._edge(p)
            for child in children:
                chance = p.prob(int(draft.tokens[child]))
                if chance > edge:
                    reached[child] = depth + 1, score + math.log(chance)
        best = max(reached, key=lambda node: reached[node])
        return draft.verdict(best, chooser.categorical(laws[best]))

    def _edge(self, p: Law) -> float:
        return min(self._eps, self._delta * math.exp(-p.entropy))
