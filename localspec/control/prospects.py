"""What drafts of the draft model are worth as things are now, how long one may be, and how careful it is to be.

An account that is nearly empty parks drafting for long once a draft is rejected, so what may be lost counts more than
what may be won: as if the logarithm of what is left were to grow (Kelly). Near the end of it only tokens are drafted
that the draft model is sure of.

Solving what a draft is worth takes a quarter of a millisecond, and what it is solved from changes slowly: it is done
anew every few passes, and more seldom where passes are short.
"""

from __future__ import annotations

import math

from localspec.control.cost import Costs
from localspec.control.growing import Growing
from localspec.control.outlook import Outlook
from localspec.control.stopping import Worth, at, solve

DOUBT = 1.1  # times what is expected of a pass: it may take as much, and the account has to hold
PASSES, SECONDS = 4, 0.1  # from one look at the costs to the next, at least
ROUNDS = 3  # of the search for the best rate
LEAST, MOST = 0.05, 8.0  # caution: below there is none, and beyond nothing changes


class Prospects:
    """Drafts at what passes cost in seconds and by what `outlook` expects of them."""

    def __init__(self, costs: Costs, outlook: Outlook) -> None:
        self._outlook = outlook
        self._costs = costs
        self._rows: list[float] = []  # seconds of the target's pass, by tokens drafted
        self._draft: list[float] = []  # and of the draft model's
        self._value = 0.0
        self._solved: dict[tuple[int, float], Worth] = {}  # by the longest draft, and caution
        self._passes, self._seconds = PASSES, SECONDS  # since the last look

    def look(self, longest: int, value: float) -> None:
        """See what passes with drafts of up to `longest` tokens cost by now; `value` is in tokens per second."""
        if self._passes >= PASSES and self._seconds >= SECONDS:
            self._passes, self._seconds = 0, 0.0
            self._price(longest, value)

    def observe(self, seconds: float) -> None:
        """Count a pass."""
        self._passes += 1
        self._seconds += seconds

    def loss(self, k: int) -> float:
        """Return the seconds lost at worst with a draft of `k` tokens."""
        return DOUBT * (self._rows[k] + self._draft[k]) - self._rows[0]

    def affordable(self, longest: int, room: float) -> int:
        """Return the most tokens, up to `longest`, that may all be rejected for `room` seconds; one at the least."""
        k = min(longest, len(self._rows) - 1)
        while k > 1 and self.loss(k) > room:
            k -= 1
        return k

    def draft(self, longest: int, room: float) -> Growing:
        """Return the rule by which a draft of up to `longest` tokens grows where `room` seconds may be lost."""
        caution = self._caution(room)
        return Growing(self._outlook, self._worth(longest, caution), self._rows, self._draft, self._value, caution)

    def trial(self) -> Growing:
        """Return the rule of a draft of one token, whatever that is worth."""
        return Growing(self._outlook, [], self._rows, self._draft, self._value, is_trial=True)

    def best_rate(self, longest: int) -> float:
        """Return the most tokens per second that drafts of up to `longest` tokens make, by all that is known.

        That is the value of time at which a pass is worth its time and no more, 1 - value T(1) + W_0 = 0 (Dinkelbach),
        between two bounds: W_0 falls where time is worth more. It is looked for along the secant.
        """

        def surplus(value: float) -> float:
            self._price(longest, value)
            return 1.0 - value * self._rows[0] + at(self._worth(longest, 0.0), 0, 1.0)

        low = 1.0 / self._costs.plain
        over = surplus(low)
        high = (1.0 + over) / self._costs.plain
        under = surplus(high)
        for _ in range(ROUNDS):
            if over - under <= 0.0:
                break
            middle = low + (high - low) * over / (over - under)
            found = surplus(middle)
            if found > 0.0:
                low, over = middle, found
            else:
                high, under = middle, found
        return high

    def _price(self, longest: int, value: float) -> None:
        self._value = value
        self._rows = [self._costs.rows(k) for k in range(longest + 1)]  # new lists: a draft keeps those it began with
        self._draft = [self._costs.draft.of(k) for k in range(longest + 1)]
        self._solved.clear()

    def _caution(self, room: float) -> float:
        """Return by how much more a loss weighs than a gain, in half powers of two: each is a solution of its own."""
        caution = min(self.loss(1) / room, MOST) if room > 0.0 else MOST
        return 0.0 if caution < LEAST else 2.0 ** (round(2.0 * math.log2(caution)) / 2.0)

    def _worth(self, longest: int, caution: float) -> Worth:
        key = longest, caution
        if key not in self._solved:
            rows = [self._value * seconds for seconds in self._rows[: longest + 1]]
            draft = [self._value * seconds for seconds in self._draft[: longest + 1]]
            self._solved[key] = solve(rows, draft, self._outlook.chances(), self._outlook.weights(), caution)
        return self._solved[key]
