"""Whether the binding lays structures out as the library does: LLAMA_CPP_LIB_PATH may name another build.

C does not notice: settings land in other fields, and the process crashes or computes something else. So the defaults
that llama.cpp returns are compared with known ones, and their size with that of the structure, before anything is used.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

SPARE = 512  # bytes behind a structure, for a longer one
UNTOUCHED = 0xA5
HAS_HIDDEN_POINTER = platform.machine().lower() in ("x86_64", "amd64")  # the first argument is where a structure goes
# Defaults that differ from what lies beside them, from the first fields to the last.
CONTEXT = {
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "rope_scaling_type": -1, "pooling_type": -1,
    "attention_type": -1, "flash_attn_type": -1, "yarn_ext_factor": -1.0, "yarn_orig_ctx": 0, "defrag_thold": -1.0,
    "type_k": 1, "type_v": 1, "abort_callback_data": None, "offload_kqv": True, "op_offload": True, "n_samplers": 0,
    "ctx_other": None,
}  # fmt: skip
MODEL = {
    "devices": None, "n_gpu_layers": -1, "split_mode": 1, "main_gpu": 0, "progress_callback_user_data": None,
    "vocab_only": False, "check_tensors": False, "use_extra_bufts": True, "no_alloc": False,
}  # fmt: skip


def misfit(api: Any) -> str:
    """Return the name of a structure that the library lays out otherwise than the binding `api`, "" if none."""
    for kind, known in ((api.llama_context_params, CONTEXT), (api.llama_model_params, MODEL)):
        name = kind.__name__
        if not _fits(api._lib[name.replace("params", "default_params")], kind, known):
            return str(name)
    return ""


def _fits(defaults: Any, kind: type[ctypes.Structure], known: dict[str, Any]) -> bool:
    """Whether `defaults()` returns a structure as long as `kind`, in which the `known` fields are what they should."""
    room = (ctypes.c_ubyte * (ctypes.sizeof(kind) + SPARE))(*[UNTOUCHED] * (ctypes.sizeof(kind) + SPARE))
    if HAS_HIDDEN_POINTER:
        defaults.restype, defaults.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        defaults(room)
        written = max((at + 1 for at, byte in enumerate(room) if byte != UNTOUCHED), default=0)
        name = kind._fields_[-1][0]
        last = getattr(kind, name)
        if not last.offset + last.size <= written <= ctypes.sizeof(kind):
            return False
    else:
        padded = type("Padded", (ctypes.Structure,), {"_fields_": [("value", kind), ("spare", ctypes.c_ubyte * SPARE)]})
        defaults.restype, defaults.argtypes = padded, ()
        ctypes.memmove(room, ctypes.byref(defaults()), ctypes.sizeof(kind))
    structure = kind.from_buffer(room)
    return all(getattr(structure, name) == value for name, value in known.items())
