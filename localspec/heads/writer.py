"""Writing a GGUF file (version 3, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) in one step."""

import contextlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from localspec.models.gguf.header import Strings
from localspec.models.gguf.types import ARRAY_TYPE, TENSOR_TYPES, VALUE_FORMATS, VALUE_TYPES
from localspec.models.gguf.values import KeyValue

_ALIGNMENT = 32
_VERSION = 3
_Q8_BLOCK = 32
_VALUES = {name: number for number, name in VALUE_TYPES.items()}
_TENSORS = {kind.name: number for number, kind in TENSOR_TYPES.items()}


@dataclass(frozen=True)
class Stored:
    """A tensor as the file holds it: `shape` in ggml's order (row length first), `data` its bytes."""

    name: str
    shape: tuple[int, ...]
    type: str
    data: NDArray[np.uint8]


def stored(name: str, array: NDArray[np.generic], kind: str) -> Stored:
    """Convert an array [rows, columns] or [n] to the type F32, F16, I64 or Q8_0."""
    shape = tuple(reversed(array.shape))
    if kind == "Q8_0":
        return Stored(name, shape, kind, _q8_0(array.astype(np.float32)))
    number = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}[kind]
    return Stored(name, shape, kind, np.ascontiguousarray(array, number).reshape(-1).view(np.uint8))


def write_gguf(path: Path, pairs: Sequence[KeyValue], tensors: Sequence[Stored]) -> None:
    """Write the file whole or not at all: beside its place first, then renamed. Raises OSError."""
    part = path.with_name(f"{path.name}.tmp")
    try:
        with part.open("wb") as file:
            _write(file, pairs, tensors)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _write(file: BinaryIO, pairs: Sequence[KeyValue], tensors: Sequence[Stored]) -> None:
    file.write(b"GGUF" + struct.pack("<IQQ", _VERSION, len(tensors), len(pairs)))
    for pair in pairs:
        file.write(_string(pair.key.encode()) + _value(pair))
    offset = 0
    for tensor in tensors:
        place = struct.pack(
            f"<I{len(tensor.shape)}QIQ", len(tensor.shape), *tensor.shape, _TENSORS[tensor.type], offset
        )
        file.write(_string(tensor.name.encode()) + place)
        offset += tensor.data.nbytes + -tensor.data.nbytes % _ALIGNMENT
    file.write(bytes(-file.tell() % _ALIGNMENT))
    for tensor in tensors:
        file.write(tensor.data.data)
        file.write(bytes(-tensor.data.nbytes % _ALIGNMENT))


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _value(pair: KeyValue) -> bytes:
    if not pair.type.startswith("arr["):
        kind = _VALUES[pair.type]
        if isinstance(pair.value, str):
            return struct.pack("<I", kind) + _string(pair.value.encode())
        return struct.pack(f"<I{VALUE_FORMATS[kind]}", kind, pair.value)
    kind = _VALUES[pair.type[4:-1]]
    assert not isinstance(pair.value, bool | int | float)
    if isinstance(pair.value, Strings):
        content = pair.value.data
    else:
        content = np.asarray(pair.value, f"<{VALUE_FORMATS[kind]}").tobytes()
    return struct.pack("<IIQ", ARRAY_TYPE, kind, len(pair.value)) + content


def _q8_0(array: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Quantise rows to blocks of 32 signed bytes behind a scale in float16, as `quantize_row_q8_0_ref` of ggml does."""
    blocks = array.reshape(-1, _Q8_BLOCK)
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    whole = np.trunc(blocks * inverse + np.copysign(np.float32(0.5), blocks)).astype(np.int8)
    packed = np.concatenate([scale.astype("<f2").view(np.uint8), whole.view(np.uint8)], 1)
    return packed.reshape(-1)
