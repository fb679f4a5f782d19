"""When a chain stops growing: the value of time, asked before every pass of the draft model and before every draw."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.acceptance import Acceptance
from localspec.protocols import Growth


@dataclass(slots=True)
class Growing:
    """The stop rule of one chain. `rows` are lambda T(1+k) and `draft` lambda D(k) by k, in tokens.

    To know what may follow k tokens, the draft model is run a (k+1)th time; then the next token costs rows alone.
    """

    acceptance: Acceptance
    mean: float
    rows: list[float]
    draft: list[float]
    looked: int = 0  # passes of the draft model
    reach: float = 1.0  # chance that all that is drafted is accepted
    length: int = 0  # of the draft so far
    tokens: float = 0.0  # of it that are expected to be accepted

    @property
    def promise(self) -> float:
        """Tokens that the draft promises net of its time, and of that of looking."""
        return self.tokens - (self.rows[self.length] - self.rows[0]) - self.draft[self.looked]

    def look_on(self, depth: int, share: float) -> bool:
        """Whether to run the draft model on the last token, which has so much of a share."""
        self.reach *= self.acceptance.chance(share, 0)
        return self._is_worth(depth, depth, self.reach * self.mean)

    def go_on(self, growth: Growth) -> bool:
        """Whether to draft a token from the law at hand, which the draft model was run for already."""
        self.looked += 1
        chance = self.reach * self.acceptance.chance(_share(growth), 0)
        is_worth = self._is_worth(growth.depth, growth.depth + 1, chance)
        if is_worth:
            self.length = growth.depth + 1
            self.tokens += chance
        return is_worth

    def _is_worth(self, k: int, looked: int, chance: float) -> bool:
        """Whether some longer draft is worth what it costs more; `chance` is that its next token is accepted too."""
        tokens = 0.0
        for longer in range(k + 1, len(self.rows)):
            tokens += chance
            chance *= self.mean
            if tokens > self.rows[longer] - self.rows[k] + self.draft[longer] - self.draft[looked]:
                return True
        return False


def _share(growth: Growth) -> float:
    """Return the token's share, or what is to be expected of one that is yet to be drawn."""
    if growth.share is not None:
        return growth.share
    belief = growth.law.belief.probs
    return float(belief.max() if growth.law.probs.size == 1 else belief @ belief)
