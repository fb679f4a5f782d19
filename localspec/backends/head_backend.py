"""A learned head that drafts from the target's hidden states: a `Backend`, so that it serves as a draft model does.

EAGLE-3 (arXiv 2503.01840) reads the inputs of three layers, which its encoder turns into one state a token. EAGLE-1
(arXiv 2401.15077) and an MTP head (arXiv 2412.19437) read the state after the target's last norm.

The cell at position p holds token p together with the state of token p-1. So the text's first token has no cell, and a
head can begin at any position whose state before is known. The states of drafted tokens are the head's own guesses.
Accepted ones are therefore evaluated again, with the target's states, before the next draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from localspec.backends import hidden_states
from localspec.backends.batch import StatesBatch
from localspec.backends.lib import LOG, api
from localspec.backends.llama_cpp import LlamaBackend, LlamaRows
from localspec.backends.memory import ContextShape
from localspec.backends.model import Model, Progress
from localspec.backends.options import LoadOptions
from localspec.backends.tap import KnownStates, StateListener, States, Tap
from localspec.engine.draft import Mask, Nodes
from localspec.engine.protocols import Cancel, Cancelled, Tokens
from localspec.errors import InternalError
from localspec.settings.sizes import counted

MTP, DFLASH = "mtp", "dflash"  # kinds that llama.cpp runs in another way than EAGLE heads
MTP_CONTEXT = 1  # LLAMA_CONTEXT_TYPE_MTP
BORROWED = 32  # positions of the context that stands for the target's model where a head borrows its matrices
ENCODED = 64  # rows that wait for the encoder: together they cost little more than one
WHOLE = 16  # tokens that are read with all their logits; of more, the last alone has some


@dataclass(frozen=True, slots=True)
class HeadTraits:
    """How a head is run. `kind` is the method that drafts with it, `tap` the states of the target that it reads.

    `encoded`: the numbers in a row that its encoder reads, 0 without one. `n_guesses`: the tokens that it guesses in
    one pass, 0 where it guesses one after the other. `borrows`: its file lacks the embedding or the output matrix, and
    takes the target's.
    """

    kind: str
    tap: Tap
    encoded: int = 0
    n_guesses: int = 0
    borrows: bool = False


class HeadModel(Model):
    """The weights of a head for the model `target`, which stays loaded as long."""

    def __init__(
        self, path: str | Path, traits: HeadTraits, target: Model, options: LoadOptions | None = None, **loading: Any
    ) -> None:
        hidden_states.require()
        self.traits = traits
        self._target = target
        self._lender: Any = None
        super().__init__(path, options, **loading)
        self.state_width = 0 if traits.kind == DFLASH else int(api.llama_model_n_embd(self.handle))
        self.is_stateful = False  # a block attends, also where its target's layers keep a state
        if traits.borrows:
            self._lender = self._opened_lender()

    def prepare_weights(self, params: Any) -> None:
        """Load the blocks that predict tokens further on, which llama.cpp leaves out by default."""
        params.load_mtp = self.traits.kind == MTP

    def prepare_context(self, params: Any) -> None:
        if self.traits.kind == MTP:
            params.ctx_type = MTP_CONTEXT
        if self._lender is not None:
            params.ctx_other = self._lender

    def adapt(self, context: Any) -> None:
        """Let passes keep the states that the next step takes. The masks of a DFlash head see each other instead."""
        if self.traits.kind == DFLASH:
            api.llama_set_causal_attn(context, False)
        else:
            hidden_states.keep_nextn_states(context, every_row=False)

    def close(self) -> None:
        super().close()
        if self._lender is not None:
            api.llama_free(self._lender)
            self._lender = None

    def _check_decoder(self) -> None:
        """A head is no language model, and is not meant to be one."""

    def _opened_lender(self) -> Any:
        """Return a tiny context on the target's model: the target's own context is replaced when it grows."""
        params = api.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = BORROWED
        context = api.llama_init_from_model(self._target.handle, params)
        if context is None:
            raise InternalError(f"llama.cpp made no context for the head to borrow from: {LOG.reason()}")
        return context


class OwnHead(HeadModel):
    """A block for further tokens in the target's own file: the weights are the target's, loaded with `has_mtp`.

    `shape` is that of the block's cache. llama.cpp runs the first block, for every step.
    """

    def __init__(self, target: Model, shape: ContextShape) -> None:
        tap = Tap(int(api.llama_model_n_embd(target.handle)), is_nextn=True)
        options = replace(target.options, adapters=())
        super().__init__(target.path, HeadTraits(MTP, tap), target, options, shape=shape)
        target.serve(self)

    def _free(self) -> None:
        """Free nothing: the weights are the target's."""

    def _load(self, on_progress: Progress | None) -> Any:
        return self._target.handle


