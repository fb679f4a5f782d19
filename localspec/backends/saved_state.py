"""What a context holds of a text, taken out of it and put back: after another text, or on another day.

llama.cpp's format has no checksum, and names neither the model nor how its cache is laid out. What goes back must come
from a backend with the same `facts`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.backends.build import build_info
from localspec.backends.context import is_stretched
from localspec.backends.kv_cache import Points, pointer
from localspec.backends.lib import LOG, api
from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine.distribution import Ids
from localspec.errors import InternalError

SIZE = np.dtype("<u8")
CHUNKED = frozenset({"llama4"})  # whose window begins anew at fixed positions
WHOLE = 0  # no llama_state_seq_flags: entries of attention, and states where a model has any


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a cache held of a text: its `tokens` [n], and as llama.cpp writes it, `data`.

    `read` of the tokens came in whole chunks of prompts, from the first one on. `points` are the states of shorter
    starts, where a model keeps states.
    """

    tokens: Ids
    read: int
    data: NDArray[np.uint8]
    points: Points = ()

    @property
    def n_bytes(self) -> int:
        return int(self.data.nbytes + self.tokens.nbytes + sum(data.nbytes for _, data in self.points))

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the lengths at which a model that keeps states can go on."""
        return (*(length for length, _ in self.points), len(self.tokens))


class SavingBackend(LlamaBackend):
    """A backend whose text can be taken out and put back."""

    @property
    def facts(self) -> tuple[object, ...]:
        """What a saved state depends on, but for the files of the model and its adapters.

        llama.cpp refuses a state across some of these. Across others it takes it and is wrong, or the bits of a fresh
        evaluation would differ.
        """
        model, options, build = self.model, self.options, build_info()
        rotation = os.environ.get("LLAMA_ATTN_ROT_DISABLE")
        threads = self.threads if options.flash_attn == "on" else None  # each of them attends to a part of a text
        layout = (options.kv_type, options.flash_attn, rotation, options.rollback, self._n_batch, threads)
        streams = (options.lanes,) if options.lanes > 1 else ()
        weights = (model.is_repacked, options.placement, model.n_gpu_layers, model.device_names, options.n_masks)
        return (*layout, *streams, *weights, build.llama_cpp_python, build.llama_cpp, build.system_info, *_libraries())

    @property
    def can_save(self) -> bool:
        """Whether what is put back serves as what was taken out, in a context of another length as well."""
        has_room = not self._block or (self._aside > 0 and self.model.architecture not in CHUNKED)
        return has_room and not is_stretched(self.model, self._n_ctx)

    def usable(self, ends: Sequence[int], read: int, common: int) -> int:
        """Return how much a saved text serves one that shares its first `common` tokens.

        It has states at `ends`, and `read` of its tokens came in whole chunks of prompts.
        """
        if self.options.reproducible:
            common = min(common, read) // self._n_batch * self._n_batch
        if not self.model.is_stateful:
            return common
        reached = max((end for end in ends if end <= common), default=0)
        return reached if reached == common or not self.options.reproducible else 0

    @property
    def n_state_bytes(self) -> int:
        """Return about how many bytes `save` would take, the states of shorter starts among them."""
        points = sum(data.nbytes for _, data in self._cache.points)
        if self._block:
            return points + self.kv_bytes * self.length // self._n_ctx
        return points + int(api.llama_state_seq_get_size_ext(self._growing.context, self._sequence, WHOLE))

    def save(self) -> SavedState:
        """Return what the cache holds of the committed text. Raises MemoryError."""
        held = self._cells.length - self._cache.to_replay
        data = self._written(self._sequence) if not self._block else self._in_blocks(held)
        return SavedState(np.asarray(self._tokens[:held], np.int32), min(self._read, held), data, self._cache.points)

    def restore(self, state: SavedState, length: int) -> bool:
        """Hold the first `length` tokens of a saved text and nothing else; where llama.cpp refuses it, nothing at all.

        Rows become stale. Raises ResourceError, with nothing held, where memory does not suffice.
        """
        self._forget(0)
        self._rows.expire()
        self._make_room(len(state.tokens))
        is_there = self._put(state.data, self._sequence) if not self._block else self._put_blocks(state.data)
        if not is_there:
            self._cache.clear(everything=True)
            return False
        self._cache.restored(len(state.tokens), state.points)
        self._tokens += state.tokens.tolist()
        self._read = state.read
        self._listener.read(self._growing.context, 0, 0)  # a head knows the states of another text
        self._forget(length)
        return True

    @property
    def _block(self) -> int:
        """Return how many tokens of a sliding window are saved at a time, 0 without a window.

        llama.cpp writes what lies within a window of the last token of a sequence, and into the room of what does not
        it puts other tokens. So each block goes by itself, through a sequence of its own.
        """
        window = int(api.llama_model_n_swa(self.model.handle))
        return max(1, window // 4) if window > 0 else 0

    @property
    def _aside(self) -> int:
        """Return a sequence that may lose the start of the text that it holds."""
        return self._cells.n_sequences - 1

    def _in_blocks(self, length: int) -> NDArray[np.uint8]:
        """Return the state of each block behind the number of its bytes."""
        self._empty_aside()
        parts = []
        for start in range(0, length, self._block):
            api.llama_memory_seq_cp(self._cache.memory, 0, self._aside, start, min(start + self._block, length))
            part = self._written(self._aside)
            parts += [np.array([len(part)], SIZE).view(np.uint8), part]
            self._empty_aside()
        return np.concatenate(parts)

    def _put_blocks(self, data: NDArray[np.uint8]) -> bool:
        at = 0
        while at < len(data):
            start = at + SIZE.itemsize
            at = start + int(data[at:start].view(SIZE)[0])
            if not self._put(data[start:at], self._aside):
                return False
            api.llama_memory_seq_cp(self._cache.memory, self._aside, 0, -1, -1)
            self._empty_aside()
        return True

    def _empty_aside(self) -> None:
        api.llama_memory_seq_rm(self._cache.memory, self._aside, -1, -1)
        self._cells.empty(self._aside)

    def _written(self, sequence: int) -> NDArray[np.uint8]:
        context = self._growing.context
        data = np.empty(api.llama_state_seq_get_size_ext(context, sequence, WHOLE), np.uint8)
        n = api.llama_state_seq_get_data_ext(context, pointer(data), len(data), sequence, WHOLE)
        if n != len(data):
            raise InternalError(f"llama.cpp did not write what it holds of the text: {LOG.reason()}")
        return data

    def _put(self, data: NDArray[np.uint8], sequence: int) -> bool:
        """Set an empty sequence to what was written; tell whether llama.cpp did."""
        context = self._growing.context
        n: int = api.llama_state_seq_set_data_ext(context, pointer(data), len(data), sequence, WHOLE)
        return n == len(data)


def common_tokens(some: Ids, others: Sequence[int] | Ids) -> int:
    """Return how many tokens two texts have in common, from the first on."""
    n = min(len(some), len(others))
    differ = np.flatnonzero(np.asarray(some[:n]) != np.asarray(others[:n]))
    return int(differ[0]) if len(differ) else n


def _libraries() -> list[tuple[str, int, int]]:
    """Return name, size and time of llama.cpp's libraries: a build may change without its version."""
    folder = Path(api._lib._name).parent
    files = [(each.name, each.stat()) for each in folder.iterdir() if ".so" in each.name or each.suffix == ".dylib"]
    return sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)
