"""What follows the colon of `--tree`: "NODES,key=value,...", the same for every policy with a node budget.

Both parts may be left out: without a budget it is -k, without a key its default.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localspec.errors import UsageError
from localspec.options import Option, Value

MAX_NODES = 128  # of a budget: beyond it a pass costs more than any tree of 32 leaves brings
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
    declared = {option.name: option for option in options}
    values: dict[str, Value] = {option.name: option.default for option in options}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in declared or not equals:
            raise _unknown(tree, word, declared)
        values[name] = _value(tree, declared[name], text)
    return Argument(nodes, values)


def budget(nodes: int | None, k: int) -> int:
    """Return how many nodes a tree may have: the policy's own number, or the draft length."""
    return min(k if nodes is None else nodes, MAX_NODES)


def _nodes(tree: str, word: str) -> int:
    nodes = int(word) if word.isascii() and word.isdigit() else 0
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(
            f"--tree {tree}:{word} begins with no number of nodes: it must be from 1 to {MAX_NODES}",
            hint=f"--tree {tree}:16",
        )
    return nodes


def _value(tree: str, option: Option, text: str) -> Value:
    try:
        return option.read(text)
    except UsageError as error:
        raise UsageError(
            f"--tree {tree} with {option.name}={text} is out of range: {option.range}",
            hint=f"--tree {tree}:16,{option.name}={option.default}",
        ) from error


def _unknown(tree: str, word: str, declared: Mapping[str, Option]) -> UsageError:
    name = word.partition("=")[0]
    near = difflib.get_close_matches(name, declared, n=1)
    known = f"it has {', '.join(declared)}" if declared else "it has none"
    meant = declared.get(near[0]) if near else next(iter(declared.values()), None)
    hint = f"--tree {tree}:16" + (f",{meant.name}={meant.default}" if meant else "")
    return UsageError(f"--tree {tree} has no option {word!r}: {known}", hint=hint)
