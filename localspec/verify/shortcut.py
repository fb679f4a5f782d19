"""The engineering shortcut for drawn chains. **It changes the output distribution**: for --approximate only.

    accept y, drawn from q, where p(y) / q(y) >= ratio, or where p(y) >= enough; at the first rejection draw from p

Guides recommend it because the draft's whole distribution need not be kept. It spends neither coins nor residuals, so
tokens that the draft likes too much come too seldom as drafts and once more as corrections. Where p and q are point
masses, at temperature 0, it is exact. tests/exact/test_approximate.py measures the bias.
"""

from __future__ import annotations

from typing import ClassVar

from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource
from localspec.settings.declaration import Option


class ShortcutVerifier:
    """Accept what the target likes better than the draft does: changes the distribution, so it needs --approximate."""

    name: ClassVar[str] = "shortcut"
    accepts: ClassVar[frozenset[Draw]] = frozenset({Draw.FIXED, Draw.IID, Draw.WITHOUT_REPLACEMENT})
    trees: ClassVar[bool] = False
    is_lossless: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("ratio", 1.0, "p / q from which a token is accepted", 0.01, 100.0),
        Option("enough", 1.0, "p from which it is accepted whatever q", 0.01, 1.0),
    )

    def __init__(self, ratio: float = 1.0, enough: float = 1.0) -> None:
        self._ratio = ratio
        self._enough = enough

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Accept while the thresholds hold, then draw from the target."""
        node = 0
        while draft.children[node]:
            (child,) = draft.children[node]
            token = int(draft.tokens[child])
            p = dists[node].prob(token)
            if p < self._ratio * draft.dist(child).prob(token) and p < self._enough:
                break
            node = child
        return draft.verdict(node, rng.categorical(dists[node]))
