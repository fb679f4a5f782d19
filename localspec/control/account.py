"""The loss account, which bounds how much slower than plain decoding an answer may be at any moment.

A pass is charged what it took beyond the plain passes it replaced, a plain pass what planning it took. Where a change
of width is dear (CUDA), the plain passes after a draft are charged what they took. A draft is begun only if the account
can bear that all of it is rejected. As far as the price of a plain pass is right,

    elapsed <= (plain + L0) / (1 - EPS)
    L0 = HEAD_START + two changes of width + READING x the plain passes in which the prompt was read

Everything is counted in plain passes at their price of the moment. In seconds, a loss made while another program took
the processor would be too many tokens once that program ends.
"""

import math

from localspec.tuning import CREDIT, EPS, HEAD_START, STAKE


class LossAccount:
    """Plain passes lost to drafting so far; negative when drafting gained. `overdrawn` is the most by which the bound
    was ever exceeded, in seconds; below zero where it held."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.elapsed = 0.0
        self.reading = 0.0  # plain passes that the reading of the prompt allows
        self.change = 0.0  # plain passes that changing the width for two passes takes
        self.overdrawn = -math.inf

    @property
    def allowance(self) -> float:
        """Plain passes that the answer may lose by now, whatever it gained."""
        return self.own + self.reading

    @property
    def own(self) -> float:
        """Plain passes of the allowance that neither the prompt nor past gain gave."""
        return EPS * self.elapsed + HEAD_START + self.change

    @property
    def stake(self) -> float:
        """Plain passes that an exploring draft may lose: the prompt's share pays for reading the prompt."""
        return STAKE * self.own + self.reading

    @property
    def caution(self) -> float:
        """Plain passes that the scatter of a copy is weighed against: what the prompt gave adds nothing."""
        return self.own - min(self.loss, 0.0)

    @property
    def remaining(self) -> float:
        return self.own + self.reading - self.loss

    def lend(self, change: float, reading: float) -> None:
        """Allow the plain passes of two changes of width, and those of a prompt that was read since this was called."""
        self.change = change
        self.reading = reading or self.reading

    def charge(self, seconds: float, n_tokens: int, price: float) -> None:
        """Count a pass of `seconds` that committed `n_tokens`, `price` being what a plain pass costs now."""
        self.elapsed += seconds / price
        self.loss = max(self.loss + seconds / price - n_tokens, -CREDIT)
        self._compare(price)

    def charge_plain(self, seconds: float, planning: float, price: float) -> None:
        self.elapsed += seconds / price
        self.loss += planning / price
        self._compare(price)

    def _compare(self, price: float) -> None:
        self.overdrawn = max(self.overdrawn, (self.loss - self.allowance) * price)
