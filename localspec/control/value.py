"""What a draft is worth: the one value function, and the rules that end a chain by it.

    value = expected accepted tokens - scatter - lambda x (seconds of the pass beyond a plain one)

lambda is the value of time in tokens per second, the best rate there is: maximising tokens per second is maximising
tokens - lambda x seconds (Dinkelbach 1967). What a pass brings scatters, and a loss can leave nothing to draft with; a
squared token of scatter counts against it by one over twice the tokens that may be lost (Kelly 1956).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.control.prices import Prices
from localspec.engine.acceptance import Acceptance
from localspec.engine.protocols import DraftBudget, DraftState, History, Plan
from localspec.tuning import DOUBT

MIN_SIBLING_GAIN = 0.01  # tokens that a sibling must promise where its row is free: handling it is not


@dataclass(frozen=True, slots=True)
class Now:
    """What a candidate may know: the text, the limits, what passes cost, what may be lost.

    A pass has `forced` tokens before its draft, which `history` holds already and `budget` and `most` leave out. What
    it would cost with these alone is that of a plain pass to all that follow.

    `value` is lambda in tokens per second. `may_lose` and `caution` are seconds: what a draft may lose, and what the
    scatter of a copy is weighed against. `most` are the draft tokens that there is room for, `left` the passes to the
    end of the answer at most.
    """

    history: History
    budget: DraftBudget
    prices: Prices
    value: float
    may_lose: float
    caution: float
    most: int
    left: int
    forced: int = 0

    def seconds(self, n: int) -> float:
        return self.prices.plain + float(self.prices.beyond(self.forced + n)[-1])

    def beyond(self, n: int) -> NDArray[np.float64]:
        """Return the seconds beyond a pass of the forced tokens of passes that verify 1 to `n` tokens more."""
        beyond, forced = self.prices.beyond(self.forced + n), self.forced
        return beyond[forced:] - beyond[forced - 1] if forced else beyond

    def _worst(self, n: int) -> NDArray[np.float64]:
        forced = self.forced
        worst = self.prices.worst(forced + n)[forced:]
        return worst - self.prices.beyond(forced)[-1] if forced else worst

    def affordable(self, drafting: NDArray[np.floating[Any]], beyond: NDArray[np.float64] | None = None) -> int:
        """Return how many nodes may all be rejected at most; `drafting` are seconds of drafting 1, 2, ... nodes.
        `beyond` are the seconds of their passes beyond a plain one, where the prices do not say."""
        places = np.flatnonzero(self._is_affordable(drafting, beyond))
        return int(places[-1]) + 1 if len(places) else 0

    def _is_affordable(
        self, drafting: NDArray[np.floating[Any]], beyond: NDArray[np.float64] | None
    ) -> NDArray[np.bool_]:
        if beyond is None:
            worst = self._worst(len(drafting))
        else:
            worst = DOUBT * (beyond + self.prices.plain) - self.prices.plain + self.prices.replay
        return worst + DOUBT * drafting <= self.may_lose

    def best(
        self,
        chances: Sequence[float] | NDArray[np.float64],
        each: float,
        before: float = 0.0,
        *,
        caution: float = 0.0,
        beyond: NDArray[np.float64] | None = None,
        ready: int = 0,
    ) -> Best | None:
        """Return the chain of the greatest value among those that may be lost, None where none may.

        Token j is right with `chances[j]` if all before it are; it takes `each` seconds to draft, and `before` seconds
        come first, none of which counts in the value. `caution` are the seconds that scatter is weighed against:
        all that may be lost where it is 0; `beyond` as in `affordable`. The first `ready` tokens take no time to draft.
        """
        reach = np.cumprod(chances)
        n = np.arange(1, len(reach) + 1)
        tokens, drafting = np.cumsum(reach), each * np.maximum(n - ready, 0)
        is_possible = self._is_affordable(drafting + before, beyond)
        if not is_possible.any():
            return None
        scatter = (
            (np.cumsum((2 * n - 1) * reach) - tokens * tokens) * self.prices.plain / (2.0 * (caution or self.may_lose))
        )
        spent = (self.beyond(len(reach)) if beyond is None else beyond) + drafting
        gain = np.where(is_possible, tokens - scatter - self.value * spent, -np.inf)
        k = int(np.argmax(gain))
        return Best(k + 1, float(tokens[k]), float(gain[k]))


@dataclass(frozen=True, slots=True)
class Best:
    length: int
    tokens: float
    value: float


@dataclass(frozen=True, slots=True)
class Candidate:
    plan: Plan
    value: float


@dataclass(slots=True)
class StopRule:
    """Ends a chain where no longer one is worth more. `rows` and `draft` are the values in tokens of the time of a
    chain's pass and of its drafting, by its length. `mean` is the chance of tokens that are not looked at yet;
    `scatter` weighs the variance. The first `forced` tokens are drafted whatever they promise."""

    acceptance: Acceptance
    mean: float
    rows: list[float]
    draft: list[float]
    scatter: float
    forced: int = 0
    looked: int = 0  # passes of the draft model
    length: int = 0
    tokens: float = 0.0  # expected to be accepted
    squares: float = 0.0  # expectation of their square
    reach: float = field(default=1.0)  # chance that all are accepted

    @property
    def value(self) -> float:
        """Tokens that the draft promises beyond the time of the pass and of the draft model."""
        spent = self.rows[self.length] - self.rows[0] + self.draft[self.looked]
        return self._worth(self.tokens, self.squares) - spent

    def look_on(self, depth: int, share: float) -> bool:
        """Whether to run the draft model on the last token, whose share the drafter knows."""
        self.reach *= self.acceptance.chance(share, 0)
        return self._is_worth(depth, depth, self.reach * self.mean)

    def go_on(self, state: DraftState) -> bool:
        """Whether to draft a token from a distribution that the draft model was run for."""
        self.looked += 1
        chance = self.reach * self.acceptance.chance(_share(state), 0)
        is_worth = state.depth < self.forced or self._is_worth(state.depth, state.depth + 1, chance)
        if is_worth:
            self.length = state.depth + 1
            self.tokens += chance
            self.squares += (2 * self.length - 1) * chance
        return is_worth

    def widen(self, n_nodes: int, expected_gain: float) -> bool:
        """Whether a sibling beside the chain is worth the row it takes: it costs no pass of the draft model."""
        return (
            n_nodes + 1 < len(self.rows)
            and expected_gain > self.rows[n_nodes + 1] - self.rows[n_nodes] + MIN_SIBLING_GAIN
        )

    def _is_worth(self, k: int, looked: int, chance: float) -> bool:
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
        return tokens - self.scatter * (squares - tokens * tokens)


def _share(state: DraftState) -> float:
    if state.share is not None:
        return state.share
    belief = state.dist.belief.probs
    return float(belief.max() if state.dist.probs.size == 1 else belief @ belief)
