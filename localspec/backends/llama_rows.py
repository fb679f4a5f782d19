"""The logits of one decode, as views into llama.cpp's buffer."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.backends.lib import logits_address
from localspec.engine.distribution import Ids
from localspec.engine.draft import Mask
from localspec.engine.protocols import Logits


@dataclass(slots=True)
class Serial:
    """Counts decodes; rows remember theirs."""

    number: int = 0


class LlamaRows:
    """Rows of one decode: views that are good until the next decode, or until the backend is closed."""

    __slots__ = ("_first", "_now", "_of", "_serial", "_view")

    def __init__(self, now: Serial, view: Logits, first: int, of: Ids | None) -> None:
        self._now = now
        self._serial = now.number
        self._view = view  # [rows, V]
        self._first = first  # the node of the decode's first entry
        self._of = of  # row of each entry, -1 where no logits were wanted; None: every entry has one

    def logits(self, node: int) -> Logits:
        assert self._serial == self._now.number, "these rows are stale: the backend has decoded since, or is closed"
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
        self._serial = Serial()

    def expire(self) -> None:
        """Make the rows of every earlier decode stale."""
        self._serial.number += 1

    def move(self, context: Any) -> None:
        """Read the rows of another context from now on."""
        self.expire()
        self._context = context
        self._address = 0

    def of_last(self, n: int) -> LlamaRows:
        """Return the row of the last of `n` entries as that of node 0; no other has one."""
        return LlamaRows(self._serial, self._at(n - 1, 1), 0, None)

    def of_entries(self, n: int, first: int, entries: Ids) -> LlamaRows:
        """Return rows of `n` entries, all of which have logits: node `first + i` has that of `entries[i]`."""
        return LlamaRows(self._serial, self._at(0, n), first, entries)

    def of_copy(self, row: Logits) -> LlamaRows:
        """Return a copy [V] of an earlier row as that of node 0."""
        return LlamaRows(self._serial, row[None], 0, None)

    def of_nodes(self, n: int, first: int, outputs: Mask | None, skipped: int = 0) -> LlamaRows:
        """Return the rows of `n` entries, nodes from `first` on, of which `outputs` (None: all) have logits.

        They follow `skipped` entries that have no node.
        """
        n_rows = n if outputs is None else _count(outputs)
        if outputs is None or n_rows == n:  # in every plain pass, of which the map below took 0.1 ms
            return LlamaRows(self._serial, self._at(skipped, n), first, None)
        of = np.where(outputs, np.cumsum(outputs) - 1, -1).astype(np.int32)
        return LlamaRows(self._serial, self._at(skipped + int(np.argmax(outputs)), n_rows), first, of)

    def _at(self, entry: int, n_rows: int) -> Logits:
        """Return a view of the `n_rows` rows from that of batch entry `entry` on: they lie one after another."""
        if n_rows == 0:
            return self._view
        address = logits_address(self._context, entry)
        if address != self._address or n_rows > len(self._view):
            array = (ctypes.c_float * (n_rows * self._width)).from_address(address)
            self._view = np.ctypeslib.as_array(array).reshape(n_rows, self._width)[:, : self._n_vocab]
            self._address = address
        return self._view


def _count(mask: Mask) -> int:
    """Return how many are marked, sooner than `mask.all()` tells: numpy takes 0.02 ms of a plain pass for one."""
    return int(mask[0]) if len(mask) == 1 else int(np.count_nonzero(mask))
