"""What a trial of a draft model found: how often its tokens would be accepted on a few shipped texts.

    drawn:     sum over y of min(p(y), q(y)), the chance that a token drawn from q is accepted (arXiv 2211.17192)
    likeliest: whether the likeliest token of the draft is the target's

Each is kept by the draft's own probability too, since the planner asks for the chance of a token by that.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from localspec.engine.acceptance import BINS, Acceptance
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draw

BEYOND = 3.0  # deviations of a difference of shares that chance does not make: once in 700 trials


@dataclass(slots=True)
class Kind:
    """The sums of one kind of text: `n` tokens compared, of them with equal `likeliest` tokens.

    `drawn` is the sum of the chances that a drawn token is accepted.
    """

    n: float = 0.0
    likeliest: float = 0.0
    drawn: float = 0.0


def _zeros() -> list[float]:
    return [0.0] * BINS


@dataclass(slots=True)
class Trial:
    """The sums by kind of text, and by tenths of the draft's probability; `seconds` is how long it took.

    `spelled` is how many of its own tokens the draft reads for one of the target's: 1 where they are the same.
    `build` is the llama.cpp that computed the rows, and `under` what else of a load decides them; "" if unknown.

    An empty trial says that one was refused. It is made once prices say that it would be in time.
    """

    kinds: dict[str, Kind] = field(default_factory=dict)
    seconds: float = 0.0
    spelled: float = 1.0
    likeliest: tuple[list[float], list[float]] = field(default_factory=lambda: (_zeros(), _zeros()))
    drawn: tuple[list[float], list[float]] = field(default_factory=lambda: (_zeros(), _zeros()))
    build: str = ""
    under: str = ""

    @property
    def total(self) -> Kind:
        return Kind(*map(sum, zip(*map(astuple, self.kinds.values()), strict=True)))

    def likeliest_is(self, kind: str, share: float, is_equal: bool) -> None:
        """Take the likeliest token of the draft, of probability `share` at temperature 1, and whether it is right."""
        counts = self.kinds.setdefault(kind, Kind())
        counts.n += 1.0
        counts.likeliest += is_equal
        self._add(self.likeliest, share, 1.0, float(is_equal))

    def drawn_from(self, kind: str, p: Distribution, q: Distribution) -> None:
        """Take the distributions of both models at one place."""
        accepted = np.minimum(q.probs, p.at(q.ids))
        counts = self.kinds.setdefault(kind, Kind())
        counts.drawn += float(accepted.sum())
        bins = np.minimum((q.probs * BINS).astype(np.intp), BINS - 1)
        for of, weights in zip(self.drawn, (q.probs, accepted), strict=True):
            for at, weight in enumerate(np.bincount(bins, weights, BINS).tolist()):
                of[at] += weight

    def acceptance(self, draw: Draw, *, is_greedy: bool) -> Acceptance:
        """Return what a planner may expect of tokens drawn as `draw`, where `is_greedy` nothing is left to chance.

        Of rules that the trial did not follow it knows how far the pair is from the usual one.
        """
        if is_greedy or draw in (Draw.IID, Draw.WITHOUT_REPLACEMENT):
            return Acceptance.expecting(draw, *(self.likeliest if is_greedy else self.drawn))
        total = self.total
        return Acceptance.like(draw, total.n, total.drawn / max(total.n, 1.0))

    def to_wire(self) -> dict[str, Any]:
        kinds = {name: [counts.n, counts.likeliest, counts.drawn] for name, counts in self.kinds.items()}
        numbers = {"seconds": self.seconds, "spelled": self.spelled, "build": self.build, "under": self.under}
        return {"kinds": kinds, **numbers, "likeliest": self.likeliest, "drawn": self.drawn}

    @staticmethod
    def from_wire(wire: Any) -> Trial:
        """Rebuild what `to_wire` told; raises KeyError, TypeError, ValueError or AttributeError for anything else."""
        kinds = {str(name): Kind(*_sums(sums, 3)) for name, sums in wire["kinds"].items()}
        tables = [tuple(_sums(row, BINS) for row in wire[name]) for name in ("likeliest", "drawn")]
        if any(len(table) != 2 for table in tables):
            raise ValueError("not a trial")
        (likeliest, right), (drawn, accepted) = tables
        seconds, spelled = _sums([wire["seconds"], wire["spelled"]], 2)
        texts = (str(wire.get(name, "")) for name in ("build", "under"))
        return Trial(kinds, seconds, spelled, (likeliest, right), (drawn, accepted), *texts)

    @staticmethod
    def _add(table: tuple[list[float], list[float]], share: float, reached: float, accepted: float) -> None:
        at = min(int(share * BINS), BINS - 1)
        table[0][at] += reached
        table[1][at] += accepted


def _sums(wire: Any, n: int) -> list[float]:
    """Return `n` finite numbers, none below zero; raises TypeError or ValueError for anything else."""
    sums = [float(number) for number in wire]
    if len(sums) != n or not all(0.0 <= number < np.inf for number in sums):
        raise ValueError(f"{wire!r} are no sums")
    return sums


def fallen(before: Trial, now: Trial) -> tuple[float, float] | None:
    """Return the shares of likeliest tokens that were right, if the second is lower beyond chance; else None.

    Both trials read the same texts, so what chance does to two independent ones is more than it does to these.
    """
    old, new = before.total, now.total
    if not (old.n and new.n):
        return None
    shares = old.likeliest / old.n, new.likeliest / new.n
    pooled = (old.likeliest + new.likeliest) / (old.n + new.n)
    spread = (pooled * (1.0 - pooled) * (1.0 / old.n + 1.0 / new.n)) ** 0.5
    return shares if shares[0] - shares[1] > BEYOND * spread else None
