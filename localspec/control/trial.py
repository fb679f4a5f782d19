"""What a trial of a draft model found: how often its tokens would be accepted on a few shipped texts.

    drawn:     sum over y of min(p(y), q(y)), the chance that a token drawn from q is accepted (arXiv 2211.17192)
    likeliest: whether the likeliest token of the draft is the target's

Each is kept by the draft's own probability too, since the planner asks for the chance of a token by that.
"""

from typing import Annotated

import msgspec
import numpy as np

from localspec.engine.acceptance import BINS, Acceptance
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draw

BEYOND = 3.0  # deviations of a difference of shares that chance does not make: once in 700 trials
Sum = Annotated[float, msgspec.Meta(ge=0.0, le=1e300)]
Tenths = Annotated[list[Sum], msgspec.Meta(min_length=BINS, max_length=BINS)]


class Kind(msgspec.Struct, array_like=True):
    """The sums of one kind of text: `n` tokens compared, of them with equal `likeliest` tokens. `drawn` is the sum of
    the chances that a drawn token is accepted."""

    n: Sum = 0.0
    likeliest: Sum = 0.0
    drawn: Sum = 0.0


def _zeros() -> tuple[Tenths, Tenths]:
    return [0.0] * BINS, [0.0] * BINS


class Trial(msgspec.Struct):
    """The sums by kind of text, and by tenths of the draft's probability; `seconds` is how long it took.

    `spelled` is how many of its own tokens the draft reads for one of the target's: 1 where they are the same.
    `build` is the llama.cpp that computed the rows, and `under` what else of a load decides them; "" if unknown.

    An empty trial says that one was refused. It is made once prices say that it would be in time.
    """

    kinds: dict[str, Kind] = {}
    seconds: Sum = 0.0
    spelled: Sum = 1.0
    likeliest: tuple[Tenths, Tenths] = msgspec.field(default_factory=_zeros)
    drawn: tuple[Tenths, Tenths] = msgspec.field(default_factory=_zeros)
    build: str = ""
    under: str = ""

    @property
    def total(self) -> Kind:
        return Kind(*map(sum, zip(*map(msgspec.structs.astuple, self.kinds.values()), strict=True)))

    def likeliest_is(self, kind: str, share: float, is_equal: bool) -> None:
        """Take the likeliest token of the draft, of probability `share` at temperature 1, and whether it is right."""
        counts = self.kinds.setdefault(kind, Kind())
        counts.n += 1.0
        counts.likeliest += is_equal
        at = min(int(share * BINS), BINS - 1)
        self.likeliest[0][at] += 1.0
        self.likeliest[1][at] += is_equal

    def drawn_from(self, kind: str, p: Distribution, q: Distribution) -> None:
        accepted = np.minimum(q.probs, p.at(q.ids))
        counts = self.kinds.setdefault(kind, Kind())
        counts.drawn += float(accepted.sum())
        bins = np.minimum((q.probs * BINS).astype(np.intp), BINS - 1)
        for of, weights in zip(self.drawn, (q.probs, accepted), strict=True):
            for at, weight in enumerate(np.bincount(bins, weights, BINS).tolist()):
                of[at] += weight

    def acceptance(self, draw: Draw, *, is_greedy: bool) -> Acceptance:
        """Return what a planner may expect of tokens drawn as `draw`, where `is_greedy` nothing is left to chance."""
        if is_greedy or draw in (Draw.IID, Draw.WITHOUT_REPLACEMENT):
            return Acceptance.expecting(draw, *(self.likeliest if is_greedy else self.drawn))
        total = self.total
        return Acceptance.like(draw, total.n, total.drawn / max(total.n, 1.0))


def fallen(before: Trial, now: Trial) -> tuple[float, float] | None:
    """Return the shares of likeliest tokens that were right, if the second is lower beyond chance; else None. Both
    trials read the same texts, so what chance does to two independent ones is more than it does to these."""
    old, new = before.total, now.total
    if not (old.n and new.n):
        return None
    shares = old.likeliest / old.n, new.likeliest / new.n
    pooled = (old.likeliest + new.likeliest) / (old.n + new.n)
    spread = (pooled * (1.0 - pooled) * (1.0 / old.n + 1.0 / new.n)) ** 0.5
    return shares if shares[0] - shares[1] > BEYOND * spread else None
