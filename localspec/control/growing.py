"""When a chain stops growing: the value of time, asked before every pass of the draft model and before every draw.

What a draft brings scatters about what it promises, and one that is rejected can use up what may be lost for dozens of
passes. As for whoever bets a share of all they have (Kelly), half its variance counts against it, over what may be
lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.acceptance import Acceptance
from localspec.protocols import Growth

LEAST = 0.01  # tokens that a sibling must promise where its row is free: handling it is not


@dataclass(slots=True)
class Growing:
    """The stop rule of one chain. `rows` are lambda T(1+k) and `draft` lambda D(k) by k, in tokens.

    `caution` is what a squared token of scatter counts for: one over twice the tokens that may be lost. To know what
    may follow k tokens, the draft model is run a (k+1)th time; then the next token costs rows alone.
    """

    acceptance: Acceptance
    mean: float
    rows: list[float]
    draft: list[float]
    caution: float = 0.0
    looked: int = 0  # passes of the draft model
    reach: float = 1.0  # chance that all that is drafted is accepted
    length: int = 0  # of the draft so far
    tokens: float = 0.0  # of it that are expected to be accepted
    squares: float = 0.0  # of that number: what is expected of its square

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
            self.squares += (2 * self.length - 1) * chance
        return is_worth

    def widen(self, n_nodes: int, promise: float) -> bool:
        """Whether a sibling beside the chain is worth the row it takes: it costs no pass of the draft model."""
        is_affordable = n_nodes + 1 < len(self.rows)
        return is_affordable and promise > self.rows[n_nodes + 1] - self.rows[n_nodes] + LEAST

    def _is_worth(self, k: int, looked: int, chance: float) -> bool:
        """Whether some longer draft is worth what it costs more; `chance` is that its next token is accepted too."""
        tokens, squares = self.tokens, self.squares
        now = self._worth(tokens, squares) - self.rows[k] - self.draft[looked]
        for longer in range(k + 1, len(self.rows)):
            tokens += chance
            squares += (2 * longer - 1) * chance
            chance *= self.mean
            if self._worth(tokens, squares) - self.rows[longer] - self.draft[longer] > now:
                return True
        return False

    def _worth(self, tokens: float, squares: float) -> float:
        return tokens - self.caution * (squares - tokens * tokens)


def _share(growth: Growth) -> float:
    """Return the token's share, or what is to be expected of one that is yet to be drawn."""
    if growth.share is not None:
        return growth.share
    belief = growth.law.belief.probs
    return float(belief.max() if growth.law.probs.size == 1 else belief @ belief)
