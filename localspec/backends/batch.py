"""The input of a decode and its logits: a `llama_batch`, and views into the buffer of llama.cpp.

The batch is of numpy arrays: filled by slices, allocated once, never freed by llama.cpp.

A pass of 512 tokens takes many seconds on a slow machine. At every node of its graph llama.cpp asks whether it is to
stop, and nothing else tells meanwhile how far a prompt is read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.cells import Growth
from localspec.backends.lib import api, logits_address
from localspec.backends.tap import States
from localspec.engine.distribution import Ids
from localspec.engine.draft import Mask
from localspec.engine.protocols import Cancel, Logits


class Batch:
    """Room for `n_rows` tokens on up to `n_sequences` sequences each.

    With a `state_width` every entry has a hidden state beside its token, a row of `states` [n_rows, state_width].
    The `first` of the sequences is that of the committed text.
    """

    def __init__(self, n_rows: int, n_sequences: int, state_width: int = 0, first: int = 0) -> None:
        self._first = first
        self._tokens = np.zeros(n_rows, np.int32)
        self.states = np.zeros((n_rows, state_width), np.float32)
        self._positions = np.zeros(n_rows, np.int32)
        self._counts = np.ones(n_rows, np.int32)
        self._sequences = np.full((n_rows, n_sequences), first, np.int32)
        stride = self._sequences.strides[0]
        self._pointers = (self._sequences.ctypes.data + stride * np.arange(n_rows)).astype(np.uintp)
        self._outputs = np.zeros(n_rows, np.int8)
        self._count_up = np.arange(n_rows, dtype=np.int32)  # a chain's positions are a slice of it
        self._is_plain = True  # every row is on the first sequence alone, as the arrays were made
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

    def join(self, other: Batch, start: int) -> int:
        """Hold the entries of another batch, each on one sequence, from entry `start` on; return where they end."""
        n = int(other.struct.n_tokens)
        end = start + n
        self._tokens[start:end], self._positions[start:end] = other._tokens[:n], other._positions[:n]
        self._outputs[start:end], self._sequences[start:end] = other._outputs[:n], other._first
        self.struct.n_tokens = end
        return end

    def repeat(self, more: int) -> None:
        """Add the last entry `more` times, each below the one before and without logits; it is on sequence 0."""
        n = self.struct.n_tokens
        self._tokens[n : n + more] = self._tokens[n - 1]
        self._positions[n : n + more] = self._positions[n - 1] + 1 + self._count_up[:more]
        self._outputs[n : n + more] = False
        self.struct.n_tokens = n + more

    def _chain(self, start: int, n: int) -> Ids:
        if start + n > len(self._count_up):
            self._count_up = np.arange(2 * (start + n), dtype=np.int32)
        return self._count_up[start : start + n]

    def _reset_sequences(self) -> None:
        if not self._is_plain:
            self._counts.fill(1)
            self._sequences.fill(self._first)
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
            embd=self._states, pos=self._positions, n_seq_id=self._counts, seq_id=self._pointers, logits=self._outputs
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


def ignored(_news: object) -> None:
    """Ignore how far a call is."""


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


class LlamaRows:
    """Rows of one decode: views that are good until the next decode, or until the backend is closed."""

    __slots__ = ("_buffer", "_first", "_of", "_serial", "_view")

    def __init__(self, buffer: RowBuffer, view: Logits, first: int, of: Ids | None) -> None:
        self._buffer = buffer
        self._serial = buffer.serial
        self._view = view  # [rows, V]
        self._first = first  # the node of the decode's first entry
        self._of = of  # row of each entry, -1 where no logits were wanted; None: every entry has one

    def logits(self, node: int) -> Logits:
        assert self._serial == self._buffer.serial, "these rows are stale: the backend has decoded since, or is closed"
        row = node - self._first
        assert row >= 0, f"node {node} is older than these rows"
        if self._of is not None:
            row = int(self._of[row])
            assert row >= 0, f"no logits were wanted for node {node}"
        view: Logits = self._view[row]
        return view


class RowBuffer:
    """Makes the rows of each decode; keeps one numpy view as long as llama.cpp's buffer stays where it is.

    Of a row's `width` numbers the first `n_vocab` are told.
    """

    def __init__(self, context: Any, width: int, n_vocab: int) -> None:
        self._context = context
        self._width = width
        self._n_vocab = n_vocab
        self._address = 0
        self._view: Logits = np.empty((0, n_vocab), np.float32)
        self.serial = 0  # of the last decode: rows remember theirs
        self._base = 0  # the entry of the last pass that was this buffer's first

    def expire(self) -> None:
        """Make the rows of every earlier decode stale."""
        self.serial += 1

    def begin_at(self, entry: int) -> None:
        """Let the first entry be number `entry` of the next pass: others come before it."""
        self._base = entry

    def move(self, context: Any) -> None:
        self.expire()
        self._context = context
        self._address = 0

    def of_last(self, n: int) -> LlamaRows:
        """Return the row of the last of `n` entries as that of node 0; no other has one."""
        return LlamaRows(self, self._at(n - 1, 1), 0, None)

    def of_entries(self, n: int, first: int, entries: Ids) -> LlamaRows:
        """Return rows of `n` entries, all of which have logits: node `first + i` has that of `entries[i]`."""
        return LlamaRows(self, self._at(0, n), first, entries)

    def of_copy(self, row: Logits) -> LlamaRows:
        """Return a copy [V] of an earlier row as that of node 0."""
        return LlamaRows(self, row[None], 0, None)

    def of_nodes(self, n: int, first: int, outputs: Mask | None, skipped: int = 0) -> LlamaRows:
        """Return the rows of `n` entries, nodes from `first` on, of which `outputs` (None: all) have logits.

        They follow `skipped` entries that have no node.
        """
        n_rows = n if outputs is None else _count(outputs)
        if outputs is None or n_rows == n:  # in every plain pass, of which the map below took 0.1 ms
            return LlamaRows(self, self._at(skipped, n), first, None)
        of = np.where(outputs, np.cumsum(outputs) - 1, -1).astype(np.int32)
        return LlamaRows(self, self._at(skipped + int(np.argmax(outputs)), n_rows), first, of)

    def _at(self, entry: int, n_rows: int) -> Logits:
        """Return a view of the `n_rows` rows from that of batch entry `entry` on: they lie one after another."""
        if n_rows == 0:
            return self._view
        address = logits_address(self._context, self._base + entry)
        if address != self._address or n_rows > len(self._view):
            array = (ctypes.c_float * (n_rows * self._width)).from_address(address)
            self._view = np.ctypeslib.as_array(array).reshape(n_rows, self._width)[:, : self._n_vocab]
            self._address = address
        return self._view


def _count(mask: Mask) -> int:
    """Return how many are marked, sooner than `mask.all()` tells: numpy takes 0.02 ms of a plain pass for one."""
    return int(mask[0]) if len(mask) == 1 else int(np.count_nonzero(mask))
