"""A text of any length without reading it: for timing passes deep in a context."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from localspec.backends.batch import Batch
from localspec.backends.context import MAX_OUTPUTS, open_context
from localspec.backends.decode_errors import decode_error
from localspec.backends.lib import api
from localspec.backends.model import Model
from localspec.backends.options import LoadOptions

SEED_TOKENS = 4  # tokens that are evaluated; deeper texts are made of copies of their entries
STRIDE = 7919  # a prime: tokens differ


class DeepText:
    """A context with a text whose entries are copies of a few: how long attention takes depends on their number."""

    def __init__(self, model: Model, options: LoadOptions) -> None:
        self._context = open_context(model, options, 2)
        self._memory = api.llama_get_memory(self._context)
        self._batch = Batch(options.n_batch, 2)
        self._n_vocab = model.n_vocab
        self._length = 0
        self._decode(SEED_TOKENS)
        self._length = SEED_TOKENS

    @property
    def can_deepen(self) -> bool:
        """Whether entries can be moved to other positions."""
        return bool(api.llama_memory_can_shift(self._memory))

    def deepen(self, depth: int) -> None:
        """Hold `depth` tokens."""
        while self._length < depth:
            n = min(self._length, depth - self._length)
            api.llama_memory_seq_cp(self._memory, 0, 1, 0, n)
            state = np.empty(api.llama_state_seq_get_size(self._context, 1), np.uint8)
            pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
            api.llama_state_seq_get_data(self._context, pointer, len(state), 1)
            api.llama_memory_seq_rm(self._memory, 1, -1, -1)
            api.llama_state_seq_set_data(self._context, pointer, len(state), 1)  # in cells of its own
            api.llama_memory_seq_add(self._memory, 1, -1, -1, self._length)
            api.llama_memory_seq_cp(self._memory, 1, 0, -1, -1)
            api.llama_memory_seq_rm(self._memory, 1, -1, -1)
            self._length += n
        self._decode(1)  # turns the keys to their new positions
        api.llama_memory_seq_rm(self._memory, 0, self._length, -1)

    def time(self, rows: int) -> float:
        """Return the seconds of a pass of `rows`, of which nothing stays."""
        began = time.perf_counter()
        self._decode(rows)
        took = time.perf_counter() - began
        api.llama_memory_seq_rm(self._memory, 0, self._length, -1)
        return took

    def close(self) -> None:
        """Free the context."""
        api.llama_free(self._context)

    def _decode(self, rows: int) -> None:
        tokens = np.arange(rows, dtype=np.int64) * STRIDE % self._n_vocab
        self._batch.fill_chain(tokens.astype(np.int32), self._length, None if rows <= MAX_OUTPUTS else 1)
        if code := api.llama_decode(self._context, self._batch.struct):
            raise decode_error(code, rows, self._length)
        api.llama_synchronize(self._context)
