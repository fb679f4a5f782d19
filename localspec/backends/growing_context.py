"""The context that llama.cpp has open: as long as the text needs for now, where that is quicker.

Without flash attention llama.cpp keeps every entry of the values in a line as long as the context, and a pass reads the
start of each line. The longer the context, the further apart these lie: after 300 to 2000 tokens most passes of a 1B
model took 3 to 7 % longer in one of 4096 than in one just long enough. To move takes four to fifteen passes, about one
in a hundred since the last move, and nothing is evaluated again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from localspec.backends.context import SMALL_MODEL, context_size, is_stretched, kv_bytes, open_context
from localspec.backends.kv_cache import pointer
from localspec.backends.lib import LOG, api
from localspec.backends.limits import available_memory
from localspec.backends.memory import context_bytes
from localspec.backends.model import Model
from localspec.backends.options import LoadOptions
from localspec.errors import InternalError, ResourceError

FIRST_CONTEXT = 512  # positions to begin with, doubled as often as need be


class GrowingContext:
    """The open `context` of `n_sequences`, whose `size` of positions follows the text up to `limit`.

    That memory holds one of full length has been found out before.
    """

    def __init__(self, model: Model, options: LoadOptions, n_sequences: int) -> None:
        self._model = model
        self._options = options
        self._n_sequences = n_sequences
        self.limit = context_size(model, options)
        self.size = FIRST_CONTEXT if self.can_move and _may_grow(model, options) else self.limit
        self.context: Any = self._opened(self.size)

    def fit(self, n: int) -> bool:
        """Hold at least `n` positions, or as many as there may be; tell whether the context is another one now.

        Raises ResourceError, with nothing changed, where memory does not suffice any more.
        """
        size, n = self.size, min(n, self.limit)
        if n <= size:
            return False
        while size < n:
            size = min(2 * size, self.limit)
        kv_bytes(self._model, replace(self._options, n_ctx=size))  # refuses what memory does not hold
        context = self._opened(size)
        try:
            _move(self.context, context)
        except BaseException:
            api.llama_free(context)
            raise
        api.llama_free(self.context)
        self.context, self.size = context, size
        return True

    def lengthen(self, limit: int) -> bool:
        """Let the text have up to `limit` positions; tell whether the context is another one now.

        One that cannot move is empty then. Raises ResourceError, with nothing changed, where memory does not suffice.
        """
        before, options = (self._options, self.limit), replace(self._options, n_ctx=limit)
        free, is_on_gpu = available_memory(), self._model.n_gpu_layers != 0
        needed = context_bytes(self._model.context_shape, limit, options) + self._model.n_bytes
        if free is not None and needed > free and not is_on_gpu:  # what is mapped must stay in memory
            raise ResourceError(f"memory holds no context of {limit} tokens", hint="close other programs")
        self._options, self.limit = options, limit
        try:
            if self.can_move:  # a device's memory is known once it was taken
                return is_on_gpu and self.fit(limit)
            context = self._opened(limit)
        except BaseException:
            self._options, self.limit = before
            raise
        _use_threads(self.context, context)
        api.llama_free(self.context)
        self.context, self.size = context, limit
        return True

    @property
    def can_move(self) -> bool:
        """Whether its text could go on in another context.

        What lies before a sliding window would be overwritten once it has moved, and could not be gone back to. Exact
        widths are measured in one context. Keys of a short one would be turned otherwise than those after them.
        """
        is_whole = not self._model.is_stateful and api.llama_model_n_swa(self._model.handle) <= 0
        return is_whole and not self._options.reproducible and not is_stretched(self._model, self.limit)

    def close(self) -> None:
        """Free the context. Idempotent."""
        if self.context is not None:
            api.llama_free(self.context)
            self.context = None

    def _opened(self, size: int) -> Any:
        return open_context(self._model, replace(self._options, n_ctx=size), self._n_sequences)


def _may_grow(model: Model, options: LoadOptions) -> bool:
    """Whether moving pays, and memory would hold two contexts of full length."""
    n_ctx = context_size(model, options)
    is_quicker = (
        options.flash_attn == "off" and not model.n_gpu_layers and n_ctx > FIRST_CONTEXT and model.n_bytes > SMALL_MODEL
    )
    if not is_quicker:
        return False
    available = available_memory()
    return available is not None and 2 * context_bytes(model.context_shape, n_ctx, options) <= available


def _move(source: Any, target: Any) -> None:
    """Give the context `target` all that the cache of `source` holds, and its threads."""
    _use_threads(source, target)
    state = np.empty(api.llama_state_get_size(source), np.uint8)
    n_bytes = api.llama_state_get_data(source, pointer(state), len(state))
    if not n_bytes or api.llama_state_set_data(target, pointer(state), n_bytes) != n_bytes:
        raise InternalError(f"llama.cpp did not move the text into a longer context: {LOG.reason()}")


def _use_threads(source: Any, target: Any) -> None:
    api.llama_set_n_threads(target, api.llama_n_threads(source), api.llama_n_threads_batch(source))
