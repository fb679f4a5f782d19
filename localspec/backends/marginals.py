"""Heads that guess all tokens of a draft at once: the row of a node depends on its depth alone (its marginal)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from localspec.backends.batch import StatesBatch
from localspec.backends.cells import RemoveCells
from localspec.backends.head_backend import HeadBackend, HeadModel, encode
from localspec.backends.lib import LOG, api
from localspec.backends.llama_cpp import LlamaBackend, LlamaRows
from localspec.backends.options import LoadOptions
from localspec.backends.tap import KnownStates, StateListener, States
from localspec.engine.draft import Mask, Nodes
from localspec.engine.protocols import Cancel, Cancelled, Tokens
from localspec.errors import InternalError
from localspec.settings.sizes import counted


class MarginalBackend(LlamaBackend):
    """A head's context, which is told the states of all that `target` commits. New nodes cost nothing.

    A prefill leaves the rows of one pass, of `_n_rows` entries: the guess of depth i is that of entry `_first` + i.
    """

    _first = 0

    def __init__(self, model: HeadModel, target: LlamaBackend, options: LoadOptions | None = None) -> None:
        self._n_guesses = model.traits.n_guesses
        self._n_rows = 0  # of the last pass
        self._known = KnownStates()
        self._depths: list[int] = []  # of the open nodes
        super().__init__(model, options, target.cancel)
        self.capabilities = replace(self.capabilities, n_guesses=self._n_guesses, is_head=True)
        target.listen(StateListener(model.traits.tap, self._receive))

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> LlamaRows:
        """Add nodes below `parents` [n]; their rows are those of the last pass, by depth."""
        first = len(self._depths)
        for parent in parents:
            self._depths.append(self._depths[parent] + 1 if parent >= 0 else 1)
        rows = np.minimum(np.asarray(self._depths[first:], np.int32) + self._first, self._n_rows - 1)
        return self._rows.of_entries(self._n_rows, first, rows)

    def keep(self, nodes: Nodes) -> None:
        self._depths.clear()

    def truncate(self, length: int) -> None:
        self._depths.clear()
        super().truncate(min(length, self._cells.length))

    def time_rows(self, rows: int) -> float:
        """Return the seconds of a pass for each token that it guesses, times `rows`."""
        return super().time_rows(self._first + self._n_guesses) / self._n_guesses * rows

    def _receive(self, start: int, states: States) -> None:
        self._known.put(start, states)

    def _guessed(self, n: int) -> LlamaRows:
        """Return the row of the first guess, of a pass of `n` entries that the batch holds; nothing of it stays."""
        self._depths.clear()
        self._n_rows = n
        self._decode(n)
        self._cache.apply([RemoveCells(0, self._cells.length)])
        return self._rows.of_entries(n, 0, np.array([self._first], np.int32))


class DFlashBackend(MarginalBackend):
    """A DFlash head (arXiv 2602.06036), whose pass guesses a block of tokens.

    The pass holds the pending token and a mask for each token that it guesses; all of them see each other. The cache
    holds the states of the committed tokens but the last, each at its own position, and nothing of a block.
    """

    _first = 1

    def __init__(self, model: HeadModel, target: LlamaBackend, options: LoadOptions | None = None) -> None:
        self._mask = int(api.llama_vocab_mask(api.llama_model_get_vocab(model.handle)))
        super().__init__(model, target, options)

    def _feed(self, tokens: Sequence[int], cancel: Cancel) -> LlamaRows:
        """Hold the states of all `tokens` but the last, and evaluate the block behind them."""
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
        n_masks = min(self._n_guesses, self._n_ctx - len(tokens))
        block = np.array([tokens[-1], *[self._mask] * n_masks], np.int32)
        self._make_room(len(block))
        self._batch.fill_chain(block, end)
        return self._guessed(len(block))

    def _inject(self, start: int, n: int) -> None:
        batch = StatesBatch(self._known.rows(start, n), start, has_outputs=False)
        code = api.llama_decode(self._growing.context, batch.struct)
        if code:
            raise InternalError(f"llama.cpp failed to take {counted(n, 'state')} (code {code}): {LOG.reason()}")
        self.evaluated += n


class MedusaBackend(MarginalBackend):
    """A Medusa head (arXiv 2401.10774), which reads the state of the last committed token and nothing before it.

    guess k = output(norm(h + SiLU(W_k h))), h the state, for the token k places behind the pending one

    llama.cpp's encoder multiplies a row that holds h at the k-th place, and zeros elsewhere, by all W side by side.
    """

    def __init__(self, model: HeadModel, target: LlamaBackend, options: LoadOptions | None = None) -> None:
        self._encoded = model.traits.encoded
        super().__init__(model, target, options)

    @property
    def length(self) -> int:
        """Committed tokens that need not be read any more: all that the target told."""
        return self._known.end

    def cached(self, tokens: Tokens) -> int:
        """Return all tokens but the last: none is read again."""
        return len(tokens) - 1

    def prefill(self, tokens: Tokens, cancel: Cancel) -> LlamaRows:
        """Guess the tokens behind `tokens`, the last of which is pending."""
        end, n = len(tokens) - 1, self._n_guesses
        assert self._known.first < end == self._known.end, "the target has told the state of the last committed token"
        self._known.drop(end - 1)
        state = self._known.rows(end - 1, 1)
        turned = self._turned(state)
        self._batch.states[:n] = state + turned / (1 + np.exp(-turned))
        self._batch.fill_chain(np.full(n, tokens[-1], np.int32), 0)
        return self._guessed(n)

    def time_rows(self, rows: int) -> float:
        """Return the seconds of a pass, its encoder included, for each token that it guesses, times `rows`."""
        began = time.perf_counter()
        self._turned(np.zeros((1, self.model.state_width), np.float32))
        return super().time_rows(rows) + (time.perf_counter() - began) / self._n_guesses * rows

    def _turned(self, state: States) -> States:
        """Return the products [n_guesses, width] of all matrices with a state [1, width]."""
        width = state.shape[1]
        places = np.zeros((self._n_guesses, self._encoded), np.float32)
        for k, place in enumerate(places):
            place[k * width : (k + 1) * width] = state[0]
        return encode(self._growing.context, places, 0, width)


def open_head(model: HeadModel, target: LlamaBackend, options: LoadOptions | None) -> HeadBackend | MarginalBackend:
    """Return a context of a head, which is told the states of all that `target` commits."""
    match model.traits.kind:
        case "medusa":
            return MedusaBackend(model, target, options)
        case "dflash":
            return DFlashBackend(model, target, options)
    return HeadBackend(model, target, options)
