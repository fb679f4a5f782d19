"""A llama.cpp context without the engine's bookkeeping: for tests of what llama.cpp itself does."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localspec.backends.context import _params
from localspec.backends.lib import api
from localspec.backends.llama_cpp import Model
from localspec.backends.options import LoadOptions


class RawContext:
    """A context opened as the engine opens one, with `changes` to llama.cpp's parameters; every row has logits."""

    def __init__(self, model: Model, options: LoadOptions, n_sequences: int = 1, **changes: Any) -> None:
        params = _params(model, options, n_sequences)
        params.n_outputs_max = options.n_batch
        for name, value in changes.items():
            setattr(params, name, value)
        self.handle: Any = api.llama_init_from_model(model.handle, params)
        assert self.handle, "llama.cpp refused the context"
        self.memory: Any = api.llama_get_memory(self.handle)
        self._n_vocab = model.n_vocab

    def decode(self, tokens: Sequence[int], start: int, sequence: int = 0) -> NDArray[np.float32]:
        """Evaluate `tokens` [n] from position `start` on in one pass; return their rows [n, V]."""
        batch = api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for at, token in enumerate(tokens):
            batch.token[at], batch.pos[at] = token, start + at
            batch.n_seq_id[at], batch.seq_id[at][0], batch.logits[at] = 1, sequence, 1
        code = api.llama_decode(self.handle, batch)
        api.llama_batch_free(batch)
        assert code == 0, f"llama_decode returned {code}"
        rows = [api.llama_get_logits_ith(self.handle, at) for at in range(len(tokens))]
        return np.array([np.ctypeslib.as_array(row, (self._n_vocab,)) for row in rows])

    def remove(self, start: int, end: int = -1, sequence: int = 0) -> bool:
        """Take a sequence off the positions [start, end), -1 for all from `start` on; return llama.cpp's answer."""
        return bool(api.llama_memory_seq_rm(self.memory, sequence, start, end))

    def copy(self, source: int, target: int) -> None:
        """Give the sequence `target` all that `source` holds."""
        api.llama_memory_seq_cp(self.memory, source, target, -1, -1)

    def ends(self, sequence: int = 0) -> tuple[int, int]:
        first, last = api.llama_memory_seq_pos_min, api.llama_memory_seq_pos_max
        return int(first(self.memory, sequence)), int(last(self.memory, sequence))

    def save(self, sequence: int = 0) -> NDArray[np.uint8]:
        data = np.empty(api.llama_state_seq_get_size(self.handle, sequence), np.uint8)
        n = api.llama_state_seq_get_data(self.handle, np.ctypeslib.as_ctypes(data), len(data), sequence)
        assert n == len(data)
        return data

    def load(self, data: NDArray[np.uint8], sequence: int = 0) -> bool:
        """Set a sequence to what was saved; tell whether llama.cpp did."""
        found = api.llama_state_seq_set_data(self.handle, np.ctypeslib.as_ctypes(data), len(data), sequence)
        return bool(found == len(data))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        api.llama_free(self.handle)
