"""When a chain stops growing: the value of time, asked before every draw."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.acceptance import Acceptance
from localspec.protocols import Growth


@dataclass(slots=True)
class Growing:
    """The stop rule of one chain: `costs` are lambda (T(1+k) + D(k)) by k, in tokens."""

    acceptance: Acceptance
    mean: float
    costs: list[float]
    reach: float = 1.0

    def go_on(self, growth: Growth) -> bool:
        """Whether some longer draft is worth what it costs more, given what is drafted so far."""
        k = growth.depth
        if k > 0:
            self.reach *= self.acceptance.chance(growth.chance, 0)
        belief = growth.law.belief.probs
        likely = float(belief.max() if growth.law.probs.size == 1 else belief @ belief)
        tokens, term = 0.0, self.reach * self.acceptance.chance(likely, 0)
        for longer in range(k + 1, len(self.costs)):
            tokens += term
            if tokens > self.costs[longer] - self.costs[k]:
                return True
            term *= self.mean
        return False
