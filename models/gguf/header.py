"""Reading the header of a GGUF file, bounded in bytes and time, before llama.cpp sees the file.

llama.cpp's own reader ends the process on some malformed files, so whatever a header claims is checked here first:
`read_header` returns a `Header` that is consistent with the file's real size, or raises a `LocalspecError` that says
what is wrong. Only the standard library is used. `info.model_info` asks further whether it is a language model.

Also here: the tensor table of a GGUF header. Shapes, types and places are checked against the file.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType

from localspec.errors import IntegrityError
from localspec.models.gguf.cursor import HeaderCursor, Limits, check_magic, open_regular
from localspec.models.gguf.types import TENSOR_TYPES
from localspec.models.gguf.values import KeyValue, Strings, Value, read_pairs
from localspec.models.ollama import spoken
from localspec.sanitize import shown

_MAX_NAME = 63  # GGML_MAX_NAME less the closing zero
_MAX_DIMS = 4
_MIN_TENSOR = 8 + 4 + 4 + 8  # name length, dimensions, type, offset
_MAX_BYTES = 1 << 63


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: `shape` as ggml orders it (row length first), `offset` and `n_bytes` within the data section."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int

    @property
    def n_elements(self) -> int:
        """Return the number of weights."""
        n = 1
        for dim in self.shape:
            n *= dim
        return n


def read_tensors(cursor: HeaderCursor, count: int) -> tuple[TensorInfo, ...]:
    """Read `count` tensor entries; raise IntegrityError for a malformed or a duplicate one."""
    cursor.claim_entries(count, _MIN_TENSOR, "tensors")
    tensors: dict[str, TensorInfo] = {}
    for index in range(count):
        cursor.tick()
        name_bytes = cursor.string(f"the name of tensor {index}", _MAX_NAME)
        name = shown(name_bytes)
        if b"\0" in name_bytes:  # llama.cpp looks names up by the C string
            raise cursor.bad(f"the tensor name '{name}' holds a zero byte")
        if name in tensors:
            raise cursor.bad(f"the tensor '{name}' occurs twice")
        tensors[name] = _read_tensor(cursor, name)
    return tuple(tensors.values())


def _read_tensor(cursor: HeaderCursor, name: str) -> TensorInfo:
    what = f"the tensor '{name}'"
    n_dims = cursor.u32(what)
    if n_dims > _MAX_DIMS:
        raise cursor.bad(f"{what} claims {n_dims} dimensions (at most {_MAX_DIMS})")
    shape = tuple(cursor.u64(what) for _ in range(n_dims))
    number = cursor.u32(what)
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        raise cursor.bad(
            f"{what} has the type {number}, which this llama.cpp does not know",
            hint="use a file made with a current llama.cpp, for instance in Q8_0 or Q4_K_M",
        )
    n_bytes = kind.size
    for dim in shape:
        n_bytes *= dim
        # Both the element count and the byte count are held in 64 bits by llama.cpp.
        if dim < 1 or n_bytes >= _MAX_BYTES:
            raise cursor.bad(f"{what} has the impossible shape {shape}")
    row = shape[0] if shape else 1
    if row % kind.block:
        raise cursor.bad(f"{what} has rows of {row} elements, not a multiple of {kind.name}'s block of {kind.block}")
    return TensorInfo(name, shape, kind.name, cursor.u64(what), n_bytes // kind.block)


def check_places(cursor: HeaderCursor, tensors: tuple[TensorInfo, ...], data_offset: int, alignment: int) -> None:
    """Check that the tensors lie one behind the other, aligned, and within the file.

    Raises IntegrityError naming the tensor, with expected and actual bytes where the file is too short.
    """
    end = 0
    for tensor in tensors:
        cursor.tick()
        if tensor.offset % alignment:
            raise cursor.bad(f"the tensor '{tensor.name}' lies at offset {tensor.offset}, not aligned to {alignment}")
        if tensor.offset < end:
            raise cursor.bad(f"the tensor '{tensor.name}' at offset {tensor.offset} overlaps the one before it")
        if tensor.offset + tensor.n_bytes > _MAX_BYTES:
            raise cursor.bad(f"the tensor '{tensor.name}' lies at the impossible offset {tensor.offset}")
        if data_offset + tensor.offset > cursor.size and tensor.offset > end:
            raise cursor.bad(f"the tensor '{tensor.name}' lies at offset {tensor.offset}, past the end of the file")
        # llama.cpp wants no gaps either, and refuses the file with a line about the expected offset.
        if tensor.offset != end:
            raise cursor.bad(f"the tensor '{tensor.name}' lies at offset {tensor.offset}, expected {end}")
        end = -(-(tensor.offset + tensor.n_bytes) // alignment) * alignment
    expected = data_offset + (tensors[-1].offset + tensors[-1].n_bytes if tensors else 0)
    if tensors and expected > cursor.size:
        raise cursor.truncated(expected, "")


__all__ = ["Header", "Limits", "Strings", "TensorInfo", "Value", "read_header", "unusable"]

_DEFAULT_ALIGNMENT = 32
_ALIGNMENTS = tuple(1 << n for n in range(3, 21))  # more than a megabyte would be padding for its own sake


@dataclass(frozen=True)
class Header:
    """The checked header of one file.

    `size` is the file's size in bytes, `data_offset` where the tensor data starts. `types` holds llama.cpp's name of
    each value's type ("u32", "arr[str]"), which it is strict about. Of a split model `parts` are all its files in their
    order, `tensors` and `size` those of all of them: see `shards.read_model`.
    """

    path: Path
    size: int
    version: int
    metadata: Mapping[str, Value]
    types: Mapping[str, str]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    parts: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the model's files, one for most."""
        return self.parts or (self.path,)

    @property
    def name(self) -> str:
        """Return what to call the file in messages."""
        return spoken(self.path)


