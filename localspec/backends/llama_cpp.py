"""The backend on llama.cpp: a model, one context and its cache.

Invariants between calls: `_tokens` mirrors the committed tokens; the cache holds these on sequence 0, the open nodes
on the sequences that `Cells` names, and on any other sequence nothing but a start of the committed text. Of a model
that keeps a state, sequence 0 may hold a start of the committed text: the next pass evaluates the rest (`state_cache`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from localspec.backends.batch import Batch, LlamaRows, PromptProgress, RowBuffer, ignored, not_cancelled
from localspec.backends.build import BuildInfo, build_info
from localspec.backends.cells import RemoveCells
from localspec.backends.context import MAX_OUTPUTS, fitting, kv_bytes, settle_threads
from localspec.backends.growing_context import GrowingContext
from localspec.backends.kv_cache import KvCache
from localspec.backends.lib import api, context_full, decode_error, stoppable, too_long
from localspec.backends.model import Model, Progress
from localspec.backends.options import LoadOptions
from localspec.backends.state_cache import StateCache
from localspec.backends.tap import NoListener, StateListener
from localspec.backends.tokenizer import sample_tokens
from localspec.engine.closing import Closing
from localspec.engine.distribution import Ids
from localspec.engine.draft import Mask, Nodes
from localspec.engine.events import GPU_SETTLES
from localspec.engine.protocols import Cancel, Cancelled, Capabilities, Tokens
from localspec.engine.text import common_prefix
from localspec.errors import IncompatibleError, LocalspecError

__all__ = ["BuildInfo", "LlamaBackend", "LlamaRows", "LoadOptions", "Model", "Progress", "build_info"]

SLOW = 1.0  # seconds of a pass: a stop must not wait for the end of such a one
SHORT = 2  # tokens: what a drafter catches up with between passes
EARLY = 256  # cells: attention is computed over as many at a time, and what an empty context costs holds up to there
AHEAD = 8  # positions that a lone token finds free: see `_make_room`
OK, NO_SLOT, ABORTED = 0, 1, 2  # llama_decode; negative codes are errors


class LlamaBackend(Closing):
    """A context on `model`, with one owner.

    `evaluated` counts the tokens decoded so far, `kv_bytes` is the size of the full cache. `cancel` is asked within
    long passes: any then raises Cancelled, and the cache holds what it held. `tell` takes how far a prompt is read.
    """

    _sequence = 0  # of the committed text

    def __init__(
        self,
        model: Model,
        options: LoadOptions | None = None,
        cancel: Cancel = not_cancelled,
        tell: Callable[[int], None] = ignored,
    ) -> None:
        self.model = model
        self.options = fitting(model, options or model.options)
        self.evaluated = 0
        self.decode_rows = 1
        self.reads_singly = False
        self.cancel = cancel
        self._progress = PromptProgress(tell)
        self._took = 0.0  # seconds of the last decode
        self.kv_bytes = kv_bytes(model, self.options)
        n_leaves = 1 if model.is_stateful else self.options.max_leaves
        has_snapshots = model.is_stateful and not self.options.rollback
        self._growing = self._opened(n_leaves + has_snapshots)
        model.serve(self)
        self._n_ctx = self._growing.limit
        self._n_batch = min(self.options.n_batch, self._n_ctx)
        self._max_rows = min(self._n_batch, MAX_OUTPUTS)  # llama.cpp aborts the process beyond
        context = self._growing.context
        self._cache = self._made_cache(context, n_leaves)
        self._batch = Batch(self._n_batch, n_leaves, model.state_width, self._sequence)
        self._cells = self._cache.cells
        self._rows = RowBuffer(context, model.row_width, model.n_vocab)
        self._tokens: list[int] = []
        self._read = 0  # of them, those that came in whole chunks of prompts
        self._open_tokens: list[int] = []
        self._listener: NoListener | StateListener = NoListener()
        self._first_row = 0  # the node of the last decode's first row
        try:
            if not self._cache.exists:
                raise IncompatibleError(f"{model.path} holds a model without a cache: it does not write text")
            can_rollback = self._cache.can_take_back(self._probe)
            self.threads = self._settled_threads()
            self.evaluated = 0
        except LocalspecError:
            self.close()
            raise
        self.capabilities = self._capabilities(n_leaves if can_rollback else 1, can_rollback=can_rollback)

    @property
    def length(self) -> int:
        return self._cells.length

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    @property
    def to_replay(self) -> int:
        return self._cache.to_replay

    def cached(self, tokens: Tokens) -> int:
        wanted = tokens.tolist() if isinstance(tokens, np.ndarray) else tokens
        common = common_prefix(self._tokens, wanted[:-1])
        if self.options.reproducible:  # so that rows do not depend on what the cache held
            common = min(common, self._read) // self._n_batch * self._n_batch
        reached = self._cache.reach(common)
        return reached if reached == common or not self.options.reproducible else 0

    def prefill(self, tokens: Tokens, cancel: Cancel) -> LlamaRows:
        """Make the cache hold exactly `tokens`, evaluating only what follows the longest cached prefix.

        Raises PromptTooLongError, or Cancelled with the cache holding a prefix of `tokens`.
        """
        wanted = tokens.tolist() if isinstance(tokens, np.ndarray) else list(tokens)
        assert wanted, "a prefill needs a token: its last row is the answer"
        if len(wanted) > self._n_ctx:
            raise too_long(len(wanted), self._n_ctx)
        row = self._cache.row_after(wanted, self._tokens)
        self._forget(self.cached(wanted) if row is None else len(wanted))
        if row is not None:
            return self._rows.of_copy(row)
        self._make_room(len(wanted) - self.length)
        return self._feed(wanted, cancel)

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> LlamaRows:
        """Evaluate `tokens` [n] in one decode as new nodes below `parents` [n] of the open tree.

        Raises ResourceError, with nothing changed, where the context is full.
        """
        n, first = len(tokens), self._cells.n_open
        assert n == len(parents), "every node has a parent"
        assert 0 < n <= self._max_rows, f"one decode takes 1 to {self._max_rows} nodes"
        if self._cells.length + first + n > self._n_ctx:
            raise context_full(self._cells.length, self._n_ctx, n)
        self._make_room(n)
        replayed = self._replayed(n)
        growth = self._cells.grow(parents.tolist() if isinstance(parents, np.ndarray) else parents)
        self._cache.apply(growth.copies)
        ids: Ids = np.asarray(tokens, np.int32)
        outputs = None if self._listener.takes_logits else outputs
        self._batch.fill(ids, growth, outputs)
        if len(replayed):
            self._batch.precede(replayed, has_outputs=self._listener.takes_logits)
        self._open_tokens += ids.tolist()
        self._decode(n + len(replayed), self._spare(n))
        self._first_row = first - len(replayed)
        return self._rows.of_nodes(n, first, outputs, skipped=len(replayed))

    def keep(self, nodes: Nodes) -> None:
        is_all = len(nodes) == self._cells.n_open
        assert is_all or self.capabilities.can_rollback, "this model cannot drop evaluated tokens"
        self._listener.kept(self._growing.context, self._cells, self._first_row, nodes)
        self._cache.apply(self._cells.keep(nodes))
        self._tokens += self._open_tokens if is_all else [self._open_tokens[node] for node in nodes]
        self._open_tokens.clear()

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self._cells.length, "a cache does not grow by truncation"
        self._forget(length)

    def lengthen(self, n_ctx: int) -> None:
        """Hold up to `n_ctx` positions; text that cannot move is forgotten. Raises ResourceError, with no change."""
        if self._growing.lengthen(n_ctx):
            self._has_moved()
            self._forget(self.length if self._growing.can_move else 0)
        self._has_length(n_ctx)

    def _has_length(self, n_ctx: int) -> None:
        self._n_ctx = n_ctx
        self.kv_bytes = self.model.context_shape.kv_bytes(n_ctx, self.options)
        self.capabilities = replace(self.capabilities, n_ctx=n_ctx)

    def tune(self, *, decode_rows: int = 1, reads_singly: bool = False) -> None:
        """Decode one token in `decode_rows` rows early in a context, and read two missed ones in two passes."""
        self.decode_rows, self.reads_singly = decode_rows, reads_singly

    def listen(self, listener: StateListener) -> None:
        """Tell a listener the hidden states of the tokens that are committed from now on."""
        listener.install(self._growing.context)
        self._listener = listener

    def check(self) -> None:
        """Assert that the cache holds what the bookkeeping says: for tests, and cheap enough for every step."""
        self._cache.check()
        assert len(self._tokens) == self._cells.length, "the mirror has as many tokens as the cache"
        assert len(self._open_tokens) == self._cells.n_open, "every open node has a token"

    def close(self) -> None:
        """Free the context; rows become stale. Idempotent."""
        self._rows.expire()
        self._growing.close()

    def _capabilities(self, max_leaves: int, *, can_rollback: bool) -> Capabilities:
        rollback, devices = self.options.rollback, self.model.device_names
        return Capabilities(
            can_rollback=can_rollback,
            max_leaves=max_leaves,
            max_rows=min(self._max_rows, 1 + rollback) if rollback else self._max_rows,
            n_ctx=self._n_ctx,
            n_vocab=self.model.n_vocab,
            devices=devices,
            settles=1 if set(devices) <= {"CPU"} else GPU_SETTLES,
            replays=self._cache.replays,
        )

    def _settled_threads(self) -> int:
        return self.options.threads or settle_threads(self._growing.context, self.model.n_bytes, self._warm_up)

    def _probe(self, start: int, n: int) -> None:
        """Decode `n` tokens from position `start` on; the first such pass warms up and counts nodes."""
        self._batch.fill_chain(np.zeros(n, np.int32), start)
        self._decode(n, cancel=None if start else self._progress.count_node)

    def _warm_up(self) -> None:
        self._batch.fill_chain(np.zeros(1, np.int32), 0)
        self._decode(1)
        self._cache.clear()

    def time_rows(self, rows: int) -> float:
        """Return the seconds of a pass of `rows` with all their logits below what the cache holds, which stays."""
        start = self._cells.length
        assert self._cells.n_open == 0, "times are taken between passes"
        assert start == 0 or self.capabilities.can_rollback, "what cannot be taken back is timed in an empty cache"
        n = min(rows, self._max_rows)
        self._make_room(n)
        self._cache.begin_draft()
        self._batch.fill_chain(sample_tokens(self.model, start, n), start)
        began = time.perf_counter()
        self._decode(n)
        self.evaluated, seconds = self.evaluated - n, time.perf_counter() - began
        self._cache.take_back(start)
        return seconds

    def _make_room(self, n: int) -> None:
        """Hold `n` nodes more, if need be in a longer context, which makes rows stale.

        A lone one asks for some to spare: moving takes time, which no draft is to answer for.
        """
        if self._growing.fit(self._needed(n)):
            self._has_moved()

    def _needed(self, n: int) -> int:
        return self._cells.length + self._cells.n_open + (n if n > 1 else AHEAD)

    def _has_moved(self) -> None:
        """Use the context that is open now."""
        self._cache.move(self._growing.context)
        self._rows.move(self._growing.context)
        self._listener.install(self._growing.context)

    def _feed(self, tokens: Sequence[int], cancel: Cancel) -> LlamaRows:
        """Decode `tokens` from the committed length on, in chunks, and commit them."""
        is_long = len(tokens) - self._cells.length > SHORT
        n = 0
        while (start := self._cells.length) < len(tokens):
            if cancel():
                raise Cancelled
            if is_long:
                self._cache.keep_prompt()
            most = 1 if self.reads_singly and not is_long else self._chunk()
            n = self._listener.chunk(self._growing.context, min(most, len(tokens) - start), len(tokens) - start)
            chunk = np.asarray(tokens[start : start + n], np.int32)
            self._batch.fill_chain(chunk, start, n_outputs=1)
            self._decode(n, cancel=self._progress.telling(cancel, start, n) if is_long else None)
            self._listener.read(self._growing.context, start, n)
            self._tokens += chunk.tolist()
            self._cells.advance(n)
            self._read += n if start == self._read and n == self._n_batch else 0
        self._cache.begin_draft()
        self._cache.keep_prompt((rows := self._rows.of_last(n)).logits(0))
        return rows

    def _replayed(self, n: int) -> Ids:
        """Return the committed tokens that a pass of `n` nodes evaluates first; more than fit are evaluated now."""
        if not self._cells.n_open:
            self._cache.keep_each(self._n_batch)
            if n > 1:
                self._cache.begin_draft()
        most = (self._max_rows if self._listener.takes_logits else self._n_batch) - n
        while (due := self._cache.to_replay) > most:
            start = self._cells.length - due
            self._batch.fill_chain(np.asarray(self._tokens[start : start + most], np.int32), start, n_outputs=1)
            self._decode(most)
        return np.asarray(self._tokens[self._cells.length - due :], np.int32)

    def _spare(self, n: int) -> int:
        """Return how many unused rows follow the `n` just added: some after a lone one, early in a context."""
        is_lone = n == self._cells.n_open == 1 and not self.model.is_stateful
        has_room = self.decode_rows <= min(self._max_rows, min(EARLY, self._n_ctx) - self._cells.length)
        return self.decode_rows - 1 if is_lone and has_room else 0

    def _decode(self, n: int, spare: int = 0, cancel: Cancel | None = None) -> None:
        """Run the batch of `n` entries and `spare` more; a failure leaves in the cache what was committed, no more.

        `cancel` is asked meanwhile. That is a callback into Python at every node of the graph, 0.1 ms a pass, so only
        what takes long has one: a prompt, and any pass once the last one was slow.
        """
        self._rows.expire()
        if spare:
            self._batch.repeat(spare)
        code = self._run(cancel or (self.cancel if self._took > SLOW else None))
        if code == OK:
            self.evaluated += n
            if spare:
                self._cache.apply([RemoveCells(0, self._cells.length + n)])
            self._cache.advance(n)
            return
        length = self._cells.length
        self._cells.truncate(left := self._cache.recover())
        del self._tokens[left:]
        self._open_tokens.clear()
        if code == ABORTED:
            raise Cancelled
        if code == NO_SLOT:
            raise context_full(self._cells.length, self._n_ctx, n)
        raise decode_error(code, n, length)

    def _run(self, is_stopped: Cancel | None) -> int:
        return self._decoded(self._batch.struct, is_stopped)

    def _decoded(self, batch: Any, is_stopped: Cancel | None) -> int:
        began, context = time.perf_counter(), self._growing.context
        if is_stopped is None:
            code: int = api.llama_decode(context, batch)
        else:
            with stoppable(context, is_stopped):
                code = api.llama_decode(context, batch)
        if code == OK:
            api.llama_synchronize(context)  # a GPU still computes when llama_decode returns: time it here
            self._took = time.perf_counter() - began
        return code

    def _chunk(self) -> int:
        return self._n_batch

    def _opened(self, n_sequences: int) -> GrowingContext:
        return GrowingContext(self.model, self.options, n_sequences)

    def _made_cache(self, context: Any, n_leaves: int) -> KvCache:
        model = self.model
        return (
            StateCache(context, self.options, model.architecture) if model.is_stateful else KvCache(context, n_leaves)
        )

    def _forget(self, length: int) -> None:
        self._cache.forget(length)
        del self._tokens[length:]
        self._read = min(self._read, length // self._n_batch * self._n_batch)
        self._open_tokens.clear()