class HeadBackend(LlamaBackend):
    """A head's context, which is told the states of all that `target` commits."""

    def __init__(self, model: HeadModel, target: LlamaBackend, options: LoadOptions | None = None) -> None:
        self._traits = model.traits
        self._known = KnownStates()
        self._open_states = np.zeros((1, model.state_width), np.float32)  # of the last committed token, then the nodes
        self._unencoded = KnownStates()
        super().__init__(model, options, target.cancel)
        self.capabilities = replace(self.capabilities, is_head=True)
        target.listen(StateListener(model.traits.tap, self._receive))

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> LlamaRows:
        """Evaluate new nodes, each with the state that the head gave for its parent. All rows have logits."""
        n = len(tokens)
        self._batch.states[:n] = self._open_states[np.asarray(parents) + 1]
        rows = super().extend(tokens, parents)
        self._open_states = np.concatenate([self._open_states, self._passed_on(0, n)])
        return rows

    def keep(self, nodes: Nodes) -> None:
        """Drop every open node: the kept ones are evaluated again with the target's states."""
        self.truncate(self.length)

    def _feed(self, tokens: Sequence[int], cancel: Cancel) -> LlamaRows:
        """Decode `tokens` from the committed length on, with the target's states, and commit them.

        llama.cpp takes the wrong rows where only some have logits: each decode has all of them, or none.
        """
        if self._traits.encoded:
            self._encode()
        self._skip_unknown(tokens)
        if len(tokens) - self.length > WHOLE:
            while self.length < len(tokens) - 1:
                if cancel():
                    raise Cancelled
                self._commit(tokens[: min(len(tokens) - 1, self.length + self._n_batch)], n_outputs=0)
        n = self._commit(tokens, n_outputs=len(tokens) - self.length)
        self._open_states = self._passed_on(n - 1, 1)
        return self._rows.of_last(n)

    def _skip_unknown(self, tokens: Sequence[int]) -> None:
        """Begin the cache where the states before are known, if it would begin earlier."""
        first = self._known.first + 1
        assert first < len(tokens) <= self._known.end + 1, "the target has committed all but the last token"
        if self.length < first:
            self._forget(0)
            self._cells.advance(first)
            self._tokens += tokens[:first]

    def _commit(self, tokens: Sequence[int], n_outputs: int) -> int:
        """Decode what the cache lacks of `tokens` and commit it; return the number of tokens."""
        start = self.length
        chunk = np.asarray(tokens[start:], np.int32)
        n = len(chunk)
        self._batch.states[:n] = self._known.rows(start - 1, n)
        self._batch.fill_chain(chunk, start, n_outputs)
        self._decode(n)
        self._tokens += chunk.tolist()
        self._cells.advance(n)
        return n

    def _passed_on(self, first: int, n: int) -> States:
        """Return a copy [n, width] of the states that the head gave for the last decode's entries from `first` on."""
        return hidden_states.nextn_states(self._growing.context, first, n, self.model.state_width).copy()

    def _receive(self, start: int, states: States) -> None:
        if not self._traits.encoded:
            self._known.put(start, states)
            return
        if start < self._known.end:  # the states from there on are of another text
            self._known.put(start, np.empty((0, self.model.state_width), np.float32))
        self._unencoded.put(start, states)
        if self._unencoded.end - self._unencoded.first >= ENCODED:
            self._encode()

    def _encode(self) -> None:
        """Turn the states that wait into those that the head reads."""
        end = self._unencoded.end
        for first in range(self._unencoded.first, end, self._n_batch):
            self._known.put(first, self._encoded(self._unencoded.rows(first, min(self._n_batch, end - first))))
        self._unencoded.drop(end)

    def _encoded(self, states: States) -> States:
        """Return the encoder's states [n, width] of the target's; one that is read alone stands before zeros."""
        states = np.pad(states, ((0, 0), (0, self._traits.encoded - states.shape[1])))
        # Nothing of it is stored, but llama.cpp wants positions that follow those in the cache.
        return encode(self._growing.context, states, self._cache.end, self.model.state_width)


def encode(context: Any, states: States, start: int, width: int) -> States:
    """Return the states [n, width] into which a head's encoder turns `states` [n, w], at positions from `start` on."""
    batch = StatesBatch(states, start, has_outputs=True)
    code = api.llama_encode(context, batch.struct)
    if code:
        raise InternalError(f"llama.cpp failed to encode {counted(len(states), 'state')} (code {code}): {LOG.reason()}")
    return hidden_states.nextn_states(context, 0, len(states), width).copy()
