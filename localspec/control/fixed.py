"""The same plan at every pass, clamped to what is left before the end."""

from __future__ import annotations

from localspec.draft import Draw, Step
from localspec.errors import UsageError
from localspec.protocols import History, Plan, Room, Shape


class Fixed:
    """Always the same shape from one drafter."""

    def __init__(self, drafter: str, shape: Shape, draw: Draw) -> None:
        self._drafter = drafter
        self._shape = shape
        self._draw = draw

    @classmethod
    def build(cls, argument: str, drafter: str, shape: Shape, draw: Draw) -> Fixed:
        """Take no argument: the length is -k."""
        if argument:
            raise UsageError(f"--length fixed takes no argument, not {argument!r}", hint="--length fixed -k 4")
        return cls(drafter, shape, draw)

    def plan(self, history: History, room: Room) -> Plan:
        """Clamp to `room`: near the end a pass drafts less, the last one nothing."""
        depth = min(self._shape.depth, room.depth)
        nodes = min(self._shape.nodes, room.nodes) if depth > 0 else 0
        return Plan(self._drafter, nodes, depth, self._draw, why=f"fixed {self._shape.nodes}")

    def observe(self, step: Step, seconds: float) -> None:
        """A fixed plan learns nothing."""
