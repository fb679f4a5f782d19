"""How fast each device multiplies by weights, measured with ggml's own kernels on matrices that no cache holds.

Decoding is this multiplication, a token or a few at a time. What is measured is therefore the rate at which weights of
a type are gone through for 1, 2, 4... rows: with one row that is the memory's bandwidth, if the processor keeps up with
unpacking, and with many rows its arithmetic.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from localspec.backends import amx
from localspec.backends.devices import Device, devices, handle_of
from localspec.backends.lib import api, function, ggml
from localspec.backends.limits import physical_cores

TYPES = ("F16", "Q8_0", "Q4_K", "Q4_0", "Q3_K", "Q2_K")
ROWS = (1, 2, 4, 8, 16)
WIDTH = 4096  # of the square matrices, as in models of 8 billion parameters
TOTAL = 256 << 20  # bytes of all of them together: more than caches hold
REPEATS = 5
FILL = 0x11  # written into every byte: memory that was never written to is one page of zeros, read from a cache

_P, _SIZE, _INT64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", _SIZE), ("mem_buffer", _P), ("no_alloc", ctypes.c_bool))


_init = function(ggml, "ggml_init", _P, _InitParams)
_free = function(ggml, "ggml_free", None, _P)
_tensor_overhead = function(ggml, "ggml_tensor_overhead", _SIZE)
_graph_overhead = function(ggml, "ggml_graph_overhead", _SIZE)
_new_2d = function(ggml, "ggml_new_tensor_2d", _P, _P, ctypes.c_int, _INT64, _INT64)
_n_bytes = function(ggml, "ggml_nbytes", _SIZE, _P)
_mul_mat = function(ggml, "ggml_mul_mat", _P, _P, _P, _P)
_new_graph = function(ggml, "ggml_new_graph", _P, _P)
_expand = function(ggml, "ggml_build_forward_expand", None, _P, _P)
_dev_init = function(ggml, "ggml_backend_dev_init", _P, _P, ctypes.c_char_p)
_dev_buffer_type = function(ggml, "ggml_backend_dev_buffer_type", _P, _P)
_supports_op = function(ggml, "ggml_backend_dev_supports_op", ctypes.c_bool, _P, _P)
_registry = function(ggml, "ggml_backend_dev_backend_reg", _P, _P)
_procedure = function(ggml, "ggml_backend_reg_get_proc_address", _P, _P, ctypes.c_char_p)
_alloc = function(ggml, "ggml_backend_alloc_ctx_tensors_from_buft", _P, _P, _P)
_clear = function(ggml, "ggml_backend_buffer_clear", None, _P, ctypes.c_uint8)
_buffer_free = function(ggml, "ggml_backend_buffer_free", None, _P)
_compute = function(ggml, "ggml_backend_graph_compute", ctypes.c_int, _P, _P)
_read = function(ggml, "ggml_backend_tensor_get", None, _P, _P, _SIZE, _SIZE)
_backend_free = function(ggml, "ggml_backend_free", None, _P)


@dataclass(frozen=True, slots=True)
class MeasuredBandwidth:
    """One figure: weights of `type` gone through at `bytes_per_s` in passes of `rows` rows, on a device."""

    device: str
    description: str
    type: str
    rows: int
    bytes_per_s: float


def measure(total: int = TOTAL, width: int = WIDTH) -> Iterator[MeasuredBandwidth]:
    """Yield a figure for every device, type and number of rows; a device that lacks a type or the memory is passed."""
    for device in devices():
        if device.is_gpu or device.name == "CPU":
            for kind in TYPES:
                yield from _measure_type(device, kind, total, width)


def _measure_type(device: Device, kind: str, total: int, width: int) -> Iterator[MeasuredBandwidth]:
    handle = handle_of(device.name)
    backend = _dev_init(handle, None)
    if not backend:
        return
    try:
        _set_threads(handle, backend)
        for buffer_type in (*_extra_buffer_types(handle), _dev_buffer_type(handle)):
            weights = _Weights(kind, buffer_type, total, width)
            try:
                measured = [bandwidth for rows in ROWS if (bandwidth := weights.measure(device, handle, backend, rows))]
            finally:
                weights.free()
            if measured:
                yield from measured
                return
    finally:
        _backend_free(backend)


class _Weights:
    """Square matrices of one type in one kind of buffer, as many as `total` bytes hold."""

    def __init__(self, kind: str, buffer_type: int, total: int, width: int) -> None:
        self.kind = kind
        self.width = width
        self._number = getattr(api, f"GGML_TYPE_{kind}")
        most = 512
        self._context = _init(_InitParams(most * _tensor_overhead(), None, True))
        first = _new_2d(self._context, self._number, width, width)
        self.n_bytes: int = _n_bytes(first)
        count = min(most, max(2, total // self.n_bytes))
        self.matrices = [first, *(_new_2d(self._context, self._number, width, width) for _ in range(count - 1))]
        self.buffer = _alloc(self._context, buffer_type)
        if self.buffer:
            _clear(self.buffer, FILL)

    def measure(self, device: Device, handle: int, backend: int, rows: int) -> MeasuredBandwidth | None:
        """Return the rate at `rows` rows, None where the device cannot multiply these or lacks the memory."""
        if not self.buffer:
            return None
        overhead = (2 + len(self.matrices)) * _tensor_overhead() + _graph_overhead()
        context = _init(_InitParams(overhead, None, True))
        buffer = None
        try:
            vectors = _new_2d(context, api.GGML_TYPE_F32, self.width, rows)
            graph = _new_graph(context)
            products = [_mul_mat(context, matrix, vectors) for matrix in self.matrices]
            for product in products:
                _expand(graph, product)
            buffer = _alloc(context, _dev_buffer_type(handle))
            if not buffer or not _supports_op(handle, products[0]):
                return None
            _clear(buffer, FILL)
            seconds = _time(backend, graph, products[-1])
            if seconds is None:
                return None
            rate = len(self.matrices) * self.n_bytes / seconds
            return MeasuredBandwidth(device.name, device.description, self.kind, rows, rate)
        finally:
            if buffer:
                _buffer_free(buffer)
            _free(context)

    def free(self) -> None:
        if self.buffer:
            _buffer_free(self.buffer)
        _free(self._context)


def _time(backend: int, graph: int, last: int) -> float | None:
    """Return the median seconds of a pass after one that warms up; None where it fails.

    A pass is over when a number of its `last` product can be read: an RPC server is not waited for otherwise.
    """
    seconds, number = [], ctypes.c_float()
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        if _compute(backend, graph) != 0:
            return None
        _read(last, ctypes.byref(number), 0, ctypes.sizeof(number))
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])


def _extra_buffer_types(handle: int) -> list[int]:
    """Return the buffers in which the CPU keeps weights rearranged for its vector units, which llama.cpp prefers.

    None where models are loaded without them too, because their kernels crash here.
    """
    if amx.is_amx_broken():
        return []
    address = _procedure(_registry(handle), b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return []
    listed: Any = ctypes.CFUNCTYPE(ctypes.POINTER(_P), _P)(address)(handle)
    types: list[int] = []
    while listed and listed[len(types)]:
        types.append(listed[len(types)])
    return types


def _set_threads(handle: int, backend: int) -> None:
    address = _procedure(_registry(handle), b"ggml_backend_set_n_threads")
    if address:
        ctypes.CFUNCTYPE(None, _P, ctypes.c_int)(address)(backend, physical_cores())
