"""The threads of a build of llama.cpp without OpenMP, such as zig's.

Without a pool ggml starts its threads anew for each graph, and they inherit the mask of the thread that decodes: bound
to one processor, it shares that with all of them. So contexts have a pool, whose threads have masks of their own.

Target and draft share a pool: a thread that waits awake for one would else take the processor from the other. Passes of
one pool must not overlap, so each thread that opens contexts has a pool of its own.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from typing import Any

from localspec.backends.lib import api, function, ggml
from localspec.backends.limits import bound_processors, run_on
from localspec.backends.options import MAX_THREADS

POLL = 50  # llama.cpp's default: how long a thread waits awake for the next graph, of 100


class _Params(ctypes.Structure):
    """`ggml_threadpool_params`. The masks that are `strict` go to one thread each, the last to the one that decodes."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * MAX_THREADS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


_attach = function(api._lib, "llama_attach_threadpool", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_new = function(ggml, "ggml_threadpool_new", ctypes.c_void_p, ctypes.c_void_p)
_defaults = function(ggml, "ggml_threadpool_params_default", _Params, ctypes.c_int)


@cache
def has_openmp() -> bool:
    """Whether llama.cpp was built with OpenMP, which keeps and binds threads by itself."""
    return b"OPENMP = 1" in api.llama_print_system_info()


def attach_pool(context: Any, n_threads: int) -> None:
    """Let a context's passes of up to `n_threads` threads run on this thread's pool, where llama.cpp needs one."""
    if has_openmp() or n_threads == 1:
        return
    processors = frozenset(cpu for cpu in bound_processors(n_threads) if cpu < MAX_THREADS)
    _attach(context, _pool(threading.get_ident(), n_threads, processors), None)


@cache
def _pool(_owner: int, n_threads: int, processors: frozenset[int]) -> int:
    """Return the address of a pool that lives as long as the process; its threads run on one of the `processors` each.

    With no processors named, they run anywhere.
    """
    params = _defaults(n_threads)
    params.poll = POLL
    params.strict_cpu = bool(processors)
    for cpu in processors:
        params.cpumask[cpu] = True
    before = os.sched_getaffinity(0) if processors else set()
    address = _new(ctypes.byref(params))
    run_on(before)  # ggml binds the calling thread too, which is to be free until the models are loaded
    return int(address)
