"""The one untyped surface: llama.cpp's C functions as ctypes declares them.

Only the low-level API is used: the high-level `Llama` copies logits and keeps buffers that a draft would corrupt.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp
from llama_cpp import _ggml
from llama_cpp import llama_cpp as _api

api: Any = _api
# libllama's own ggml, with ggml-base: a wheel holds libggml twice (.so, .so.0), the binding opens the one that libllama
# is not linked to, and that one has a list of devices of its own. Windows looks symbols up in one library only.
ggml: Any = api._lib if hasattr(api._lib, "ggml_backend_dev_count") else _ggml.libggml
BINDING_VERSION: str = llama_cpp.__version__

api.llama_backend_init()  # once per process, before anything else is called


def function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Return a C function with a prototype of our own, leaving the one that llama-cpp-python declared alone."""
    found = library[name]  # indexing makes a new function object, attribute access shares one
    found.restype, found.argtypes = result, arguments
    return found


# As an address, which numpy turns into a view faster than a ctypes pointer object.
logits_address = function(api._lib, "llama_get_logits_ith", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)

BF16 = 30  # GGML_TYPE_BF16, which llama-cpp-python does not name
KV_TYPES: dict[str, int] = {
    name: getattr(api, f"GGML_TYPE_{name.upper()}")
    for name in ("f32", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
}
