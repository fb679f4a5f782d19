"""Taking tokens back from a model that keeps a state: recurrent models, and hybrids of these with attention.

Attention keeps an entry a token, and a rejected token is left out. A state is of all its tokens. Two ways lead back:

- Some hybrids keep the states after each of a pass's last tokens (llama.cpp's `n_rs_seq`). All tokens of a pass but
  its first can be taken back in place, once before the next pass.
- For nearly all other models sequence 1 keeps the state from before a draft, a snapshot. After a rejection that one is
  restored. The kept tokens are then to be *replayed*: the next pass evaluates them before its own rows.

A checkpoint is a copy of the state in main memory. There is one after a prompt, with the prompt's last row of logits:
another answer evaluates none of it. Others stand where new text begins behind what was there, and after each chunk of a
long prompt or answer. An edited message, or a stop, leads back to the last one before it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.cells import CopyCells, RemoveCells
from localspec.backends.kv_cache import Decode, KvCache, Points, pointer
from localspec.backends.lib import api
from localspec.backends.limits import available_memory
from localspec.backends.options import LoadOptions
from localspec.engine.protocols import Logits

SNAPSHOT = 1  # the sequence that keeps one
STATE_ONLY = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: attention's entries stay where they are
NO_SNAPSHOT = frozenset({"deepseek4"})  # whose cache llama.cpp copies whole or ends the process (`llama_kv_cache_dsv4`)
LOST = sys.maxsize  # positions held by a state that a failed pass has spoiled


MOST_CHECKPOINTS = 8
SHARE = 1 / 4  # of the free memory, which checkpoints may take together


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after `length` tokens, as llama.cpp writes it, and the logits [V] that follow them, where kept."""

    length: int
    data: NDArray[np.uint8]
    row: Logits | None = None


