"""A pass that drafts nothing: one row, or padded to a width that costs less than one row.

Where weights are packed for four rows at a time, four rows take less time than one. Then decoding that is parked is
faster than plain decoding if each pass carries rows that nobody reads. What one row costs must stay known, for it is
what everything is compared with, and it grows otherwise with the context than four do: so every so often two passes
are plain, of which the second is measured.
"""

from __future__ import annotations

from dataclasses import replace

from localspec.control.cost import Costs
from localspec.control.ledger import Ledger
from localspec.protocols import Plan

STALE = 30  # passes after which what a plain one costs is measured anew
TOLD = 8  # where passes are plain anyway: from one that is told as a measurement to the next


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
        plan = Plan(drafter, why=why)
        widths = self._costs.widths(0, room) if self._can_pad else (1,)
        if widths[0] > 1 and self._ledger.stale < STALE:
            return replace(plan, widths=widths, why=f"{why}; {widths[0]} rows cost less than one")
        is_due = widths[0] > 1 or self._ledger.passes % TOLD == 0
        return replace(plan, is_probe=self._ledger.follows_plain and is_due)
