"""The backend on llama.cpp: a model, one context and its cache.

Invariants between calls: `_tokens` mirrors the committed tokens; the cache holds these on sequence 0, the open nodes
on the sequences that `Cells` names, and nothing else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localspec.backends.batch import Batch
from localspec.backends.build import BuildInfo, build_info
from localspec.backends.cells import Cells, Copy, Remove
from localspec.backends.cpus import physical_cores
from localspec.backends.devices import available_memory, devices
from localspec.backends.lib import KV_TYPES, api, logits_address
from localspec.backends.log import LOG
from localspec.backends.memory import check_context
from localspec.backends.model import Model, Progress, Special
from localspec.backends.options import LoadOptions
from localspec.draft import Mask, Nodes
from localspec.errors import InternalError, PromptTooLongError, ResourceError, UsageError
from localspec.law import Ids
from localspec.protocols import Cancel, Cancelled, Logits, Tokens, Traits

__all__ = ["BuildInfo", "LlamaBackend", "LlamaRows", "LoadOptions", "Model", "Progress", "Special", "build_info"]

DEFAULT_CTX = 4096
RESERVED_OUTPUTS = 64  # rows of logits the compute buffer is planned for; a larger tree makes it grow once
FLASH = {"auto": -1, "off": 0, "on": 1}

OK, NO_SLOT, ABORTED = 0, 1, 2  # llama_decode


class LlamaRows:
    """Rows of one decode: views into llama.cpp's buffer, good until the next decode."""

    __slots__ = ("_first", "_of", "_serial", "_source", "_view")

    def __init__(self, source: LlamaBackend, view: Logits, first: int, of: NDArray[np.int64] | None) -> None:
        self._source = source
        self._serial = source.n_decodes
        self._view = view  # [rows, V]
        self._first = first
        self._of = of  # row of each node, -1 where no logits were wanted; None: every node has one

    def logits(self, node: int) -> Logits:
        """Return the row [V] float32 of `node` as a view; asserts once a later decode made it stale."""
        assert self._serial == self._source.n_decodes, "these rows are stale: the backend has decoded since"
        at = node - self._first
        row = at if self._of is None else int(self._of[at])
        assert at >= 0 and row >= 0, f"no logits were wanted for node {node}"
        return self._view[row]


