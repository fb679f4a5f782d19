"""Trees with a node budget, and how it is typed: "--tree NAME:NODES,key=value,...".

Both parts may be left out. Without a number the budget is -k, and without that TREE_NODES; without a key the option
has its default.
"""

from collections.abc import Sequence
from typing import ClassVar

from localspec.engine.protocols import Shape
from localspec.errors import UsageError
from localspec.settings.declaration import Option
from localspec.settings.sizes import whole

MAX_NODES = 127  # of a draft: one decode gives 128 rows, and the first is the pending token's
TREE_NODES = 16  # of a tree without a given size: the length of a chain is too little to branch
MAX_LEAVES = 32  # of a tree: sequences of target and draft context; each costs sliding-window models memory


class BudgetTree:
    """A policy with at most `nodes` nodes (None: -k) in at most `depth` levels.

    Its other parameters are keywords, declared as `options`, from which they are read, checked and listed.
    """

    options: ClassVar[Sequence[Option]] = ()

    def __init__(self, nodes: int | None, depth: int, leaves: int = MAX_LEAVES) -> None:
        self._nodes = nodes
        self._depth = depth
        self._leaves = leaves

    def shape(self, k: int) -> Shape:
        """Return the budget: any tree within it may grow."""
        nodes = self.budget(k)
        return Shape(nodes, min(self._depth, nodes), max(1, min(nodes, self._leaves)))

    def budget(self, k: int) -> int:
        """Return how many nodes the tree may have: its own number, or the draft length."""
        return min(k if self._nodes is None else self._nodes, MAX_NODES)


def read_budget(tree: str, argument: str) -> tuple[int | None, list[str]]:
    """Return the node budget (None: -k) and the words after it. Raises UsageError for a budget out of range."""
    words = argument.split(",") if argument else []
    if not words or "=" in words[0]:
        return None, words
    nodes = whole(words[0]) or 0
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(
            f"--tree {tree}:{words[0]} begins with no number of nodes: it must be from 1 to {MAX_NODES}",
            hint=f"--tree {tree}:16",
        )
    return nodes, words[1:]
