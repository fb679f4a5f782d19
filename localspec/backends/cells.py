"""Which sequence ids a tree needs, and what to tell the KV cache: pure bookkeeping, no llama.cpp.

llama.cpp reads a tree natively when every leaf is a sequence and every cell carries the sequences of the leaves below
it. Invariants, between calls:

- every open leaf is the tip of exactly one sequence, so the open tree uses as many sequences as it has leaves;
- sequence 0 holds the whole committed text; any other sequence s holds its first `synced[s]` tokens, then its path of
  open nodes, if any. A sequence is brought up to date only when a tree needs it: copying the whole text anew each
  time, or `seq_keep`, costs milliseconds, since llama.cpp keeps an ordered set of the positions of each sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COMMITTED = -1  # the parent of the tree's first level, and the tip of a sequence without open nodes


@dataclass(frozen=True, slots=True)
class CopyCells:
    """Give the cells of sequence `source` at positions [start, end) to `target`, too."""

    source: int
    target: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RemoveCells:
    """Take sequence `target` (-1: all of them) off the cells at positions from `start` on."""

    target: int
    start: int


@dataclass(frozen=True, slots=True)
class Growth:
    """What one decode adds: `copies` to make before it, and for each new node its position and its sequences.

    No `sequences` at all means: every node on sequence 0 alone.
    """

    copies: Sequence[CopyCells]
    positions: Sequence[int]
    sequences: Sequence[Sequence[int]]


class Cells:
    """The sequences of the open tree over `length` committed tokens."""

    def __init__(self, n_sequences: int) -> None:
        self.n_sequences = n_sequences
        self.length = 0
        self.synced = [0] * n_sequences
        self.tips = [COMMITTED] * n_sequences
        self.parents: list[int] = []
        self.depths: list[int] = []  # 0 for children of the committed text
        self.carriers: list[int] = []  # a sequence that holds the node

    @property
    def n_open(self) -> int:
        return len(self.parents)

    @property
    def ends(self) -> list[int]:
        """Positions that each sequence should hold: it ends with its tip, or with its start of the committed text."""
        return [
            self.synced[s] if tip == COMMITTED else self.length + self.depths[tip] + 1
            for s, tip in enumerate(self.tips)
        ]

    def grow(self, parents: Sequence[int]) -> Growth:
        """Add nodes below `parents` and say which cells and sequences they take."""
        first = self.n_open
        if self._continues_chain(parents, first):
            return self._grow_chain(len(parents), first)
        below = _leaves_below(parents, first)
        wanted: dict[int, int] = {}  # leaves below each parent that was there before
        for node, (leaves, parent) in enumerate(zip(below, parents, strict=True), first):
            assert COMMITTED <= parent < node, "a parent precedes its children"
            if parent < first:
                wanted[parent] = wanted.get(parent, 0) + leaves
        copies: list[CopyCells] = []
        supply = {parent: self._acquire(parent, n, copies) for parent, n in wanted.items()}
        positions, sequences = [], []
        for node, (leaves, parent) in enumerate(zip(below, parents, strict=True), first):
            own, supply[parent] = supply[parent][:leaves], supply[parent][leaves:]
            supply[node] = own
            depth = self.depths[parent] + 1 if parent >= 0 else 0
            self._append(parent, depth, own)
            positions.append(self.length + depth)
            sequences.append(own)
        return Growth(copies, positions, sequences)

    def keep(self, nodes: Sequence[int]) -> list[CopyCells | RemoveCells]:
        """Commit the path `nodes`, close the tree, and return what the cache must do, in this order."""
        self._check_path(nodes)
        base, end = self.length, self.length + len(nodes)
        todo: list[CopyCells | RemoveCells] = []
        carrier = self.carriers[nodes[-1]] if nodes else 0
        used = [s for s, tip in enumerate(self.tips) if tip != COMMITTED]
        if not nodes:
            todo = [RemoveCells(COMMITTED, base)] if used else []
        else:
            if carrier == 0:
                todo += [RemoveCells(0, end)] if self.tips[0] != nodes[-1] else []
            else:
                todo += [RemoveCells(0, base)] if 0 in used else []
                todo.append(CopyCells(carrier, 0, base, end))
            todo += [RemoveCells(s, base) for s in used if s != 0]
        self._close(end)
        return todo

    def advance(self, n: int) -> None:
        """Count `n` more committed tokens, decoded on sequence 0 without a tree."""
        assert not self.n_open, "a prefill starts without open nodes"
        self.length = self.synced[0] = self.length + n

    def truncate(self, length: int) -> list[CopyCells | RemoveCells]:
        """Close the tree, forget what was committed from position `length` on, and return what the cache must do."""
        assert 0 <= length <= self.length, "a cache does not grow by truncation"
        todo: list[CopyCells | RemoveCells] = [RemoveCells(-1, length)] if length < self.length or self.n_open else []
        self.synced = [min(synced, length) for synced in self.synced]
        self._close(length)
        return todo

    def empty(self, sequence: int) -> None:
        """Count that a sequence of no tree holds nothing."""
        self.synced[sequence] = 0

    def _continues_chain(self, parents: Sequence[int], first: int) -> bool:
        """Whether the new nodes go on where sequence 0, alone in use, ends: by far the most common case."""
        tip = self.tips[0]
        if parents[0] != tip or tip != first - 1 or (tip >= 0 and self.tips.count(COMMITTED) != self.n_sequences - 1):
            return False
        return len(parents) == 1 or list(parents[1:]) == list(range(first, first + len(parents) - 1))

    def _grow_chain(self, n: int, first: int) -> Growth:
        depth = self.depths[-1] + 1 if first else 0
        self.parents += range(first - 1, first + n - 1)
        self.depths += range(depth, depth + n)
        self.carriers += [0] * n
        self.tips[0] = first + n - 1
        start = self.length + depth
        return Growth((), range(start, start + n), ())

    def _acquire(self, parent: int, n: int, copies: list[CopyCells]) -> list[int]:
        """Return `n` sequences that end at `parent`: those that do already, then free ones made to."""
        end = self.length + (self.depths[parent] + 1 if parent >= 0 else 0)
        source = self.carriers[parent] if parent >= 0 else 0
        sequences = [s for s, tip in enumerate(self.tips) if tip == parent][:n]
        if parent != COMMITTED:
            free = [s for s, tip in enumerate(self.tips) if tip == COMMITTED]
            sequences += free[: n - len(sequences)]
        assert len(sequences) == n, f"the tree has more leaves than the {self.n_sequences} sequences of this context"
        for s in sequences:
            if self.tips[s] != COMMITTED:
                continue
            start = self.synced[s]
            if start < end and s != source:
                copies.append(CopyCells(source, s, start, end))
            self.synced[s] = self.length
            self.tips[s] = parent if parent != COMMITTED else self.n_open  # taken; the new leaf becomes its tip
        return sequences

    def _append(self, parent: int, depth: int, own: list[int]) -> None:
        for s in own:
            self.tips[s] = len(self.parents)  # a deeper node takes over in its turn
        self.parents.append(parent)
        self.depths.append(depth)
        self.carriers.append(own[0])

    def _check_path(self, nodes: Sequence[int]) -> None:
        parent = COMMITTED
        for node in nodes:
            assert 0 <= node < self.n_open, f"node {node} is not open"
            assert self.parents[node] == parent, "kept nodes are a path from the root"
            parent = node

    def _close(self, length: int) -> None:
        self.length = self.synced[0] = length
        self.tips = [COMMITTED] * self.n_sequences
        self.parents.clear()
        self.depths.clear()
        self.carriers.clear()


def _leaves_below(parents: Sequence[int], first: int) -> list[int]:
    """Return for each new node, the first of which is `first`, the number of new leaves below it, itself included."""
    leaves = [0] * len(parents)
    for at in range(len(parents) - 1, -1, -1):
        leaves[at] = leaves[at] or 1
        if parents[at] >= first:
            leaves[parents[at] - first] += leaves[at]
    return leaves
