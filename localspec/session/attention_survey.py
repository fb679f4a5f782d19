"""Measuring what the kinds of attention cost: it depends on model, processor, rows and depth.

The kinds take turns, so what disturbs a machine disturbs all of them. All is done again in new contexts. Each take is
compared with its neighbour in time. The middle of these ratios is the price; the spread of the others says how far it
can be trusted.

A text of any length without reading it: for timing passes deep in a context.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from localspec.backends.batch import Batch
from localspec.backends.cgroup import available_memory
from localspec.backends.context import MAX_OUTPUTS, open_context
from localspec.backends.decode_errors import decode_error
from localspec.backends.lib import api
from localspec.backends.memory import context_bytes
from localspec.backends.model import Model
from localspec.backends.options import UNQUANTISED, LoadOptions
from localspec.control.attention import KINDS, READING, AttentionTimes, Takes
from localspec.engine.protocols import Cancel, Cancelled
from localspec.tuning import TINY_WEIGHTS

SEED_TOKENS = 4  # tokens that are evaluated; deeper texts are made of copies of their entries
STRIDE = 7919  # a prime: tokens differ
EARLY, MIDDLE = 256, 1000  # tokens: where prices are taken beside those at the end of the context
LATEST = 16384  # tokens: deeper, reading takes minutes a pass
SETS = 2  # of contexts: two that are alike can differ by 16 %, by where their memory lies
TAKES, FEW = 4, 1  # of each kind in a set, the second for reading, which takes seconds


def differs(model: Model, options: LoadOptions) -> bool:
    """Whether the kinds of attention differ: on a processor, with keys and values as floating point.

    A tiny model's passes are too short to tell.
    """
    is_large = not model.is_stateful and model.n_bytes > TINY_WEIGHTS
    return is_large and not model.n_gpu_layers and options.kv_type in UNQUANTISED


def depths_of(n_ctx: int) -> tuple[int, ...]:
    """Return the depths that say what passes cost in a context of `n_ctx` positions: to its end, if that is not far."""
    late = min(n_ctx, LATEST)
    return (*(depth for depth in (EARLY, MIDDLE) if 2 * depth <= late), late)


def time_attention(
    model: Model,
    options: LoadOptions,
    depths: Sequence[int],
    rows: Sequence[int],
    cancel: Cancel,
    takes: tuple[int, int] = (TAKES, FEW),
) -> Generator[float, None, AttentionTimes]:
    """Return seconds of each kind, yielding the share that is done; nothing where memory or llama.cpp cannot.

    `takes` are those of a set of contexts, of drafts' widths and of reading. Raises Cancelled between passes.
    """
    room = replace(options, n_ctx=max(depths, default=0) + max(rows), rollback=0, flash_attn="off")
    available = available_memory()
    needed = len(KINDS) * context_bytes(model.context_shape, room.n_ctx or 0, room)
    if not depths or available is None or needed > available:
        return AttentionTimes({})
    found: dict[str, Takes] = {kind: {depth: {} for depth in depths} for kind in KINDS}
    for number in range(SETS):
        texts: dict[str, DeepText] = {}
        try:
            for kind in KINDS:
                texts[kind] = DeepText(model, replace(room, flash_attn=kind))
                if not texts[kind].can_deepen:  # llama.cpp ends the process
                    return AttentionTimes({})
            for share in _timed(texts, found, rows, cancel, takes):
                yield (number + share) / SETS
        finally:
            for text in texts.values():
                text.close()
    return AttentionTimes(found)


def _timed(
    texts: Mapping[str, DeepText],
    found: Mapping[str, Takes],
    rows: Sequence[int],
    cancel: Cancel,
    takes: tuple[int, int],
) -> Iterator[float]:
    """Add takes of each kind in turns to what was found."""
    depths, n_done = list(found[KINDS[0]]), 0
    for depth in depths:
        for text in texts.values():
            text.deepen(depth)
        for n in rows:
            for text in texts.values() if n < READING else ():
                text.time(n)  # the first pass of a width lays the graph out anew
            for number in range(takes[n >= READING]):
                for kind in list(texts)[:: -1 if number % 2 else 1]:
                    if cancel():
                        raise Cancelled
                    found[kind][depth].setdefault(n, []).append(texts[kind].time(n))
            n_done += 1
            yield n_done / (len(depths) * len(rows))


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
