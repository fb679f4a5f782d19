"""How often a drafted token is accepted, learned from the passes of one drafter under one rule.

A child's *rank* is the number of its elder siblings, its *share* the token's probability in what they left of the
drafter's law: what the drafter itself takes for the chance, given that the elder ones were wrong. A coupled child's
share is known better: drafter and target race with the same noise, and a token that leads the drafter's race clearly is
seldom overtaken in the target's. For tenths of the share and the first ranks, over the children that verification
reached,

    a(share, rank) = (accepted + W prior(share, rank)) / (reached + W)

with old passes fading. The prior of a point mass is its share, as the papers have it: were the draft right, that would
be the chance exactly. Drawn and coupled children are accepted as often as draft and target agree, however unlikely the
token; their priors were fitted to the storyteller pair (drawn: 4 800 contexts each at temperatures 0.3, 0.8 and 1;
coupled: 6 600 tokens each).
"""

from __future__ import annotations

import math
from typing import Any

from localspec.draft import Draw, Step

BINS = 10  # of the share
RANKS = 4  # the last stands for all beyond
WEIGHT = 4.0  # W: passes that the prior is worth
FADE = 0.998  # of what is known of a share and rank, when one more of them was reached
USUAL = (0.7, 0.1, 0.044, 0.025, 0.016, 0.01)  # chances of the first, second, ... child, on the same contexts
FIRST, LAST = 16, 512  # passes from one look at these chances to the next, doubling


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
        self._due, self._pause = FIRST, FIRST
        self._reached = [[0.0] * BINS for _ in range(RANKS)]
        self._accepted = [[0.0] * BINS for _ in range(RANKS)]

    @staticmethod
    def from_wire(wire: dict[str, Any]) -> Acceptance:
        """Rebuild what `to_wire` told; raises KeyError, TypeError or ValueError for anything else."""
        acceptance = Acceptance(Draw(wire["draw"]))
        acceptance._reached, acceptance._accepted = _table(wire["reached"]), _table(wire["accepted"])
        acceptance.waited = math.inf if wire["waited"] is None else max(0.0, float(wire["waited"]))
        if sum(map(sum, acceptance._reached)) >= FIRST:
            acceptance._vector = acceptance._measured()
        return acceptance

    def to_wire(self) -> dict[str, Any]:
        """Return what is known as a JSON object."""
        waited = None if math.isinf(self.waited) else self.waited
        return {"draw": self._draw.value, "reached": self._reached, "accepted": self._accepted, "waited": waited}

    def chance(self, share: float, rank: int) -> float:
        """Return the chance that a child is accepted once its elder siblings were not."""
        row, column = min(rank, RANKS - 1), min(int(share * BINS), BINS - 1)
        known = WEIGHT * prior(self._draw, share, rank) + self._accepted[row][column]
        return known / (WEIGHT + self._reached[row][column])

    @property
    def mean(self) -> float:
        """The chance that an only child is accepted, by all that is known now."""
        return (WEIGHT * USUAL[0] + sum(self._accepted[0])) / (WEIGHT + sum(self._reached[0]))

    @property
    def vector(self) -> tuple[float, ...]:
        """The chances that the first, second, ... child is the accepted one, as they were when last looked at.

        To two digits, and anew after 16, 32, 64, ... passes: for every vector the best trees have to be found.
        """
        return self._vector

    def observe(self, step: Step) -> None:
        """Learn from the children that the verification of a pass reached: the path's, and those it left."""
        draft, node = step.draft, 0
        if len(draft) == 0:
            return
        self.n_passes += 1
        for kept in (*step.verdict.path, None):
            for rank, child in enumerate(draft.children[node]):
                self._count(draft.share(child), rank, child == kept)
                if child == kept:
                    node = child
                    break
        if self.n_passes == self._due:
            self._vector = self._measured()
            self._pause = min(2 * self._pause, LAST)
            self._due += self._pause

    def _measured(self) -> tuple[float, ...]:
        """Return the chances as they are now."""
        found, left, usually_left = [], 1.0, 1.0
        for rank, usual in enumerate(USUAL):
            row = min(rank, RANKS - 1)
            known = WEIGHT * usual / usually_left + sum(self._accepted[row])
            accepted = known / (WEIGHT + sum(self._reached[row]))
            found.append(float(f"{left * accepted:.2g}"))
            left, usually_left = left * (1.0 - accepted), usually_left - usual
        return tuple(found)

    def _count(self, share: float, rank: int, is_accepted: bool) -> None:
        row, column = min(rank, RANKS - 1), min(int(share * BINS), BINS - 1)
        self._reached[row][column] = FADE * self._reached[row][column] + 1.0
        self._accepted[row][column] = FADE * self._accepted[row][column] + is_accepted
