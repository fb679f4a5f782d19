"""Which drafted tokens are hard: those that a small model is unsure of, and those of which one wrong one matters.

Signals of the distribution q that a token y was drawn from, in nats: -ln q(y), the entropy of q, and the margin
between its two likeliest tokens. Of a token that was chosen or coupled only its own chance is kept. They are measured
and shown, and nothing is decided by them.
Monte-Carlo dropout, another signal of the literature, needs dropout layers that run, and a GGUF file has none.
"""

import re

import numpy as np

from localspec.engine.distribution import Distribution

NLL = 2.3  # nats: the draft gave the token a chance below a tenth
ENTROPY = 1.73  # nats, 2.5 bits
MARGIN = 0.2  # of probability
_MONTH = re.compile("January|February|March|April|June|July|August|September|October|November")
_NAME = re.compile(r"\s?[A-ZÀ-Þ][\w'-]+")


def is_unsure(token: int, dist: Distribution) -> bool:
    """Whether the draft is unsure of a token drawn from `dist`, by any signal; with one token it is sure."""
    if dist.ids.size == 1:
        return False
    second, first = np.partition(dist.probs, dist.probs.size - 2)[-2:]
    nll = -np.log(max(dist.prob(token), 1e-300))
    return bool(nll > NLL or dist.entropy > ENTROPY or first - second < MARGIN)


def matters(text: str) -> bool:
    """Whether a token is hard whatever the draft thinks of it: part of a number, a date or a name."""
    return any(each.isdigit() for each in text) or bool(_MONTH.search(text) or _NAME.fullmatch(text))