class LlamaBackend:
    """A context on `model`, with one owner. `evaluated` counts tokens decoded so far, `kv_bytes` is the cache's size."""

    def __init__(self, model: Model, options: LoadOptions | None = None) -> None:
        self.model = model
        self.options = options or model.options
        self._context: Any = None
        self.n_decodes = 0
        self.evaluated = 0
        is_stateful = model.is_recurrent or model.is_hybrid
        n_ctx = self.options.n_ctx or min(model.n_ctx_train or DEFAULT_CTX, DEFAULT_CTX)
        n_leaves = 1 if is_stateful else self.options.max_leaves
        self.kv_bytes = self._check_memory(n_ctx)
        self._context = self._open(n_ctx, n_leaves)
        self._memory = api.llama_get_memory(self._context)
        self._batch = Batch(self.options.n_batch, n_leaves, n_ctx)
        self._cells = Cells(n_leaves)
        self._tokens: list[int] = []
        self._open_tokens: list[int] = []
        self._n_vocab = model.n_vocab
        self._n_ctx = n_ctx
        self._address = 0
        self._view: Logits = np.empty((0, self._n_vocab), np.float32)
        can_rollback = self._probe_rollback()
        self.traits = Traits(
            can_rollback=can_rollback,
            max_leaves=n_leaves if can_rollback else 1,
            max_rows=self.options.n_batch,
            n_ctx=n_ctx,
            n_vocab=model.n_vocab,
            devices=tuple(device.name for device in devices() if not device.is_gpu or model.n_gpu_layers),
        )

    @property
    def length(self) -> int:
        """Committed tokens in the cache."""
        return self._cells.length

    @property
    def n_open(self) -> int:
        """Open nodes."""
        return self._cells.n_open

    def prefill(self, tokens: Tokens, cancel: Cancel) -> LlamaRows:
        """Make the cache hold exactly `tokens`, evaluating only what follows the longest cached prefix."""
        wanted = tokens.tolist() if isinstance(tokens, np.ndarray) else list(tokens)
        assert wanted, "a prefill needs a token: its last row is the answer"
        if len(wanted) > self._n_ctx:
            raise PromptTooLongError(
                f"the prompt has {len(wanted)} tokens and the context holds {self._n_ctx}",
                hint="shorten the prompt or raise --ctx",
            )
        common = _common_prefix(self._tokens, wanted[:-1])
        if (common < len(self._tokens) or self._cells.n_open) and not self.traits.can_rollback:
            common = 0  # a recurrent state cannot forget its tail
        self._forget(common)
        return self._feed(wanted, cancel)

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> LlamaRows:
        """Evaluate `tokens` [n] in one decode as new nodes below `parents` [n] of the open tree."""
        n, first = len(tokens), self._cells.n_open
        assert 0 < n <= self.options.n_batch and n == len(parents), (
            "a decode takes 1 to n_batch nodes, each with a parent"
        )
        if self._cells.length + first + n > self._n_ctx:
            raise self._context_full(n)
        growth = self._cells.grow(parents.tolist() if isinstance(parents, np.ndarray) else parents)
        for copy in growth.copies:
            api.llama_memory_seq_cp(self._memory, copy.source, copy.target, copy.start, copy.end)
        ids: Ids = np.asarray(tokens, np.int32)
        if growth.sequences or outputs is not None:
            self._batch.fill(ids, growth, outputs)
        else:
            self._batch.fill_chain(ids, growth.positions[0])
        self._open_tokens += ids.tolist()
        self._decode(n)
        if outputs is None:
            return self._rows(0, n, first, None)
        of = np.where(outputs, np.cumsum(outputs) - 1, -1)
        return self._rows(int(np.argmax(outputs)), int(of.max()) + 1, first, of)

    def keep(self, nodes: Nodes) -> None:
        """Commit the path `nodes` of open nodes; drop all others."""
        is_all = len(nodes) == self._cells.n_open
        assert is_all or self.traits.can_rollback, "this model cannot drop evaluated tokens"
        self._apply(self._cells.keep(nodes))
        if is_all:
            self._tokens += self._open_tokens
        else:
            self._tokens += [self._open_tokens[node] for node in nodes]
        self._open_tokens.clear()

    def truncate(self, length: int) -> None:
        """Forget committed tokens from `length` on, and every open node.

        A model that cannot roll back is cleared and evaluates what stays once more.
        """
        assert 0 <= length <= self._cells.length, "a cache does not grow by truncation"
        if self.traits.can_rollback or length == 0 or (length == self._cells.length and not self._cells.n_open):
            self._forget(length)
            return
        kept = self._tokens[:length]
        self._forget(0)
        self._feed(kept, lambda: False)

    def close(self) -> None:
        """Free the context; rows become stale. Idempotent."""
        if self._context is not None:
            api.llama_free(self._context)
            self._context = None
            self.n_decodes += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check_memory(self, n_ctx: int) -> int:
        if self.options.kv_type not in KV_TYPES:
            raise UsageError(f"there is no cache type {self.options.kv_type!r}", hint=f"try {', '.join(KV_TYPES)}")
        available = available_memory()
        if available is not None and self.model.n_gpu_layers:
            available += sum(device.free for device in devices() if device.is_gpu)
        return check_context(self.model.kv_shape, n_ctx, self.options.kv_type, available)

    def _open(self, n_ctx: int, n_leaves: int) -> Any:
        options, params = self.options, api.llama_context_default_params()
        params.n_ctx = n_ctx
        # One physical batch for one logical batch: an abort then drops all of a chunk or nothing.
        params.n_batch = params.n_ubatch = options.n_batch
        params.n_outputs_max = min(options.n_batch, RESERVED_OUTPUTS)
        params.n_seq_max = n_leaves
        params.kv_unified = True  # the leaves of a tree share cells
        params.swa_full = True  # a window that forgets can neither roll back nor reuse a prefix
        params.n_threads = options.threads or physical_cores()
        params.n_threads_batch = options.threads_batch or params.n_threads
        params.type_k = params.type_v = KV_TYPES[options.kv_type]
        params.flash_attn_type = FLASH[options.flash_attn]
        params.offload_kqv = self.model.n_gpu_layers != 0
        params.no_perf = True
        LOG.clear()
        context = api.llama_init_from_model(self.model.handle, params)
        if context is None:
            raise ResourceError(
                f"llama.cpp cannot make a context of {n_ctx} tokens",
                hint="try a smaller --ctx, or --kv-type f16",
                detail={"log": LOG.tail(12)},
            )
        return context

    def _probe_rollback(self) -> bool:
        """Decode two tokens, which also warms up, and try to take the second back; leave the context empty."""
        self._batch.fill_chain(np.zeros(2, np.int32), 0)
        self._decode(2)
        can_rollback = bool(api.llama_memory_seq_rm(self._memory, 0, 1, -1))
        api.llama_memory_clear(self._memory, True)
        self.evaluated = 0
        return can_rollback

    def _feed(self, tokens: Sequence[int], cancel: Cancel) -> LlamaRows:
        """Decode `tokens` from the committed length on, in chunks, and commit them."""

        def is_aborted(_data: object) -> bool:
            return cancel()

        callback = api.ggml_abort_callback(is_aborted)
        api.llama_set_abort_callback(self._context, callback, None)
        try:
            while (start := self._cells.length) < len(tokens):
                if cancel():
                    raise Cancelled
                chunk = np.asarray(tokens[start : start + self.options.n_batch], np.int32)
                self._batch.fill_chain(chunk, start, last_only=True)
                self._decode(len(chunk))
                self._tokens += chunk.tolist()
                self._cells.advance(len(chunk))
        finally:
            # Asked for every graph node, it costs 0.1 ms a pass: for a prefill only.
            api.llama_set_abort_callback(self._context, api.ggml_abort_callback(), None)
        return self._rows(len(chunk) - 1, 1, 0, None)

    def _decode(self, n: int) -> None:
        """Run the batch of `n` rows; a failure leaves the committed tokens in the cache and nothing else."""
        self.n_decodes += 1
        code = api.llama_decode(self._context, self._batch.struct)
        if code == OK:
            api.llama_synchronize(self._context)  # a GPU computes on after llama_decode: time it here
            self.evaluated += n
            return
        self._recover()
        if code == ABORTED:
            raise Cancelled
        if code == NO_SLOT:
            raise self._context_full(n)
        raise InternalError(f"llama_decode returned {code}", detail={"code": code, "log": LOG.tail(12)})

    def _recover(self) -> None:
        """Drop what a failed decode left; a recurrent state, which it spoiled, goes altogether."""
        length = self._cells.length
        if self.model.is_recurrent or self.model.is_hybrid:
            api.llama_memory_clear(self._memory, True)
            length = 0
        else:
            api.llama_memory_seq_rm(self._memory, -1, length, -1)
        self._cells.truncate(length)
        del self._tokens[length:]
        self._open_tokens.clear()

    def _forget(self, length: int) -> None:
        if length == 0 and (self._cells.length or self._cells.n_open):
            api.llama_memory_clear(self._memory, False)
            self._cells.truncate(0)
        else:
            self._apply(self._cells.truncate(length))
        del self._tokens[length:]
        self._open_tokens.clear()

    def _apply(self, changes: Sequence[Copy | Remove]) -> None:
        for change in changes:
            if isinstance(change, Remove):
                is_done = api.llama_memory_seq_rm(self._memory, change.target, change.start, -1)
                assert is_done, "the cache refused to roll back, though it could when the model was loaded"
            else:
                api.llama_memory_seq_cp(self._memory, change.source, change.target, change.start, change.end)

    def _rows(self, batch_row: int, n: int, first: int, of: NDArray[np.int64] | None) -> LlamaRows:
        """Return a view of the `n` rows from that of batch entry `batch_row`; llama.cpp stores rows one after another."""
        address = logits_address(self._context, batch_row)
        if address != self._address or n > len(self._view):
            array = (ctypes.c_float * (n * self._n_vocab)).from_address(address)
            self._view = np.frombuffer(array, np.float32).reshape(n, self._n_vocab)
            self._address = address
        return LlamaRows(self, self._view, first, of)

    def _context_full(self, n: int) -> ResourceError:
        return ResourceError(
            f"the context is full: {self._cells.length} of {self._n_ctx} positions are taken and {n} more are needed",
            hint="raise --ctx, or generate less",
            detail={"length": self._cells.length, "n_ctx": self._n_ctx, "needed": n},
        )


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens the two texts share at their start."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])
