"""The same plan at every pass, clamped to what is left before the end."""

from __future__ import annotations

from localspec.draft import Draw, Step
from localspec.protocols import History, Plan, Room


class Fixed:
    """Always `nodes` nodes in at most `depth` levels from one drafter."""

    def __init__(self, drafter: str, *, nodes: int, depth: int, draw: Draw) -> None:
        self._drafter = drafter
        self._nodes = nodes
        self._depth = depth
        self._draw = draw

    def plan(self, history: History, room: Room) -> Plan:
        """Clamp to `room`: near the end a pass drafts less, the last one nothing."""
        depth = min(self._depth, room.depth)
        nodes = min(self._nodes, room.nodes) if depth > 0 else 0
        return Plan(self._drafter, nodes, depth, self._draw, why=f"fixed {self._nodes}")

    def observe(self, step: Step) -> None:
        """A fixed plan learns nothing."""
