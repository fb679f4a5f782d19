"""A lane: the backend of one of several answers on a model.

`SharedLane`s are sequences of one context, a stream of cells each, and are decoded in one pass. Where llama.cpp has no
such thing, for states, trees and heads, a `Lane` has a context of its own, and they take turns pass by pass.

Invariants: a lane touches its own sequence alone. The shared context moves only when all rows are read (`pause`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from localspec.backends.batch import Batch, LlamaRows, ignored, not_cancelled
from localspec.backends.cells import CopyCells, RemoveCells
from localspec.backends.context import fitting, kv_bytes
from localspec.backends.growing_context import GrowingContext
from localspec.backends.kv_cache import Decode, KvCache
from localspec.backends.lib import api
from localspec.backends.model import Model
from localspec.backends.options import LoadOptions
from localspec.backends.passes import Passes
from localspec.backends.saved_state import SavingBackend, common_tokens
from localspec.engine.protocols import Cancel, Tokens
from localspec.errors import ResourceError

SHORT = 8  # tokens: what is left of a prompt is read with the passes of those who write


class Lane(SavingBackend):
    """A backend whose passes are asked for."""

    def __init__(
        self,
        passes: Passes,
        model: Model,
        options: LoadOptions,
        cancel: Cancel = not_cancelled,
        tell: Callable[[int], None] = ignored,
    ) -> None:
        self.passes = passes
        self.tell = tell
        self.is_reading = False
        self.goal: Sequence[int] = ()  # the text that it reads or holds
        super().__init__(model, options, cancel, tell)
        self.lanes: list[Lane] = [self]  # of the model

    @property
    def group(self) -> SharedContext | None:
        """Return what decodes it together with others, None where nothing can."""
        return None

    @property
    def n_rows(self) -> int:
        """Return the rows of the pass that it asks for."""
        return int(self._batch.struct.n_tokens)

    def prefill(self, tokens: Tokens, cancel: Cancel) -> LlamaRows:
        self.goal = [int(token) for token in tokens]
        self.is_reading = True
        try:
            return super().prefill(tokens, cancel)
        finally:
            self.is_reading = False

    def beside(self, tokens: Sequence[int], least: int) -> Lane | None:
        """Return the lane that holds most of the start of `tokens`, `least` of them, once it has read them."""
        others = [lane for lane in self.lanes if lane is not self and lane.can_save and not self.model.is_stateful]
        wanted = np.asarray(tokens[:-1], np.int32)
        while others and not self.cancel():
            best = max(others, key=lambda lane: common_tokens(wanted, lane.goal))
            if common_tokens(wanted, best.goal) < least:
                return None
            if not best.is_reading:
                return best if common_tokens(wanted, best.tokens) >= least else None
            self.passes.pause()
        return None

    def join(self, others: Sequence[Lane]) -> None:
        """Take texts from `others`, lanes of the same model, and they from it."""
        others = list(others)
        self.lanes += others
        for lane in others:
            lane.lanes.append(self)

    def decode(self, is_stopped: Cancel | None) -> int:
        """Do the pass that was asked for."""
        return super()._run(is_stopped)

    def lengthen(self, n_ctx: int) -> None:
        self.passes.pause()
        super().lengthen(n_ctx)

    def _run(self, is_stopped: Cancel | None) -> int:
        return self.passes.ask(self, is_stopped, is_prompt=self.is_reading and self.n_rows > SHORT)

    def _chunk(self) -> int:
        return self._n_batch if self.options.reproducible else self.passes.chunk(self._n_batch)


class StreamCache(KvCache):
    """The cache of one sequence in a context of several, each with cells of its own."""

    def __init__(self, context: Any, sequence: int) -> None:
        super().__init__(context, 1)
        self._sequence = sequence

    def can_take_back(self, decode: Decode) -> bool:
        decode(0, 2)
        is_done = self._remove(1)
        self.clear()
        return is_done

    def apply(self, changes: Sequence[CopyCells | RemoveCells]) -> None:
        for change in changes:
            assert isinstance(change, RemoveCells), "a lane has one sequence"
            is_done = self._remove(change.start)
            assert is_done, "the cache refused to roll back, though it could when the model was loaded"

    def take_back(self, length: int) -> None:
        self._remove(length)

    def clear(self, *, everything: bool = False) -> None:
        self._remove(0)

    def _remove(self, start: int) -> bool:
        return bool(api.llama_memory_seq_rm(self.memory, self._sequence, start, -1))

    def _end_of(self, sequence: int) -> int:
        return super()._end_of(self._sequence)


class SharedContext:
    """One context for `n` lanes, which moves with all of them. `own` are the options of a context for one answer."""

    def __init__(self, model: Model, options: LoadOptions, n: int) -> None:
        self.own = options
        self.options = replace(fitting(model, options), lanes=n, max_leaves=1)
        kv_bytes(model, self.options)  # refuses what memory does not hold
        self.growing = GrowingContext(model, self.options, n)
        self.lanes: list[SharedLane] = []
        self._batch = Batch(options.n_batch, 1)

    def decode(self, lanes: Sequence[SharedLane], is_stopped: Cancel | None) -> int:
        """Decode the batches of several lanes in one pass; return llama.cpp's code."""
        self.expire(lanes)
        at, began = 0, time.perf_counter()
        for lane in lanes:
            at = lane.put(self._batch, at)
        code = lanes[0]._decoded(self._batch.struct, is_stopped)
        for lane in lanes:
            lane.took(time.perf_counter() - began)
        return code

    def expire(self, lanes: Sequence[Lane]) -> None:
        """Make the rows stale of all but these lanes: the next pass is written over them."""
        for lane in self.lanes:
            if lane not in lanes:
                lane._rows.expire()


