"""Which drafted tokens are hard: those that a small model is unsure of, and those of which one wrong one matters.

Signals of the distribution q that a token y was drawn from, in nats: -ln q(y), the entropy of q, and the margin
between its two likeliest tokens. Of a token that was chosen or coupled only its own chance is kept. They are measured
and shown, and nothing is decided by them.
Monte-Carlo dropout, another signal of the literature, needs dropout layers that run, and a GGUF file has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import numpy as np

from localspec.engine.distribution import Distribution

NLL = 2.3  # nats: the draft gave the token a chance below a tenth
ENTROPY = 1.73  # nats, 2.5 bits
MARGIN = 0.2  # of probability
_DATE = re.compile(
    r"\d{4}-\d{2}|\d{1,2}[./]\d|January|February|March|April|June|July|August|September|October|November"
)
_NAME = re.compile(r"\s?[A-ZÀ-Þ][\w'-]+")


class HardRule(Enum):
    """Classes of tokens that are hard whatever the draft thinks of them."""

    NUMBER = "number"
    DATE = "date"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Signals:
    """Of one drafted token: its `nll` and the `entropy` of its distribution in nats, the `margin` of probability."""

    nll: float
    entropy: float
    margin: float

    @staticmethod
    def of(token: int, dist: Distribution) -> Signals:
        """Return the signals of a token that was drawn from `dist`; a distribution of one token is sure of it."""
        if dist.ids.size == 1:
            return Signals(0.0, 0.0, 1.0)
        two = np.partition(dist.probs, dist.probs.size - 2)[-2:]
        nll = -float(np.log(max(dist.prob(token), 1e-300)))
        return Signals(nll, dist.entropy, float(two[1] - two[0]))

    @property
    def is_hard(self) -> bool:
        """Whether the draft is unsure by any of them."""
        return self.nll > NLL or self.entropy > ENTROPY or self.margin < MARGIN


def rule_of(text: str) -> HardRule | None:
    """Return the class of a token by its text, None for one of no class."""
    if _DATE.search(text):
        return HardRule.DATE
    if any(each.isdigit() for each in text):
        return HardRule.NUMBER
    return HardRule.NAME if _NAME.fullmatch(text) else None
