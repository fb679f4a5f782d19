"""The loss account: how much slower than plain decoding an answer may be at any moment.

Every pass that is not plain is charged what it took beyond the plain passes it replaced, and a plain one what it took
to decide on it. A draft is begun only if the account could bear that it is rejected whole. So, as far as the price of a
plain pass is right, and counted in such passes,

    elapsed <= (plain + L0) / (1 - eps),   eps = 2 %, L0 = 1

What counts as elapsed is the ledger's to say: not what interrupted a pass, nor a little that is put down to chance.
"""

from __future__ import annotations

import math

EPS = 0.02
HEAD_START = 1.0  # L0, in plain passes
RESERVE = 0.2  # plain passes of it that no plan counts on: passes scatter, and it costs ten passes of waiting once
CREDIT = 200.0  # plain passes: how much past gain may be lost again before drafting stops
# By a price that was guessed too high every draft that loses would seem to gain, and go on: none is begun before.
UNMEASURED = "plain decoding is not measured yet at this length of text"


def too_dear(could: float, may: float) -> str:
    """Say why nothing is drafted where a draft could lose more seconds than may be lost."""
    digits = 0 if could >= 0.01 else 1
    return f"parked: a draft could lose {1e3 * could:.{digits}f} ms, and {1e3 * max(may, 0.0):.{digits}f} may be lost"


class LossAccount:
    """Plain passes lost to speculation so far; negative when it gained.

    In passes, and not in seconds: what was lost while another program took the processor would be more tokens than one
    when it is gone, and nothing was lost since. `overdrawn` is the most by which the bound was ever exceeded, in
    seconds, below zero where it held: a pass may take longer than anything that was expected of it.
    """

    def __init__(self) -> None:
        self.loss = 0.0
        self.elapsed = 0.0
        self.overdrawn = -math.inf

    @property
    def allowance(self) -> float:
        """How many passes an answer may lose by now, whatever it gained."""
        return EPS * self.elapsed + HEAD_START

    @property
    def room(self) -> float:
        """How many passes more a plan may lose."""
        return self.allowance - RESERVE - self.loss

    @property
    def worry(self) -> float:
        """The passes lost beyond one percent of all so far: from there on promises want to be better."""
        return self.loss - EPS / 2 * self.elapsed

    def pass_time(self, seconds: float, planning: float, price: float) -> None:
        """Count the time of a plain pass, `price` being what one costs now; what it took to decide on it is lost."""
        self.elapsed += seconds / price
        self.loss += planning / price
        self._look(price)

    def charge(self, seconds: float, n_tokens: int, price: float) -> None:
        """Count a pass that speculation is answerable for, and that committed `n_tokens`."""
        self.elapsed += seconds / price
        self.loss = max(self.loss + seconds / price - n_tokens, -CREDIT)
        self._look(price)

    def _look(self, price: float) -> None:
        self.overdrawn = max(self.overdrawn, (self.loss - self.allowance) * price)
