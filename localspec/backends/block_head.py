"""A head that guesses a block of tokens in one pass: DFlash (arXiv 2602.06036)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from localspec.backends.batch import StatesBatch
from localspec.backends.cells import RemoveCells
from localspec.backends.head import HeadBackend, HeadModel
from localspec.backends.lib import LOG, api
from localspec.backends.llama_cpp import LlamaBackend, LlamaRows
from localspec.backends.options import LoadOptions
from localspec.backends.tap import KnownStates, Listening
from localspec.engine.draft import Mask, Nodes
from localspec.engine.protocols import Cancel, Cancelled, Tokens
from localspec.errors import InternalError


class BlockBackend(LlamaBackend):
    """A head's context whose pass guesses a block of tokens, each by itself.

    The pass holds the pending token and a mask for each token that it guesses; all of them see each other. The cache
    holds the states of the committed tokens but the last, each at its own position, and nothing of a block. So the row
    of a node depends on its depth alone, and new nodes cost nothing.
    """

    def __init__(self, model: HeadModel, target: LlamaBackend, options: LoadOptions | None = None) -> None:
        self._n_guesses = model.traits.n_guesses
        self._n_masks = 0  # of the last block
        self._mask = int(api.llama_vocab_mask(api.llama_model_get_vocab(model.handle)))
        self._known = KnownStates()
        self._depths: list[int] = []  # of the open nodes
        super().__init__(model, options)
        self.capabilities = replace(self.capabilities, n_guesses=self._n_guesses)
        target.listen(Listening(model.traits.tap, self._known.put))

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> LlamaRows:
        """Add nodes below `parents` [n]; their rows are those of the block, by depth."""
        first = len(self._depths)
        for parent in parents:
            self._depths.append(self._depths[parent] + 1 if parent >= 0 else 1)
        rows = np.minimum(np.asarray(self._depths[first:], np.int32) + 1, self._n_masks)
        return self._rows.of_entries(1 + self._n_masks, first, rows)

    def keep(self, nodes: Nodes) -> None:
        """Drop every open node: the target tells the states of those that it kept."""
        self._depths.clear()

    def truncate(self, length: int) -> None:
        """Forget committed tokens from `length` on, and every open node."""
        self._depths.clear()
        super().truncate(min(length, self.length))

    def time_rows(self, rows: int) -> float:
        """Return the seconds of a block for each token that it guesses, times `rows`."""
        return super().time_rows(1 + self._n_guesses) / self._n_guesses * rows

    def _feed(self, tokens: Sequence[int], cancel: Cancel) -> LlamaRows:
        """Hold the states of all `tokens` but the last, and evaluate the block behind them."""
        self._depths.clear()
        end = len(tokens) - 1
        first = self._known.first
        assert first <= end <= self._known.end, "the target has committed all but the last token"
        if self.length < first:
            self._forget(0)
            self._cells.advance(first)
            self._tokens += tokens[:first]
        while (start := self.length) < end:
            if cancel():
                raise Cancelled
            n = min(self._n_batch, end - start)
            self._inject(start, n)
            self._tokens += tokens[start : start + n]
            self._cells.advance(n)
        self._known.drop(self.length)
        self._n_masks = min(self._n_guesses, self._n_ctx - len(tokens))
        block = np.array([tokens[-1], *[self._mask] * self._n_masks], np.int32)
        self._make_room(len(block))
        self._batch.fill_chain(block, end)
        self._decode(len(block))
        self._apply([RemoveCells(0, end)])
        return self._rows.of_entries(len(block), 0, np.ones(1, np.int32))

    def _inject(self, start: int, n: int) -> None:
        """Give the cache the states of `n` tokens from position `start` on."""
        batch = StatesBatch(self._known.rows(start, n), start, has_outputs=False)
        code = api.llama_decode(self._growing.context, batch.struct)
        if code:
            raise InternalError(f"llama.cpp failed to take {n} states (code {code}): {LOG.reason()}")
        self.evaluated += n


def head_backend(model: HeadModel, target: LlamaBackend, options: LoadOptions | None) -> HeadBackend | BlockBackend:
    """Return a context of a head, which hears `target`."""
    return (BlockBackend if model.traits.n_guesses else HeadBackend)(model, target, options)
