"""What tests of drafters and verifiers stand on: a model that is a table, and a chooser that replays every branch.

Public, so that a method in another package can prove itself with the same tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from localspec.draft import Mask, Nodes
from localspec.law import Law
from localspec.protocols import Cancel, Logits, Tokens, Traits

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Branch:
    """One way a random program can go: its probability and its result."""

    weight: float
    result: object


class EnumeratingChooser:
    """A Chooser that follows a script of choices and notes the alternatives it passed."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self.taken: list[int] = []
        self.options: list[int] = []
        self.weight = 1.0

    def bernoulli(self, a: float) -> bool:
        """Branch on a coin, unless it is certain."""
        if a >= 1.0 or a <= 0.0:
            return a >= 1.0
        return self._choose([1.0 - a, a]) == 1

    def categorical(self, law: Law) -> int:
        """Branch on every token of the support."""
        return int(law.ids[self._choose(law.probs.tolist())])

    def race(self, position: int, law: Law, k: int = 1) -> list[int]:
        """Refuse: coupled noise has too many orderings; it is tested over noise tables."""
        raise AssertionError("coupled noise cannot be enumerated")

    def _choose(self, probs: Sequence[float]) -> int:
        at = len(self.taken)
        choice = self._script[at] if at < len(self._script) else 0
        self.taken.append(choice)
        self.options.append(len(probs))
        self.weight *= probs[choice]
        return choice


def enumerate_branches(run: Callable[[EnumeratingChooser], T]) -> Iterator[tuple[float, T]]:
    """Run `run` once for every sequence of choices; yield each branch's probability and result.

    Depth-first with replay: the script of a finished run is advanced at its last choice that has alternatives left.
    """
    script: list[int] = []
    while True:
        chooser = EnumeratingChooser(script)
        result = run(chooser)
        yield chooser.weight, result
        script = chooser.taken
        while script and script[-1] + 1 == chooser.options[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


class TableRows:
    """Rows of one call, stale after the next."""

    def __init__(self, backend: TableBackend, rows: dict[int, Logits]) -> None:
        self._backend = backend
        self._rows = rows
        self._call = backend.calls

    def logits(self, node: int) -> Logits:
        """Return the row of `node`; asserts that no later call made it stale."""
        assert self._call == self._backend.calls, "this row was overwritten by a later decode"
        return self._rows[node]


class TableBackend:
    """A Backend whose logits are a pure function of the visible tokens: `table(tokens) -> [V] float32`."""

    def __init__(self, table: Callable[[tuple[int, ...]], Logits], n_vocab: int, n_ctx: int = 64) -> None:
        self.traits = Traits(can_rollback=True, max_leaves=64, max_rows=64, n_ctx=n_ctx, n_vocab=n_vocab)
        self.calls = 0
        self.evaluated = 0
        self.committed: list[int] = []
        self._table = table
        self._paths: list[tuple[int, ...]] = []

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self.committed)

    def prefill(self, tokens: Tokens, cancel: Cancel) -> TableRows:
        """Hold exactly `tokens`; row 0 is the last one's."""
        wanted = [int(token) for token in tokens]
        shared = next(
            (i for i, (a, b) in enumerate(zip(self.committed, wanted, strict=False)) if a != b),
            min(len(self.committed), len(wanted)),
        )
        self.evaluated += len(wanted) - min(shared, len(wanted) - 1)
        self.committed, self._paths = wanted, []
        self.calls += 1
        return TableRows(self, {0: self._table(tuple(wanted))})

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> TableRows:
        """Add nodes to the open tree; rows are keyed by node id."""
        first = len(self._paths)
        for token, parent in zip(tokens, parents, strict=True):
            above = self._paths[parent] if parent >= 0 else ()
            self._paths.append((*above, int(token)))
        assert self.length + max(map(len, self._paths)) <= self.traits.n_ctx, "past the context"
        self.evaluated += len(tokens)
        self.calls += 1
        new = range(first, len(self._paths))
        wanted = [node for i, node in enumerate(new) if outputs is None or outputs[i]]
        return TableRows(self, {node: self._table((*self.committed, *self._paths[node])) for node in wanted})

    def keep(self, nodes: Nodes) -> None:
        """Commit a path; its nodes must follow one another from the tip."""
        path: tuple[int, ...] = ()
        for node in nodes:
            assert self._paths[node][:-1] == path, "kept nodes form a path from the tip"
            path = self._paths[node]
        self.committed += path
        self._paths = []

    def truncate(self, length: int) -> None:
        """Forget what follows `length`."""
        del self.committed[length:]
        self._paths = []


def random_table(
    n_vocab: int,
    seed: int,
    *,
    scale: float = 1.5,
    near: Callable[[tuple[int, ...]], Logits] | None = None,
    distance: float = 1.0,
) -> Callable[[tuple[int, ...]], Logits]:
    """Return a table of random logits that depends on the last four tokens and the length.

    With `near`, the table is that one plus noise of scale `distance`: a draft that resembles its target.
    """

    def table(tokens: tuple[int, ...]) -> Logits:
        rng = np.random.default_rng([seed, len(tokens), *tokens[-4:]])
        noise = rng.normal(size=n_vocab)
        if near is not None:
            return (near(tokens) + distance * noise).astype(np.float32)
        return (scale * noise).astype(np.float32)

    return table
