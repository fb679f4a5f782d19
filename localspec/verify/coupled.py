"""Coupled noise: the target's draw at a position is fixed by (seed, position), whoever drafts (arXiv 2408.07978).

    t = argmin_v E(seed, position, v) / p(v),   E ~ Exp(1): a draw from p (exponential race, Gumbel-max)

Drafter and target race with the same noise, so a good draft meets the target's choice often; the text is a function
of model, prompt and seed alone: the same with speculation off, at any draft length, with any drafter, on any tree.
"""

from typing import ClassVar

from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource
from localspec.verify.match import follow


class CoupledVerifier:
    """Sample and match with the noise of the position; the draft may be anything."""

    name: ClassVar[str] = "coupled"
    accepts: ClassVar[frozenset[Draw]] = frozenset(Draw)
    trees: ClassVar[bool] = True
    is_lossless: ClassVar[bool] = True

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Follow the target's races through the tree."""
        return follow(draft, lambda node, depth: rng.gumbel_top_k(position + depth, dists[node])[0])
