"""How often a drafted token is accepted, learned from the passes of one drafter under one rule.

A child's *rank* is the number of its elder siblings, its *share* the token's probability in what they left of the
drafter's distribution: what the drafter itself takes for the chance, given that the elder ones were wrong. A coupled
child's share is known better: drafter and target race with the same noise, and a token that leads the drafter's race
clearly is seldom overtaken in the target's. For tenths of the share and the first ranks, over the children that
verification reached,

    a(share, rank) = (accepted + W prior(share, rank)) / (reached + W)

with old passes fading. The prior of a point mass is its share, as the papers have it: were the draft right, that would
be the chance exactly. Drawn and coupled children are accepted as often as draft and target agree, however unlikely the
token; their priors were fitted to the storyteller pair (drawn: 4 800 contexts each at temperatures 0.3, 0.8 and 1;
coupled: 6 600 tokens each).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.engine.draft import Draw, Step
from localspec.tuning import COPY_PRIOR, FADE, PRIOR

BINS = 10  # of the share
RANKS = 4  # the last stands for all beyond
USUAL = (0.7, 0.1, 0.044, 0.025, 0.016, 0.01)  # chances of the first, second, ... child, on the same contexts
FIRST_LOOK, LAST_LOOK = 16, 512  # passes from one look at these chances to the next, doubling


def prior(draw: Draw, share: float, rank: int) -> float:
    """Return the chance that nothing but the way of drawing suggests."""
    match draw:
        case Draw.FIXED:
            return share
        case Draw.COUPLED:
            return (0.33 + 0.67 * share) / (1.0 + 0.3 * rank)
        case _:
            return (0.55 + 0.37 * share) / (1.0 + rank)


def _table(wire: list[list[float]]) -> list[list[float]]:
    """Return finite, non-negative numbers by rank and tenth of the share."""
    table = [[float(value) for value in row] for row in wire]
    if len(table) != RANKS or any(len(row) != BINS for row in table) or not 0.0 <= sum(map(sum, table)) < math.inf:
        raise ValueError("not a table of acceptance")
    return table


class Acceptance:
    """The chances of children drawn as `draw`, from the prior on. Exact to use: it knows past passes only.

    `waited` counts the passes since the drafter was run, over all answers, for a controller that may leave it at rest.
    """

    def __init__(self, draw: Draw) -> None:
        self.n_passes = 0
        self.waited = math.inf  # it never was
        self._draw = draw
        self._vector: tuple[float, ...] = USUAL
        self._due, self._pause = FIRST_LOOK, FIRST_LOOK
        self._reached = [[0.0] * BINS for _ in range(RANKS)]
        self._accepted = [[0.0] * BINS for _ in range(RANKS)]

    def wait(self) -> None:
        self.waited += 1.0

    def rest(self, *, is_due: bool) -> None:
        """Count passes anew: the drafter was run. If `is_due`, it may be again at once."""
        self.waited = math.inf if is_due else 0.0

    @staticmethod
    def from_wire(wire: dict[str, Any]) -> Acceptance:
        """Rebuild what `to_wire` told; raises KeyError, TypeError or ValueError for anything else."""
        acceptance = Acceptance(Draw(wire["draw"]))
        acceptance._reached, acceptance._accepted = _table(wire["reached"]), _table(wire["accepted"])
        acceptance.waited = math.inf if wire["waited"] is None else max(0.0, float(wire["waited"]))
        if sum(map(sum, acceptance._reached)) >= FIRST_LOOK:
            acceptance._vector = acceptance._measured()
        return acceptance

    @staticmethod
    def expecting(draw: Draw, reached: Sequence[float], accepted: Sequence[float]) -> Acceptance:
        """Return what a trial found of first children, by tenths of the share [BINS]: it counts as a look at them."""
        acceptance = Acceptance(draw)
        acceptance._reached[0], acceptance._accepted[0] = list(reached), list(accepted)
        if sum(reached) >= FIRST_LOOK:
            acceptance.waited = 0.0
            acceptance._vector = acceptance._measured()
        return acceptance

    @staticmethod
    def like(draw: Draw, n: float, mean: float) -> Acceptance:
        """Return the prior, as far off as a pair that accepts `mean` of `n` tokens is off the usual one."""
        ratio = mean / USUAL[0]
        chances = [min(1.0, ratio * prior(draw, (at + 0.5) / BINS, 0)) for at in range(BINS)]
        return Acceptance.expecting(draw, [n / BINS] * BINS, [n / BINS * chance for chance in chances])

    def to_wire(self) -> dict[str, Any]:
        waited = None if math.isinf(self.waited) else self.waited
        return {"draw": self._draw.value, "reached": self._reached, "accepted": self._accepted, "waited": waited}

    def chance(self, share: float, rank: int) -> float:
        """Return the chance that a child is accepted once its elder siblings were not."""
        row, column = min(rank, RANKS - 1), min(int(share * BINS), BINS - 1)
        known = PRIOR * prior(self._draw, share, rank) + self._accepted[row][column]
        return known / (PRIOR + self._reached[row][column])

    @property
    def mean(self) -> float:
        """The chance that an only child is accepted, by all that is known now."""
        return (PRIOR * USUAL[0] + sum(self._accepted[0])) / (PRIOR + sum(self._reached[0]))

    @property
    def measured(self) -> float | None:
        """The share of only children that were accepted, None where fewer than FIRST_LOOK were judged."""
        judged = sum(self._reached[0])
        return sum(self._accepted[0]) / judged if judged >= FIRST_LOOK else None

    @property
    def vector(self) -> tuple[float, ...]:
        """The chances that the first, second, ... child is the accepted one, as they were when last looked at.

        To two digits, and anew after 16, 32, 64, ... passes: for every vector the best trees have to be found.
        """
        return self._vector

    def observe(self, step: Step) -> None:
        """Learn from the children that the verification of a pass reached: the path's, and those it left."""
        draft, node = step.draft, step.draft.forced
        if len(draft) == node:
            return
        self.n_passes += 1
        for accepted in (*step.verdict.path[node:], None):
            for rank, child in enumerate(draft.children[node]):
                self._count(draft.share(child), rank, child == accepted)
                if child == accepted:
                    node = child
                    break
        if self.n_passes >= self._due:
            self._vector = self._measured()
            self._pause = min(2 * self._pause, LAST_LOOK)
            self._due += self._pause

    def _measured(self) -> tuple[float, ...]:
        rounded, left, usually_left = [], 1.0, 1.0
        for rank, usual in enumerate(USUAL):
            row = min(rank, RANKS - 1)
            known = PRIOR * usual / usually_left + sum(self._accepted[row])
            accepted = known / (PRIOR + sum(self._reached[row]))
            rounded.append(float(f"{left * accepted:.2g}"))
            left, usually_left = left * (1.0 - accepted), usually_left - usual
        return tuple(rounded)

    def _count(self, share: float, rank: int, is_accepted: bool) -> None:
        row, column = min(rank, RANKS - 1), min(int(share * BINS), BINS - 1)
        self._reached[row][column] = FADE * self._reached[row][column] + 1.0
        self._accepted[row][column] = FADE * self._accepted[row][column] + is_accepted


