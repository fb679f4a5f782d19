"""The bookkeeping of sequences against a model of llama.cpp's cache, on random trees."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.backends.cells import COMMITTED, Cells, CopyCells, Growth, RemoveCells

N_SEQUENCES = 6


@dataclass
class Cell:
    name: int  # unique
    position: int
    sequences: set[int]


@dataclass
class Cache:
    """What llama.cpp does with cells, with its own checks on a batch."""

    cells: list[Cell] = field(default_factory=list)
    n_named: int = 0

    def apply(self, changes: Sequence[CopyCells | RemoveCells]) -> None:
        for change in changes:
            for cell in self.cells:
                if isinstance(change, CopyCells):
                    if change.source in cell.sequences and change.start <= cell.position < change.end:
                        cell.sequences.add(change.target)
                elif cell.position >= change.start:
                    cell.sequences -= {change.target} if change.target >= 0 else cell.sequences
        self.cells = [cell for cell in self.cells if cell.sequences]

    def end(self, sequence: int) -> int:
        return max((cell.position + 1 for cell in self.cells if sequence in cell.sequences), default=0)

    def decode(self, state: Growth) -> list[tuple[int, ...]]:
        """Add the nodes; return for each the names of the cells it sees, itself last."""
        owners = [set(own) for own in state.sequences] or [{0} for _ in state.positions]
        ends = {s: self.end(s) for own in owners for s in own}
        for own in owners:
            assert len({ends[s] for s in own}) == 1, "sequences that share a node must end together"
        new = []
        for position, own in zip(state.positions, owners, strict=True):
            new.append(Cell(self.n_named, position, own))
            self.n_named += 1
        self.cells += new
        for s, end in ends.items():
            positions = [cell.position for cell in new if s in cell.sequences]
            assert positions == list(range(end, end + len(positions))), "positions of a sequence follow each other"
        return [self.sees(cell) for cell in new]

    def sees(self, of: Cell) -> tuple[int, ...]:
        views = set()
        for s in of.sequences:
            seen = [cell for cell in self.cells if s in cell.sequences and cell.position <= of.position]
            views.add(tuple(cell.name for cell in sorted(seen, key=lambda cell: cell.position)))
        assert len(views) == 1, "every sequence of a node shows it the same path"
        return views.pop()


@dataclass
class Drive:
    """Runs bookkeeping and cache side by side and knows what they should hold."""

    cells: Cells = field(default_factory=lambda: Cells(N_SEQUENCES))
    cache: Cache = field(default_factory=Cache)
    committed: list[int] = field(default_factory=list)  # names of cells
    parents: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)

    def path(self, node: int) -> list[int]:
        return [*self.path(self.parents[node]), node] if node >= 0 else []

    def n_leaves(self, parents: Sequence[int]) -> int:
        return len(set(range(len(parents))) - set(parents))

    def extend(self, parents: list[int]) -> None:
        if self.n_leaves(self.parents + parents) > N_SEQUENCES:
            return
        state = self.cells.grow(parents)
        self.cache.apply(state.copies)
        first = len(self.parents)
        self.parents += parents
        self.names += range(self.cache.n_named, self.cache.n_named + len(parents))
        for node, seen in enumerate(self.cache.decode(state), first):
            assert list(seen) == self.committed + [self.names[at] for at in self.path(node)]

    def keep(self, node: int) -> None:
        path = self.path(node)
        self.cache.apply(self.cells.keep(path))
        self.committed += [self.names[at] for at in path]
        self.close()

    def truncate(self, length: int) -> None:
        self.cache.apply(self.cells.truncate(length))
        del self.committed[length:]
        self.close()

    def close(self) -> None:
        self.parents, self.names = [], []
        assert self.cells.length == len(self.committed)
        assert sorted(cell.name for cell in self.cache.cells) == sorted(self.committed), "nothing else stays"
        assert all(0 in cell.sequences for cell in self.cache.cells)

    @property
    def ends(self) -> list[int]:
        """Where the sequences end in the cache, as the operations have left it."""
        return [self.cache.end(s) for s in range(N_SEQUENCES)]


@given(st.data())
def test_every_node_sees_its_path_and_nothing_else(data: st.DataObject) -> None:
    drive = Drive()
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["extend", "extend", "extend", "keep", "truncate"]))
        if action == "extend":
            first = len(drive.parents)
            n = data.draw(st.integers(1, 6))
            drive.extend([data.draw(st.integers(-1, first + at - 1)) for at in range(n)])
        elif action == "keep":
            drive.keep(data.draw(st.integers(-1, len(drive.parents) - 1)))
        else:
            drive.truncate(data.draw(st.integers(0, drive.cells.length)))
        assert drive.cells.ends == drive.ends


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_chains_stay_on_sequence_0_and_copy_nothing(lengths: list[int]) -> None:
    cells = Cells(N_SEQUENCES)
    for n in lengths:
        state = cells.grow(list(range(cells.n_open - 1, cells.n_open + n - 1)))
        assert not state.copies
        assert not state.sequences
    n = sum(lengths)
    assert cells.keep(list(range(n - 1))) == [RemoveCells(0 if n > 1 else -1, n - 1)]
    assert cells.keep([]) == []


def test_a_tree_uses_as_many_sequences_as_it_has_leaves() -> None:
    cells = Cells(4)
    cells.grow([-1, 0, 0, 1, 1])
    assert cells.tips.count(COMMITTED) == 1
    cells.grow([2, 3, 4])
    assert cells.tips.count(COMMITTED) == 1
    cells.grow([0])
    assert cells.tips.count(COMMITTED) == 0
    with pytest.raises(AssertionError, match="more leaves"):
        cells.grow([0])


def test_a_parent_must_be_there() -> None:
    with pytest.raises(AssertionError, match="precedes"):
        Cells(4).grow([-1, 2, 0])
