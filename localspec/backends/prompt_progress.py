"""How far a prompt is read, within a pass too: llama.cpp asks at every node of its graph whether it is to stop.

A pass of 512 tokens takes many seconds on a slow machine, and its nodes are the only thing that tells of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from localspec.engine.protocols import Cancel


def ignored(_n: int) -> None:
    """Ignore the progress."""


def not_cancelled() -> bool:
    """Return False: no pass is to stop."""
    return False


class PromptProgress:
    """Calls `tell` with the tokens that are evaluated, again and again. `count_node` is for the first pass of all."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._nodes = 0  # of the graph; 0 where llama.cpp does not ask at them, as on some devices

    def count_node(self) -> bool:
        """Count a node of a whole pass; it is not to stop."""
        self._nodes += 1
        return False

    def telling(self, cancel: Cancel, start: int, n: int) -> Cancel:
        """Return what to ask in a pass of `n` tokens behind `start`: `cancel`, with the progress told on the way."""
        nodes = 0

        def ask() -> bool:
            nonlocal nodes
            nodes += 1
            self._tell(start + n * nodes // max(nodes, self._nodes))
            return cancel()

        return ask
