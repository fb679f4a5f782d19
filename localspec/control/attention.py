"""What the kinds of attention cost on a processor, by rows and depth.

"off" multiplies whole matrices. "on" is llama.cpp's flash attention with one type of keys and values, which is slow for
several rows deep in a text. "mixed" is flash attention with values as BF16: every row is computed as if it were alone.
`session.attention` measures them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

KINDS = ("off", "on", "mixed")
READING = 512  # rows of a pass that reads a prompt
ROWS = (1, 4, 16, READING)
FREE = 1.03  # times the pass without: less is the price of nothing
REACH = 1.15  # times the deepest depth that was measured: no price is known beyond

Takes = dict[int, dict[int, list[float]]]  # seconds by depth, then by rows; take n of each kind is of round n


@dataclass(frozen=True, slots=True)
class Ratio:
    """A time over that without flash attention: the middle of the rounds, and what most of them lie between."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AttentionTimes:
    """Seconds of passes of one model by kind of attention, depth and rows."""

    seconds: Mapping[str, Takes]

    @property
    def deepest(self) -> int:
        """Return the greatest depth that was measured, 0 without one."""
        return max(self.seconds.get("off", {}), default=0)

    def ratio(self, kind: str, rows: int, depth: int) -> Ratio | None:
        """Return the price of `kind` at `depth`, between those that were measured; None where it is not known."""
        known = {at: _ratio(takes[rows], self.seconds["off"][at][rows]) for at, takes in self._of(kind, rows)}
        if not known or depth > REACH * self.deepest:
            return None
        depths = sorted(known)
        values = [(known[at].middle, known[at].low, known[at].high) for at in depths]
        return Ratio(*(float(np.interp(depth, depths, column)) for column in zip(*values, strict=True)))

    def passes(self, kind: str, depth: int) -> dict[int, float]:
        """Return seconds by rows at a depth that was measured, without those of reading."""
        takes = self.seconds[kind][depth]
        return {rows: float(np.median(takes[rows])) for rows in takes if rows < READING}

    def best(self, n_ctx: int) -> str:
        """Return the kind for where nobody asks: exact rows where they surely cost nothing in `n_ctx` positions."""
        ratios = [self.ratio("mixed", rows, n_ctx) for rows in ROWS]
        return "mixed" if all(one is not None and one.high < FREE for one in ratios) else "off"

    def _of(self, kind: str, rows: int) -> list[tuple[int, dict[int, list[float]]]]:
        return [(at, takes) for at, takes in self.seconds.get(kind, {}).items() if rows in takes]

    def to_wire(self) -> dict[str, Any]:
        return {
            kind: {str(depth): {str(n): takes for n, takes in by_rows.items()} for depth, by_rows in depths.items()}
            for kind, depths in self.seconds.items()
        }

    @staticmethod
    def from_wire(wire: Any) -> AttentionTimes:
        """Rebuild what `to_wire` returned; raises AttributeError, TypeError or ValueError for anything else."""
        found = {
            kind: {
                int(depth): {int(n): [float(s) for s in takes] for n, takes in rows.items()}
                for depth, rows in depths.items()
            }
            for kind, depths in wire.items()
        }
        shapes = [
            {(at, n, len(takes)) for at, rows in one.items() for n, takes in rows.items()} for one in found.values()
        ]
        seconds = [s for one in found.values() for rows in one.values() for takes in rows.values() for s in takes]
        is_paired = all(shape == shapes[0] and all(n > 0 for _, _, n in shape) for shape in shapes)
        if (found and "off" not in found) or not is_paired or not all(0.0 < s < math.inf for s in seconds):
            raise ValueError("not the times of passes")
        return AttentionTimes(found)


def _ratio(takes: Sequence[float], without: Sequence[float]) -> Ratio:
    """Compare round by round. Of five rounds and more one at each end may be far off."""
    ratios = sorted(one / other for one, other in zip(takes, without, strict=True))
    left_out = len(ratios) >= 5
    return Ratio(float(np.median(ratios)), ratios[left_out], ratios[-1 - left_out])