class StateCache(KvCache):
    """The state on sequence 0, of the text's first `held` tokens, and attention's entries of these, if it has any.

    The context takes `options.rollback` tokens of a pass back in place; where that is 0 there are snapshots, but for
    `NO_SNAPSHOT`. Snapshot and checkpoints are always of a start of the text: to forget a token of theirs drops them.
    `checkpoints` go from the shortest start to the longest.
    """

    def __init__(self, context: Any, options: LoadOptions, architecture: str) -> None:
        super().__init__(context, 1)
        self._context = context
        self._rollback = options.rollback
        self._keeps_prompt = options.keeps_prompt
        self.replays = not options.rollback and architecture not in NO_SNAPSHOT
        self._held = 0
        self._removable = 0  # tokens at the end that can be taken back in place
        self._snapshot = 0  # tokens in the snapshot, 0 without one
        self.checkpoints: list[Checkpoint] = []

    @property
    def to_replay(self) -> int:
        return max(0, self.cells.length - self._held)

    def move(self, context: Any) -> None:
        super().move(context)
        self._context = context
        self.clear()

    def can_take_back(self, decode: Decode) -> bool:
        decode(0, 2)
        length = 1
        if self.replays:
            self.begin_draft()
            decode(2, 1)
            length = 2
        self.take_back(length)
        is_done = self._held == length
        self.clear()
        return is_done

    def reach(self, length: int) -> int:
        """Return how many of the first `length` tokens the state can hold at once."""
        if self._held - self._removable <= length:
            return min(self._held, length)
        points = [self._snapshot, *(each.length for each in self.checkpoints)]
        return max(point if point <= length else 0 for point in points)

    def row_after(self, prompt: Sequence[int], tokens: Sequence[int]) -> Logits | None:
        checkpoint = next((each for each in self.checkpoints if each.length == len(prompt)), None)
        if checkpoint is None or list(tokens[: checkpoint.length]) != list(prompt):
            return None
        return checkpoint.row

    def advance(self, n: int) -> None:
        self._held += n
        # The state from before a pass is not among those that it leaves, though llama.cpp would take what lies there.
        self._removable = min(n - 1, self._rollback)

    @property
    def points(self) -> Points:
        return tuple((each.length, each.data) for each in self.checkpoints)

    def restored(self, n: int, points: Points) -> None:
        """Count the `n` tokens of a saved text, whose state llama.cpp has put into the empty cache; take its points."""
        super().restored(n, points)
        self._held = n
        self.checkpoints = [Checkpoint(length, data) for length, data in points]

    def begin_draft(self) -> None:
        """Take a snapshot, unless there is another way back. The next pass goes on in a copy of the state."""
        if self.replays and self._held and self._snapshot != self._held:
            # The range is empty, so attention copies no entry: of a state llama.cpp copies all or nothing.
            api.llama_memory_seq_cp(self.memory, 0, SNAPSHOT, 0, 0)
            self._snapshot = self._held

    def keep_prompt(self, row: Logits | None = None) -> None:
        """Keep the state as it is, and the `row` [V] that follows it after a prompt, in main memory."""
        is_kept = row is None and any(each.length == self._held for each in self.checkpoints)
        if is_kept or not self._keeps_prompt or not self._held or self.to_replay:
            return
        data = np.empty(api.llama_state_seq_get_size_ext(self._context, 0, STATE_ONLY), np.uint8)
        if api.llama_state_seq_get_data_ext(self._context, pointer(data), len(data), 0, STATE_ONLY) == len(data):
            others = [each for each in self.checkpoints if each.length < self._held]
            made = Checkpoint(self._held, data, None if row is None else row.copy())
            self.checkpoints = _thinned([*others, made], _most(len(data)))

    def keep_each(self, n: int) -> None:
        """Keep the state as it is, if the last that was kept is `n` tokens back."""
        if self._held - max((each.length for each in self.checkpoints), default=0) >= n:
            self.keep_prompt()

    def apply(self, changes: Sequence[CopyCells | RemoveCells]) -> None:
        """Hold nothing behind the committed text: a draft is a chain on sequence 0."""
        self.take_back(self.cells.length + self.cells.n_open)

    def forget(self, length: int) -> None:
        self.cells.truncate(length)
        self.take_back(length)

    def take_back(self, length: int) -> None:
        """Hold as many as possible of the first `length` tokens, and no others."""
        reached = self.reach(length)
        if reached == self._held:
            is_there = True
        elif self._held - self._removable <= reached:
            is_there = self._removed(reached)
        elif reached and reached == self._snapshot:
            api.llama_memory_seq_cp(self.memory, SNAPSHOT, 0, 0, 0)
            is_there = self._removed(reached)
        else:
            checkpoint = next((each for each in self.checkpoints if each.length == reached), None)
            is_there = checkpoint is not None and self._read(checkpoint) and self._removed(reached)
        if is_there:
            self._held = reached
        else:
            self.clear()
        if self._snapshot > length:
            self._snapshot = 0
        self.checkpoints = [each for each in self.checkpoints if each.length <= length]

    def recover(self) -> int:
        """Go back to a state that a failed pass has not spoiled; return how many committed tokens are left."""
        self._held, self._removable = LOST, 0
        self.take_back(self.cells.length)
        return self._held

    def clear(self, *, everything: bool = False) -> None:
        super().clear(everything=everything)
        self._held = self._removable = self._snapshot = 0
        self.checkpoints = []

    def check(self) -> None:
        assert self.end == self._held, f"the state ends at {self.end}, and should at {self._held}"
        assert self._held <= self.cells.length + self.cells.n_open, "the state is of the text"

    def _removed(self, length: int) -> bool:
        """Take sequence 0 off the positions from `length` on; tell whether llama.cpp did."""
        self._removable = 0  # another removal has to wait for a pass
        return bool(api.llama_memory_seq_rm(self.memory, 0, length, -1))

    def _read(self, checkpoint: Checkpoint) -> bool:
        data = checkpoint.data
        n_read = api.llama_state_seq_set_data_ext(self._context, pointer(data), len(data), 0, STATE_ONLY)
        return bool(n_read == len(data))


def _most(n_bytes: int) -> int:
    """Return how many checkpoints of `n_bytes` there may be."""
    free = available_memory()
    return MOST_CHECKPOINTS if free is None else max(1, min(MOST_CHECKPOINTS, int(SHARE * free) // max(1, n_bytes)))


def _thinned(points: list[Checkpoint], most: int) -> list[Checkpoint]:
    """Return `most` of the checkpoints: those that are closest to the one before go first.

    The last one stays, and that of the last prompt where there is room for both.
    """
    while len(points) > most:
        prompt = max((i for i, each in enumerate(points) if each.row is not None), default=-1)
        gaps = [
            (i == prompt, each.length - before)
            for i, (each, before) in enumerate(zip(points, [0, *(point.length for point in points)], strict=False))
        ]
        del points[min(range(len(points) - 1), key=gaps.__getitem__)]
    return points