def read_architecture(path: str | PathLike[str]) -> str:
    """Return the architecture of a file without reading its header, if it stands first, as in nearly all files; or "".

    Raises as `read_header`.
    """
    with open_regular(Path(path)) as (fd, size):
        cursor = HeaderCursor(fd, spoken(path), size, Limits(), time.thread_time)
        check_magic(cursor)
        cursor.u64("the number of tensors")
        n_pairs = cursor.u64("the number of metadata entries")
        first = read_pairs(cursor, min(1, n_pairs)).get("general.architecture")
    return first.value if first is not None and isinstance(first.value, str) else ""


def read_header(
    path: str | PathLike[str], *, limits: Limits | None = None, clock: Callable[[], float] = time.thread_time
) -> Header:
    """Read and check the header of the GGUF file at `path`.

    Raises NotFoundError (missing, a directory, a pipe, not readable) or IntegrityError (not GGUF, malformed, truncated,
    beyond the limits). Never blocks, and never reads more than `limits.metadata` bytes.
    """
    path = Path(path)
    with open_regular(path) as (fd, size):
        cursor = HeaderCursor(fd, spoken(path), size, limits or Limits(), clock)
        version = check_magic(cursor)
        n_tensors = cursor.u64("the number of tensors")
        n_pairs = cursor.u64("the number of metadata entries")
        pairs = read_pairs(cursor, n_pairs)
        alignment = _alignment(cursor, pairs.get("general.alignment"))
        tensors = read_tensors(cursor, n_tensors)
        data_offset = -(-cursor.pos // alignment) * alignment
        check_places(cursor, tensors, data_offset, alignment)
    return Header(
        path=path,
        size=size,
        version=version,
        metadata=MappingProxyType({key: pair.value for key, pair in pairs.items()}),
        types=MappingProxyType({key: pair.type for key, pair in pairs.items()}),
        tensors=tensors,
        data_offset=data_offset,
    )


def unusable(header: Header, why: str) -> IntegrityError:
    """Return the error of a file that is sound GGUF, and no model that could be run."""
    return IntegrityError(
        f"{header.name} is not a usable model: {why}", hint="download the file again, or another version of it"
    )


def _alignment(cursor: HeaderCursor, pair: KeyValue | None) -> int:
    if pair is None:
        return _DEFAULT_ALIGNMENT
    if pair.type != "u32":
        raise cursor.bad(f"general.alignment has the type {pair.type} instead of u32")
    if pair.value not in _ALIGNMENTS:
        raise cursor.bad(f"general.alignment is {pair.value}, not a power of two from 8 to {_ALIGNMENTS[-1]}")
    assert isinstance(pair.value, int)
    return pair.value


PARTS = "split."  # keys of a split model: they tell llama.cpp to look for the other files


def bare(path: Path) -> bytes:
    """Return a GGUF file with the metadata of another, and no tensors. Of a split model `path` is its first part.

    Raises as `read_header`.
    """
    with open_regular(path) as (fd, size):
        cursor = HeaderCursor(fd, spoken(path), size, Limits(), time.thread_time)
        check_magic(cursor)
        start = bytes(cursor.data[: cursor.pos])
        cursor.u64("the number of tensors")
        n_pairs = cursor.u64("the number of metadata entries")
        kept = []
        for _ in range(n_pairs):
            begins = cursor.pos
            (key,) = read_pairs(cursor, 1)
            if not key.startswith(PARTS):
                kept.append(bytes(cursor.data[begins : cursor.pos]))
    return start + struct.pack("<QQ", 0, len(kept)) + b"".join(kept)
