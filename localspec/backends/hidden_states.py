"""The hidden states of a model, by functions of llama.cpp's staging header (src/llama-ext.h).

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.lib import api, function
from localspec.errors import IncompatibleError

_POINTER, _INT, _UINT, _BOOL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_bool
_SYMBOLS: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "set_layer_input": ("_Z30llama_set_embeddings_layer_inpP13llama_contextjb", None, (_POINTER, _UINT, _BOOL)),
    "layer_input": ("_Z30llama_get_embeddings_layer_inpP13llama_contextj", _POINTER, (_POINTER, _UINT)),
    "set_nextn": ("_Z26llama_set_embeddings_nextnP13llama_contextbb", None, (_POINTER, _BOOL, _BOOL)),
    "nextn_row": ("_Z30llama_get_embeddings_nextn_ithP13llama_contexti", _POINTER, (_POINTER, _INT)),
}


def _resolved() -> dict[str, Any]:
    functions = {}
    for name, (symbol, result, arguments) in _SYMBOLS.items():
        try:
            functions[name] = function(api._lib, symbol, result, *arguments)
        except AttributeError:
            continue
    return functions


_FUNCTIONS = _resolved()
_state_row = function(api._lib, "llama_get_embeddings_ith", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)


def missing() -> tuple[str, ...]:
    """Return the names of the functions that this build of llama.cpp lacks."""
    return tuple(name for name in _SYMBOLS if name not in _FUNCTIONS)


def require() -> None:
    """Raise IncompatibleError where this build of llama.cpp cannot run draft heads."""
    if missing():
        raise IncompatibleError(
            "this build of llama.cpp does not tell hidden states, so draft heads do not run",
            hint="a draft model, or none: -d none",
        )


def keep_layer_inputs(context: Any, layer: int) -> None:
    """Let passes of `context` keep the input of `layer`. llama.cpp aborts for models whose graph does not name it."""
    _FUNCTIONS["set_layer_input"](context, layer, True)


def layer_inputs(context: Any, layer: int, rows: int, width: int) -> NDArray[np.float32]:
    """Return the inputs [rows, width] of `layer` in the last pass, a view that is good until the next."""
    return _view(_FUNCTIONS["layer_input"](context, layer), rows, width)


def keep_nextn_states(context: Any, *, every_row: bool) -> None:
    """Let passes of `context` keep the nextn states, of every row or of those with logits."""
    _FUNCTIONS["set_nextn"](context, True, not every_row)


def nextn_states(context: Any, first: int, rows: int, width: int) -> NDArray[np.float32]:
    """Return the nextn states [rows, width] of the entries from `first` on, a view that is good until the next pass."""
    return _view(_FUNCTIONS["nextn_row"](context, first), rows, width)


def keep_normed_states(context: Any, is_on: bool) -> None:
    """Let passes keep the state of each row after the last norm. Every row of a pass then has logits."""
    api.llama_set_embeddings(context, is_on)


def normed_states(context: Any, rows: int, width: int) -> NDArray[np.float32]:
    """Return the states [rows, width] of the last pass after the last norm, a view that is good until the next."""
    return _view(_state_row(context, 0), rows, width)


def _view(address: int | None, rows: int, width: int) -> NDArray[np.float32]:
    assert address, "llama.cpp kept no hidden states of the last pass"
    array = (ctypes.c_float * (rows * width)).from_address(address)
    view: NDArray[np.float32] = np.ctypeslib.as_array(array).reshape(rows, width)
    return view