class SharedLane(Lane):
    """One sequence of a context that other lanes share."""

    def __init__(
        self,
        passes: Passes,
        shared: SharedContext,
        model: Model,
        cancel: Cancel = not_cancelled,
        tell: Callable[[int], None] = ignored,
    ) -> None:
        self.shared = shared
        if len(shared.lanes) == shared.options.lanes:
            raise ResourceError(f"the context has {len(shared.lanes)} lanes", hint="a smaller --parallel")
        self._sequence = len(shared.lanes)
        super().__init__(passes, model, shared.options, cancel, tell)
        self.capabilities = replace(self.capabilities, is_lane=True)
        shared.lanes.append(self)

    @property
    def group(self) -> SharedContext:
        return self.shared

    def put(self, batch: Batch, at: int) -> int:
        """Put what is to be decoded into a batch from entry `at` on, where the rows will be; return where it ends."""
        self._rows.begin_at(at)
        return batch.join(self._batch, at)

    def took(self, seconds: float) -> None:
        self._took = seconds

    def decode(self, is_stopped: Cancel | None) -> int:
        self.shared.expire([self])
        self._rows.begin_at(0)
        return super().decode(is_stopped)

    def lengthen(self, n_ctx: int) -> None:
        growing = self.shared.growing
        if not growing.can_move and not self.passes.wait_alone():
            raise ResourceError("another answer waits for a longer context", hint="ask again")
        self.passes.pause()
        if growing.lengthen(n_ctx):
            self._all_have_moved()
            for lane in () if growing.can_move else self.shared.lanes:
                lane._forget(0)
        for lane in self.shared.lanes:
            lane._has_length(n_ctx)

    def _opened(self, n_sequences: int) -> GrowingContext:
        return self.shared.growing

    def _settled_threads(self) -> int:
        return self.shared.lanes[0].threads if self.shared.lanes else super()._settled_threads()

    def _made_cache(self, context: Any, n_leaves: int) -> KvCache:
        return StreamCache(context, self._sequence)

    def _spare(self, n: int) -> int:
        return 0 if self.passes.n_running > 1 else super()._spare(n)

    def _make_room(self, n: int) -> None:
        growing, needed = self.shared.growing, self._needed(n)
        if min(needed, growing.limit) > growing.size:
            self.passes.pause()
            if growing.fit(needed):
                self._all_have_moved()

    def _all_have_moved(self) -> None:
        for lane in self.shared.lanes:
            lane._has_moved()
