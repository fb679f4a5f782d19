"""A `llama_batch` on numpy arrays: filled by slices, allocated once, never freed by llama.cpp.

How far a prompt is read, within a pass too: llama.cpp asks at every node of its graph whether it is to stop.

A pass of 512 tokens takes many seconds on a slow machine, and its nodes are the only thing that tells of it meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.cells import Growth
from localspec.backends.lib import api
from localspec.backends.tap import States
from localspec.engine.distribution import Ids
from localspec.engine.draft import Mask
from localspec.engine.protocols import Cancel


class Batch:
    """Room for `n_rows` tokens on up to `n_sequences` sequences each.

    With a `state_width` every entry has a hidden state beside its token, a row of `states` [n_rows, state_width].
    """

    def __init__(self, n_rows: int, n_sequences: int, state_width: int = 0) -> None:
        self._tokens = np.zeros(n_rows, np.int32)
        self.states = np.zeros((n_rows, state_width), np.float32)
        self._positions = np.zeros(n_rows, np.int32)
        self._counts = np.ones(n_rows, np.int32)
        self._sequences = np.zeros((n_rows, n_sequences), np.int32)
        stride = self._sequences.strides[0]
        self._pointers = (self._sequences.ctypes.data + stride * np.arange(n_rows)).astype(np.uintp)
        self._outputs = np.zeros(n_rows, np.int8)
        self._count_up = np.arange(n_rows, dtype=np.int32)  # a chain's positions are a slice of it
        self._is_plain = True  # every row is on sequence 0 alone, as the arrays were made
        self.struct = _struct(
            token=self._tokens,
            pos=self._positions,
            n_seq_id=self._counts,
            seq_id=self._pointers,
            logits=self._outputs,
            embd=self.states if state_width else None,
        )

    def fill_chain(self, tokens: Ids, start: int, n_outputs: int | None = None) -> None:
        """Hold `tokens` at positions from `start` on, on sequence 0; the last `n_outputs` (None: all) have logits."""
        n = len(tokens)
        self._tokens[:n] = tokens
        self._positions[:n] = self._chain(start, n)
        self._outputs[:n] = n_outputs is None
        if n_outputs is not None:
            self._outputs[n - n_outputs : n] = True
        self._reset_sequences()
        self.struct.n_tokens = n

    def fill(self, tokens: Ids, growth: Growth, outputs: Mask | None) -> None:
        """Hold `tokens` where `growth` puts them; `outputs` marks the rows whose logits are wanted (None: all)."""
        n, is_chain = len(tokens), not growth.sequences
        if n == 1 and is_chain and self._is_plain:  # plain decoding
            self._tokens[0], self._positions[0] = tokens[0], growth.positions[0]
            self._outputs[0] = outputs is None or outputs[0]
            self.struct.n_tokens = 1
            return
        self._tokens[:n] = tokens
        start = growth.positions[0]
        self._positions[:n] = self._chain(start, n) if is_chain else growth.positions
        self._outputs[:n] = True if outputs is None else outputs
        self._reset_sequences()
        for row, own in enumerate(growth.sequences):
            self._counts[row] = len(own)
            self._sequences[row, : len(own)] = own
        self._is_plain = is_chain
        self.struct.n_tokens = n

    def precede(self, tokens: Ids, *, has_outputs: bool) -> None:
        """Put `tokens` before a chain, at the positions before."""
        n, more = self.struct.n_tokens, len(tokens)
        start = int(self._positions[0]) - more
        for array in (self._tokens, self._outputs):
            array[more : more + n] = array[:n].copy()
        self._tokens[:more] = tokens
        self._outputs[:more] = has_outputs
        self._positions[: more + n] = self._chain(start, more + n)
        self.struct.n_tokens = more + n

    def repeat(self, more: int) -> None:
        """Add the last entry `more` times, each below the one before and without logits; it is on sequence 0."""
        n = self.struct.n_tokens
        self._tokens[n : n + more] = self._tokens[n - 1]
        self._positions[n : n + more] = self._positions[n - 1] + 1 + self._count_up[:more]
        self._outputs[n : n + more] = False
        self.struct.n_tokens = n + more

    def _chain(self, start: int, n: int) -> Ids:
        """Return the positions [n] from `start` on."""
        if start + n > len(self._count_up):
            self._count_up = np.arange(2 * (start + n), dtype=np.int32)
        return self._count_up[start : start + n]

    def _reset_sequences(self) -> None:
        if not self._is_plain:
            self._counts.fill(1)
            self._sequences.fill(0)
            self._is_plain = True


class StatesBatch:
    """A `llama_batch` of `states` [n, width] without tokens, at positions from `start` on, on sequence 0."""

    def __init__(self, states: States, start: int, *, has_outputs: bool) -> None:
        n = len(states)
        self._states = np.ascontiguousarray(states, np.float32)
        self._positions = np.arange(start, start + n, dtype=np.int32)
        self._counts, self._sequence = np.ones(n, np.int32), np.zeros(1, np.int32)
        self._pointers = np.full(n, self._sequence.ctypes.data, np.uintp)
        self._outputs = np.full(n, has_outputs, np.int8)
        self.struct = _struct(
            embd=self._states,
            pos=self._positions,
            n_seq_id=self._counts,
            seq_id=self._pointers,
            logits=self._outputs,
        )
        self.struct.n_tokens = n


def _struct(**arrays: NDArray[Any] | None) -> Any:
    """Return a `llama_batch` whose fields point to these arrays; None stands for no array."""
    struct = api.llama_batch()
    kinds = dict(api.llama_batch._fields_)
    for name, array in arrays.items():
        if array is not None:
            setattr(struct, name, ctypes.cast(array.ctypes.data, kinds[name]))
    return struct


def ignored(_n: int) -> None:
    """Ignore the progress."""


def not_cancelled() -> bool:
    """Return False: no pass is to stop."""
    return False


class PromptProgress:
    """Calls `tell` with the tokens that are evaluated, again and again. `count_node` is for the first pass of all."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._nodes = 0  # of the graph; 0 where llama.cpp does not ask at them, as on some devices

    def count_node(self) -> bool:
        """Count a node of a whole pass; it is not to stop."""
        self._nodes += 1
        return False

    def telling(self, cancel: Cancel, start: int, n: int) -> Cancel:
        """Return what to ask in a pass of `n` tokens behind `start`: `cancel`, with the progress told on the way."""
        nodes = 0

        def ask() -> bool:
            nonlocal nodes
            nodes += 1
            self._tell(start + n * nodes // max(nodes, self._nodes))
            return cancel()

        return ask
