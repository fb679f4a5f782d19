"""Hidden states of a target's committed tokens, for a head that drafts from them.

Also here: the hidden states of a model, by functions of llama.cpp's staging header (src/llama-ext.h).

They are C++ functions that take and return only pointers, integers and booleans, so ctypes calls them like C. Their
names are mangled as GCC and Clang do it. A library without one of them, such as one built by MSVC, runs no draft heads:
see `missing`. Three kinds of states can be kept, and `tests/integration/test_heads.py` compares each with numpy:

- layer inputs, which EAGLE-3 and DFlash heads read;
- normed states, after the last norm, which EAGLE-1, Medusa and MTP heads read;
- nextn states, llama.cpp's name for what one step of a head gives to the next. In a model with blocks for further
  tokens (MTP) they are what the first of these blocks reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.cells import Cells
from localspec.backends.lib import api, function
from localspec.errors import IncompatibleError

PROMPT_STATES = 64  # tokens of a prompt, the last, whose states are read where each such row also takes its logits

States = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Tap:
    """Which hidden states of a target of width `n_embd` are read: the inputs of `layers`, side by side.

    Without layers it is the state after the last norm, which the output matrix reads. Every model has that one, but
    each row of such a pass has logits. `is_nextn`: the state that the model's own blocks for further tokens read.
    """

    n_embd: int
    layers: tuple[int, ...] = ()
    is_nextn: bool = False

    @property
    def width(self) -> int:
        """Return the numbers in a row of states."""
        return self.n_embd * max(1, len(self.layers))

    @property
    def takes_logits(self) -> bool:
        """Whether each row of a pass has logits."""
        return not self.layers and not self.is_nextn

    def install(self, context: Any) -> None:
        """Let the passes of a context keep these states."""
        for layer in self.layers:
            keep_layer_inputs(context, layer)
        if self.is_nextn:
            keep_nextn_states(context, every_row=True)
        elif not self.layers:
            keep_normed_states(context, True)

    def rows(self, context: Any, n: int) -> States:
        """Return a copy [n, width] of the states of the last pass."""
        if n == 0:
            return np.empty((0, self.width), np.float32)
        if self.is_nextn:
            return nextn_states(context, 0, n, self.n_embd).copy()
        if not self.layers:
            return normed_states(context, n, self.n_embd).copy()
        return np.concatenate([layer_inputs(context, layer, n, self.n_embd) for layer in self.layers], axis=1)


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
        """Whether each row of a pass that is listened to has logits."""
        return self.tap.takes_logits

    def install(self, context: Any) -> None:
        """Let the passes of a context, which may be a new one, keep the states."""
        self.tap.install(context)
        self._is_on, self._context = True, context

    def last(self, n: int) -> States:
        """Return the states [n, width] of the last pass, which had `n` rows, committed or not."""
        return self.tap.rows(self._context, n)

    def chunk(self, context: Any, n: int, left: int) -> int:
        """Return how many of the next `n` tokens of a prompt, of which `left` are left, the next decode takes."""
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
        self._told: list[tuple[int, States]] = []

    def put(self, start: int, rows: States) -> None:
        """Keep `rows` [n, width] for positions from `start` on, and none behind them."""
        if not self.first <= start <= self.end:  # those before are of another text, or were never told
            self.first, self._told = start, []
        while self._told and self._told[-1][0] >= start:
            self._told.pop()
        if self._told:
            at, last = self._told[-1]
            self._told[-1] = at, last[: start - at]
        self._told.append((start, rows))
        self.end = start + len(rows)

    def rows(self, start: int, n: int) -> States:
        """Return the states [n, width] of `n` positions from `start` on, n > 0."""
        assert self.first <= start < start + n <= self.end, "these states are known"
        parts: list[States] = []
        for at, rows in reversed(self._told):  # the latest are asked for, of many
            if at < start + n:
                parts.append(rows[max(0, start - at) : start + n - at])
            if at <= start:
                break
        return np.concatenate(parts[::-1])

    def drop(self, before: int) -> None:
        """Forget the positions before `before`: their states were taken over."""
        self._told = [(at, rows) for at, rows in self._told if at + len(rows) > before]
        self.first = max(self.first, min(before, self.end))


_POINTER, _INT, _UINT, _BOOL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_bool
_SYMBOLS: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "set_layer_input": ("_Z30llama_set_embeddings_layer_inpP13llama_contextjb", None, (_POINTER, _UINT, _BOOL)),
    "layer_input": ("_Z30llama_get_embeddings_layer_inpP13llama_contextj", _POINTER, (_POINTER, _UINT)),
    "set_nextn": ("_Z26llama_set_embeddings_nextnP13llama_contextbb", None, (_POINTER, _BOOL, _BOOL)),
    "nextn_row": ("_Z30llama_get_embeddings_nextn_ithP13llama_contexti", _POINTER, (_POINTER, _INT)),
}


def _resolved() -> dict[str, Any]:
    found = {}
    for name, (symbol, result, arguments) in _SYMBOLS.items():
        try:
            found[name] = function(api._lib, symbol, result, *arguments)
        except AttributeError:
            continue
    return found


_FOUND = _resolved()
_state_row = function(api._lib, "llama_get_embeddings_ith", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)


def missing() -> tuple[str, ...]:
    """Return the names of the functions that this build of llama.cpp lacks."""
    return tuple(name for name in _SYMBOLS if name not in _FOUND)


def require() -> None:
    """Raise IncompatibleError where this build of llama.cpp cannot run draft heads."""
    if missing():
        raise IncompatibleError(
            "this build of llama.cpp does not tell hidden states, so draft heads do not run",
            hint="a draft model, or none: -d none",
        )


def keep_layer_inputs(context: Any, layer: int) -> None:
    """Let passes of `context` keep the input of `layer`. llama.cpp aborts for models whose graph does not name it."""
    _FOUND["set_layer_input"](context, layer, True)


def layer_inputs(context: Any, layer: int, rows: int, width: int) -> NDArray[np.float32]:
    """Return the inputs [rows, width] of `layer` in the last pass, a view that is good until the next."""
    return _view(_FOUND["layer_input"](context, layer), rows, width)


def keep_nextn_states(context: Any, *, every_row: bool) -> None:
    """Let passes of `context` keep the nextn states, of every row or of those with logits."""
    _FOUND["set_nextn"](context, True, not every_row)


def nextn_states(context: Any, first: int, rows: int, width: int) -> NDArray[np.float32]:
    """Return the nextn states [rows, width] of the entries from `first` on, a view that is good until the next pass."""
    return _view(_FOUND["nextn_row"](context, first), rows, width)


def keep_normed_states(context: Any, is_on: bool) -> None:
    """Let passes keep the state of each row after the last norm. Every row of a pass then has logits."""
    api.llama_set_embeddings(context, is_on)


def normed_states(context: Any, rows: int, width: int) -> NDArray[np.float32]:
    """Return the states [rows, width] of the last pass after the last norm, a view that is good until the next."""
    return _view(_state_row(context, 0), rows, width)


def _view(address: int | None, rows: int, width: int) -> NDArray[np.float32]:
    assert address, "llama.cpp kept no hidden states of the last pass"
    array = (ctypes.c_float * (rows * width)).from_address(address)
    found: NDArray[np.float32] = np.ctypeslib.as_array(array).reshape(rows, width)
    return found
