"""The KV cache of a context: what it holds of the text, and how tokens are taken back, by removing their entries."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.cells import Cells, CopyCells, RemoveCells
from localspec.backends.lib import api
from localspec.engine.protocols import Logits

ALL = -1  # sequences
Points = tuple[tuple[int, NDArray[np.uint8]], ...]  # tokens, and their state as llama.cpp writes it
Decode = Callable[[int, int], None]  # told the first position and the number of tokens


def pointer(data: NDArray[np.uint8]) -> Any:
    """Return where bytes [n] lie, as llama.cpp takes them."""
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


class KvCache:
    """The cache of attention: an entry a token, on the sequences that `cells` names. `StateCache` keeps states."""

    replays = False

    def __init__(self, context: Any, n_sequences: int) -> None:
        self.cells = Cells(n_sequences)
        self.memory: Any = api.llama_get_memory(context)

    @property
    def exists(self) -> bool:
        return bool(self.memory)

    @property
    def to_replay(self) -> int:
        return 0

    @property
    def end(self) -> int:
        """The position after the last on sequence 0."""
        return self._end_of(0)

    def move(self, context: Any) -> None:
        """Go on in another context, which holds the same."""
        self.memory = api.llama_get_memory(context)

    def can_take_back(self, decode: Decode) -> bool:
        """Decode some tokens, try to take the last back, and leave nothing."""
        decode(0, 2)
        is_done = bool(api.llama_memory_seq_rm(self.memory, 0, 1, -1))
        self.clear(everything=True)
        return is_done

    def reach(self, length: int) -> int:
        """Return how many of the first `length` committed tokens need not be evaluated again."""
        return length

    def row_after(self, prompt: Sequence[int], tokens: Sequence[int]) -> Logits | None:
        """Return the row [V] that follows a prompt, where it is kept; `tokens` are the committed ones."""
        return None

    def advance(self, n: int) -> None:
        """Count a pass of `n` tokens."""

    @property
    def points(self) -> Points:
        """Return the states of shorter starts of the text that are kept, the shortest first."""
        return ()

    def restored(self, n: int, points: Points) -> None:
        """Count the `n` tokens of a saved text, which llama.cpp has put into the empty cache; take its `points`."""
        self.cells.advance(n)

    def begin_draft(self) -> None:
        """Prepare for tokens that may be taken back."""

    def keep_prompt(self, row: Logits | None = None) -> None:
        """Keep what leads back to the committed text, and the `row` [V] that follows it after a prompt."""

    def keep_each(self, n: int) -> None:
        """Keep what leads back to the committed text, `n` tokens behind the last that was kept."""

    def apply(self, changes: Sequence[CopyCells | RemoveCells]) -> None:
        for change in changes:
            if isinstance(change, CopyCells):
                api.llama_memory_seq_cp(self.memory, change.source, change.target, change.start, change.end)
            else:
                is_done = api.llama_memory_seq_rm(self.memory, change.target, change.start, -1)
                assert is_done, "the cache refused to roll back, though it could when the model was loaded"

    def forget(self, length: int) -> None:
        changes = self.cells.truncate(length)
        if length:
            self.apply(changes)
        elif changes:
            self.clear()

    def take_back(self, length: int) -> None:
        """Forget what was decoded from `length` on without being counted."""
        if length:
            api.llama_memory_seq_rm(self.memory, ALL, length, -1)
        else:
            self.clear()

    def recover(self) -> int:
        """Drop what a failed pass left; return how many committed tokens are left."""
        length = self.cells.length
        if length:
            self.take_back(length)
        else:
            self.clear(everything=True)
        return length

    def clear(self, *, everything: bool = False) -> None:
        """Hold nothing; `everything` also overwrites what was there."""
        api.llama_memory_clear(self.memory, everything)

    def check(self) -> None:
        ends = [self._end_of(s) for s in range(self.cells.n_sequences)]
        assert ends == self.cells.ends, f"sequences end at {ends}, and should at {self.cells.ends}"

    def _end_of(self, sequence: int) -> int:
        return int(api.llama_memory_seq_pos_max(self.memory, sequence)) + 1
