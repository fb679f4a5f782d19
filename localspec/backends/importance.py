"""The importance matrix of a model: how large the inputs of its weights are in its own passes (llama.cpp's imatrix).

A weight that meets large inputs moves the output further when it is rounded. So llama.cpp's quantiser weighs the error
of each column by the mean square of its input. llama.cpp tells every operation of a pass to a callback, and hands over
its inputs there. The fields of a tensor are not part of its interface. `is_known` compares them with what functions of
the interface say of the same tensor, and where they differ no matrix is gathered.
"""

from __future__ import annotations

import ctypes
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.lib import api, function, ggml
from localspec.backends.model import Model
from localspec.backends.options import LoadOptions
from localspec.settings.folders import replacing

Matrix = Mapping[str, NDArray[np.float32]]  # of each weight the mean squares of its inputs [in], of experts [n * in]

_P, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_read = function(ggml, "ggml_backend_tensor_get", None, _P, _P, _SIZE, _SIZE)
_name = function(ggml, "ggml_get_name", _P, _P)
_data = function(ggml, "ggml_get_data", _P, _P)
_operation = function(ggml, "ggml_op_desc", ctypes.c_char_p, _P)
_n_bytes = function(ggml, "ggml_nbytes", _SIZE, _P)
_n_elements = function(ggml, "ggml_nelements", ctypes.c_int64, _P)

DENSE, ROUTED = b"MUL_MAT", b"MUL_MAT_ID"
F32 = 0


class _Tensor(ctypes.Structure):
    """`ggml_tensor` of ggml.h."""

    _fields_ = (
        ("type", ctypes.c_int), ("buffer", _P), ("ne", ctypes.c_int64 * 4), ("nb", _SIZE * 4), ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32), ("src", _P * 10), ("view_src", _P),
        ("view_offs", _SIZE), ("data", _P), ("name", ctypes.c_char * 64),
    )  # fmt: skip

    @property
    def inputs(self) -> tuple[int, int, int]:
        """The addresses of the first three inputs, 0 for none."""
        first, second, third = self.src[:3]
        return first or 0, second or 0, third or 0


class Importance:
    """Sums of the squares of inputs, by weight. `is_known`: tensors are laid out so."""

    def __init__(self) -> None:
        self._is_on = False
        self.is_known = True
        self._sums: dict[str, NDArray[np.float64]] = {}  # [experts, in]
        self._counts: dict[str, NDArray[np.int64]] = {}  # rows of each expert
        self.callback: Any = api.ggml_backend_sched_eval_callback(self._told)  # llama.cpp goes on calling it

    @contextmanager
    def counting(self) -> Iterator[None]:
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def matrix(self) -> Matrix:
        """Return the mean squares. An expert that no row chose has those of all rows together."""
        by_tensor = {}
        for name, sums in self._sums.items():
            counts = self._counts[name][:, None]
            usual = sums.sum(0) / max(1, int(counts.sum()))
            means = np.where(counts > 0, sums / np.maximum(counts, 1), usual)
            by_tensor[name] = means.astype(np.float32).reshape(-1)
        return by_tensor

    def save(self, path: Path, done: int) -> None:
        """Keep the sums of `done` tokens, whole or not at all. Where they cannot be kept they are gathered again."""
        arrays: dict[str, Any] = {f"sums {name}": sums for name, sums in self._sums.items()}
        arrays |= {f"counts {name}": counts for name, counts in self._counts.items()}
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                np.savez(file, done=done, **arrays)

    def load(self, path: Path) -> int:
        """Take up what `save` kept; return of how many tokens, 0 of a file that is not there or damaged."""
        sums: dict[str, NDArray[np.float64]] = {}
        counts: dict[str, NDArray[np.int64]] = {}
        with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile), np.load(path) as file:
            for key in file.files:
                kind, _, name = key.partition(" ")
                if name:
                    (sums if kind == "sums" else counts)[name] = file[key]
            if sums.keys() == counts.keys():
                self._sums, self._counts = sums, counts
                return int(file["done"])
        return 0

    def _told(self, address: int, is_question: bool, _data: object) -> bool:
        """Take one operation of a pass; `is_question`: say whether its result is wanted."""
        if not (self._is_on and self.is_known) or _operation(address) not in (DENSE, ROUTED):
            return not is_question
        tensor = _Tensor.from_address(address)
        if is_question:
            self.is_known = _is_laid_out(address) and all(map(_is_laid_out, tensor.inputs[:2]))
            return self.is_known and _Tensor.from_address(tensor.inputs[0]).name.endswith(b".weight")
        self._take(tensor.inputs, is_routed=_operation(address) == ROUTED)
        return True

    def _take(self, inputs: tuple[int, int, int], *, is_routed: bool) -> None:
        weight, rows = (_Tensor.from_address(address) for address in inputs[:2])
        if rows.type != F32:
            return
        values = _floats(inputs[1], rows.ne[0])  # [rows, in]
        experts = weight.ne[2] if is_routed else 1
        name = weight.name.decode("utf-8", "replace")
        sums = self._sums.setdefault(name, np.zeros((experts, rows.ne[0])))
        counts = self._counts.setdefault(name, np.zeros(experts, np.int64))
        squares = np.square(values, dtype=np.float64)
        if not is_routed:
            sums[0] += squares.sum(0)
            counts[0] += len(values)
            return
        chosen = _chosen(inputs[2])  # [tokens, used]
        squares = squares.reshape(len(chosen), -1, rows.ne[0])  # one row for all experts of a token, or one for each
        for token, of_token in enumerate(chosen):
            for at, expert in enumerate(of_token):
                sums[expert] += squares[token, at % squares.shape[1]]
                counts[expert] += 1


class WatchedModel(Model):
    """A model whose passes tell `importance` the inputs of its weights."""

    def __init__(self, path: str | Path, options: LoadOptions, importance: Importance) -> None:
        self._importance = importance
        super().__init__(path, options)

    def prepare_context(self, params: Any) -> None:
        """Let llama.cpp call the callback."""
        super().prepare_context(params)
        params.cb_eval = self._importance.callback


def _is_laid_out(address: int) -> bool:
    """Whether the fields that are read of a tensor are what llama.cpp's functions say of it."""
    if not address:
        return False
    tensor = _Tensor.from_address(address)
    name = address + _Tensor.name.offset
    n = tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3]
    return bool(name == _name(address) and tensor.data == _data(address) and n == _n_elements(address))


def _floats(address: int, width: int) -> NDArray[np.float32]:
    """Return a copy [rows, width] of a tensor of floats without gaps."""
    values = np.empty(_n_elements(address), np.float32)
    _read(address, values.ctypes.data, 0, values.nbytes)
    return values.reshape(-1, width)


def _chosen(address: int) -> NDArray[np.int32]:
    """Return the experts [tokens, used] that a router chose. They are the first columns of a wider table."""
    tensor = _Tensor.from_address(address)
    whole = np.empty(_n_bytes(address), np.uint8)
    _read(address, whole.ctypes.data, 0, whole.nbytes)
    shape, strides = (tensor.ne[1], tensor.ne[0]), (tensor.nb[1], tensor.nb[0])
    return np.ndarray(shape, np.int32, whole.data, 0, strides).copy()