class CopyKind(Enum):
    """Where a copy comes from: near the last source, the only continuation of its passage, or one of several.

    FILE is the only continuation in files of the corpus.
    """

    NEAR = 0
    ONLY = 1
    DIVIDED = 2
    FILE = 3


LEVELS = 9  # of a passage: 0, 1, 2 to 3, 4 to 7, ..., 128 and more tokens
COPIED = (  # fitted to 96 answers of a 1.5B model to code edits, summaries, questions and chat, at T=0 and 0.8
    (0.5, 0.6, 0.86, 0.87, 0.885, 0.93, 0.98, 0.995, 0.995),
    (0.5, 0.2, 0.45, 0.6, 0.7, 0.9, 0.985, 0.995, 0.995),
    (0.2, 0.15, 0.24, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3),
    (0.0, 0.0, 0.3, 0.5, 0.6, 0.8, 0.95, 0.98, 0.98),  # not fitted: below those of the text's own passages
)


def level(length: int) -> int:
    return min(length.bit_length(), LEVELS - 1)


_LEVELS = np.array([level(length) for length in range(1 << LEVELS)])


class CopyAcceptance:
    """How often the next token of a copy is right, by kind of source and length of the passage that led there.

    It learns from every token after the first prompt, drafted or not: of answers, and of later turns of a chat.
    `n_tokens` are those that it learned from since it was made.
    """

    def __init__(self) -> None:
        self.n_tokens = 0
        self._seen = np.zeros((len(CopyKind), LEVELS))
        self._right = np.zeros((len(CopyKind), LEVELS))
        self._chance = np.array(COPIED)

    def chance(self, kind: CopyKind, length: int) -> float:
        return float(self._chance[kind.value, level(length)])

    def chances(self, kind: CopyKind, length: int, n: int) -> NDArray[np.float64]:
        """Return the chances of the next `n` tokens, each if all before it are right: the passage grows with them."""
        levels = _LEVELS[np.minimum(np.arange(length, length + n), len(_LEVELS) - 1)]
        rest = CopyKind.ONLY if kind is CopyKind.DIVIDED else kind
        by_depth: NDArray[np.float64] = self._chance[rest.value, levels]
        if n:
            by_depth[0] = self._chance[kind.value, level(length)]
        return by_depth

    def observe(self, kind: CopyKind, length: int, is_right: bool) -> None:
        self.n_tokens += 1
        at = kind.value, level(length)
        self._seen[at] = FADE * self._seen[at] + 1.0
        self._right[at] = FADE * self._right[at] + is_right
        self._chance[at] = (COPY_PRIOR * COPIED[at[0]][at[1]] + self._right[at]) / (COPY_PRIOR + self._seen[at])

    def to_wire(self) -> dict[str, Any]:
        return {"seen": self._seen.tolist(), "right": self._right.tolist()}

    @staticmethod
    def from_wire(wire: dict[str, Any]) -> CopyAcceptance:
        """Rebuild what `to_wire` returned; raises KeyError, TypeError or ValueError for anything else."""
        known = CopyAcceptance()
        arrays = [np.array(wire[name], np.float64) for name in ("seen", "right")]
        # A profile of before knows nothing of files.
        missing = np.zeros((int(len(arrays[0]) == CopyKind.FILE.value), LEVELS))
        seen, right = (np.concatenate([counts, missing]) for counts in arrays)
        is_table = seen.shape == right.shape == known._seen.shape and bool(np.isfinite(seen).all())
        if not is_table or not bool(((right >= 0.0) & (right <= seen)).all()):
            raise ValueError("not a table of copies")
        known._seen, known._right = seen, right
        known._chance = (COPY_PRIOR * np.array(COPIED) + right) / (COPY_PRIOR + seen)
        return known
