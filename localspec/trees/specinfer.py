"""SpecInfer's token tree: an expansion vector with children drawn independently (Miao et al. arXiv 2305.09781)."""

from dataclasses import replace
from typing import ClassVar

from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, Plan, RandomSource
from localspec.trees.static import Static


class SpecInfer(Static):
    """An expansion vector whose siblings are independent draws, so that duplicates occur.

    Written "specinfer:3,2,1". `static` grows the same tree without replacement, which accepts more.
    """

    name: ClassVar[str] = "specinfer"
    draws: ClassVar[frozenset[Draw]] = frozenset(Draw) - {Draw.WITHOUT_REPLACEMENT}

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        if plan.draw is Draw.WITHOUT_REPLACEMENT:
            plan = replace(plan, draw=Draw.IID)
        return super().grow(pending, position, source, plan, rng)
