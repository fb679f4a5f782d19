"""A pass that drafts nothing: one row, or padded to a width that costs less than one row.

Where weights are packed for four rows at a time, four rows may take less time than one. Then decoding that is parked is
faster than plain decoding if each pass carries rows that nobody reads. Which of the two costs less changes with the
context and the day, so where they are close, the one that is not used is tried again every so often: by two passes, for
the first of another width pays for llama.cpp's laying its graph out anew.
"""

from __future__ import annotations

from localspec.control.cost import Costs
from localspec.control.ledger import Ledger
from localspec.protocols import Plan

CLOSE = 1.1  # times one row's cost: what is dearer is not tried
STALE = 30  # passes after which a width is tried again
TOLD = 8  # plain passes from one that is told as a measurement to the next


class Idle:
    """Makes empty plans. All times in seconds; `can_pad`: the target can take rows back."""

    def __init__(self, costs: Costs, ledger: Ledger, *, can_pad: bool = True) -> None:
        self._costs = costs
        self._ledger = ledger
        self._can_pad = can_pad

    @property
    def seconds(self) -> float:
        """What such a pass is expected to take."""
        return self._costs.idle if self._can_pad else self._costs.plain

    def plan(self, drafter: str, room: int, why: str) -> Plan:
        """Return the plan; the cache has room for so many nodes."""
        ledger, usual, other = self._ledger, *self._widths(room)
        is_trial = other != usual and ledger.age(other) >= STALE
        rows = other if is_trial else usual
        if rows > 1:
            cause = "to see what they cost" if is_trial else "which cost less than one"
            return Plan(drafter, why=f"{why}; {rows} rows, {cause}", widths=(rows,))
        is_told = is_trial or (usual == 1 and ledger.passes % TOLD == 0)
        return Plan(drafter, is_probe=ledger.follows_plain and is_told, why=why)

    def _widths(self, room: int) -> tuple[int, int]:
        """Return the rows of a pass, and of the next best that may turn out to cost less."""
        target = self._costs.target
        wide = target.rival(1)
        if not self._can_pad or wide == 1 or wide > 1 + room or target.of(wide) > CLOSE * target.of(1):
            return 1, 1
        return (wide, 1) if target.padded(1) == wide else (1, wide)
