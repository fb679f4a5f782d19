"""Hidden states of a target's committed tokens, for a head that drafts from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.cells import Cells
from localspec.backends.hidden_states import (
    keep_layer_inputs,
    keep_nextn_states,
    keep_normed_states,
    layer_inputs,
    nextn_states,
    normed_states,
)

PROMPT_STATES = 64  # tokens of a prompt, the last, whose states are read where each such row also takes its logits

States = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Tap:
    """Which hidden states of a target of width `n_embd` are read: the inputs of `layers`, side by side.

    Without layers it is the state after the last norm, which the output matrix reads. Every model has that one, but
    each row of such a pass has logits. `is_nextn`: the state that the model's own blocks for further tokens read.
    `has_both`: the state after the last norm comes behind the layers. Whole prompts are then read in short passes.
    """

    n_embd: int
    layers: tuple[int, ...] = ()
    is_nextn: bool = False
    has_both: bool = False

    @property
    def width(self) -> int:
        return self.n_embd * (len(self.layers) + (self.has_both or not self.layers))

    @property
    def takes_logits(self) -> bool:
        return not (self.layers or self.is_nextn or self.has_both)

    def install(self, context: Any) -> None:
        """Let the passes of a context keep these states."""
        for layer in self.layers:
            keep_layer_inputs(context, layer)
        if self.is_nextn:
            keep_nextn_states(context, every_row=True)
        elif self.has_both or not self.layers:
            keep_normed_states(context, True)

    def rows(self, context: Any, n: int) -> States:
        """Return a copy [n, width] of the states of the last pass."""
        if n == 0:
            return np.empty((0, self.width), np.float32)
        if self.is_nextn:
            return nextn_states(context, 0, n, self.n_embd).copy()
        states = [layer_inputs(context, layer, n, self.n_embd) for layer in self.layers]
        if self.has_both or not self.layers:
            states.append(normed_states(context, n, self.n_embd))
        return np.concatenate(states, axis=1)


class NoListener:
    """What a context asks where no head drafts from it."""

    takes_logits = False

    def install(self, context: Any) -> None:
        """Keep no states."""

    def chunk(self, context: Any, n: int, left: int) -> int:
        """Return how many of the next `n` tokens of a prompt, of which `left` are left, the next decode takes."""
        return n

    def read(self, context: Any, start: int, n: int) -> None:
        """Tell nothing of a prompt."""

    def kept(self, context: Any, cells: Cells, first: int, nodes: Sequence[int]) -> None:
        """Tell nothing of kept nodes."""


@dataclass(slots=True)
class StateListener:
    """Tells a head the states [n, width] of committed tokens, and the position of the first of them."""

    tap: Tap
    tell: Callable[[int, States], None]
    _is_on: bool = True
    _context: Any = None

    @property
    def takes_logits(self) -> bool:
        return self.tap.takes_logits

    def install(self, context: Any) -> None:
        """Let the passes of a context, which may be a new one, keep the states."""
        self.tap.install(context)
        self._is_on, self._context = True, context

    def last(self, n: int) -> States:
        """Return the states [n, width] of the last pass, which had `n` rows, committed or not."""
        return self.tap.rows(self._context, n)

    def chunk(self, context: Any, n: int, left: int) -> int:
        if not self.takes_logits:
            return n
        self._switch(context, left <= PROMPT_STATES)
        return n if self._is_on else min(n, left - PROMPT_STATES)

    def read(self, context: Any, start: int, n: int) -> None:
        """Tell the states of the `n` tokens of a prompt that were just decoded from position `start` on.

        Where they were not kept it tells none, so that older ones of these positions are not taken for theirs.
        """
        self.tell(start, self.tap.rows(context, n if self._is_on else 0))

    def kept(self, context: Any, cells: Cells, first: int, nodes: Sequence[int]) -> None:
        """Tell the states of the open `nodes` that are to be kept. The last decode added those from `first` on.

        The state of an older node is gone: then none is told.
        """
        if not nodes:
            return
        rows = self.tap.rows(context, cells.n_open - first if nodes[0] >= first else 0)
        self.tell(cells.length, rows[[node - first for node in nodes]] if len(rows) else rows)

    def _switch(self, context: Any, is_on: bool) -> None:
        if is_on != self._is_on:
            keep_normed_states(context, is_on)
            self._is_on = is_on


class KnownStates:
    """The states of the positions from `first` to `end`, without a gap, as they were told."""

    def __init__(self) -> None:
        self.first = self.end = 0
        self._spans: list[tuple[int, States]] = []

    def put(self, start: int, rows: States) -> None:
        """Keep `rows` [n, width] for positions from `start` on, and none behind them."""
        if not self.first <= start <= self.end:  # those before are of another text, or were never told
            self.first, self._spans = start, []
        while self._spans and self._spans[-1][0] >= start:
            self._spans.pop()
        if self._spans:
            at, last = self._spans[-1]
            self._spans[-1] = at, last[: start - at]
        self._spans.append((start, rows))
        self.end = start + len(rows)

    def rows(self, start: int, n: int) -> States:
        """Return the states [n, width] of `n` positions from `start` on, n > 0."""
        assert self.first <= start < start + n <= self.end, "these states are known"
        parts: list[States] = []
        for at, rows in reversed(self._spans):  # the latest are asked for, of many
            if at < start + n:
                parts.append(rows[max(0, start - at) : start + n - at])
            if at <= start:
                break
        return np.concatenate(parts[::-1])

    def drop(self, before: int) -> None:
        """Forget the positions before `before`: their states were taken over."""
        self._spans = [(at, rows) for at, rows in self._spans if at + len(rows) > before]
        self.first = max(self.first, min(before, self.end))
