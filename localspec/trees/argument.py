"""What follows the colon of `--tree`: "NODES,key=value,...", the same for every policy with a node budget.

Both parts may be left out: without a budget it is -k, and without that TREE_NODES; without a key its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localspec.errors import UsageError
from localspec.settings.method_options import Option, Value, read_words, whole

MAX_NODES = 127  # of a draft: one decode gives 128 rows, and the first is the pending token's
TREE_NODES = 16  # of a tree that nobody gave a size: what suits a chain is too little to branch
MAX_LEAVES = 32  # of a tree: sequences of target and draft context; each costs sliding-window models memory


@dataclass(frozen=True, slots=True)
class Argument:
    """The node budget (None: -k) and the value of every option the policy declares."""

    nodes: int | None
    values: Mapping[str, Value]

    def integer(self, name: str) -> int:
        """Return the value of an integer option."""
        return int(self.values[name])

    def number(self, name: str) -> float:
        """Return the value of a number option."""
        return float(self.values[name])


def read_argument(tree: str, argument: str, options: Sequence[Option]) -> Argument:
    """Read the argument of `tree`; raise UsageError for a budget, a key or a value that cannot be meant."""
    words = argument.split(",") if argument else []
    nodes = None
    if words and "=" not in words[0]:
        nodes = _nodes(tree, words.pop(0))
    return Argument(nodes, read_words(options, words, of=f"--tree {tree}", start=f"--tree {tree}:16,"))


def budget(nodes: int | None, k: int) -> int:
    """Return how many nodes a tree may have: the policy's own number, or the draft length."""
    return min(k if nodes is None else nodes, MAX_NODES)


def _nodes(tree: str, word: str) -> int:
    nodes = whole(word) or 0
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(
            f"--tree {tree}:{word} begins with no number of nodes: it must be from 1 to {MAX_NODES}",
            hint=f"--tree {tree}:16",
        )
    return nodes
