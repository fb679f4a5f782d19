"""Reading the header of a GGUF file, bounded in bytes and time, before llama.cpp sees the file.

llama.cpp's own reader ends the process on some malformed files, so whatever a header claims is checked here first:
`read_header` returns a `Header` that is consistent with the file's real size, or raises a `LocalspecError` that says
what is wrong. Only the standard library is used. `info.model_info` asks further whether it is a language model.
"""

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from localspec.errors import IntegrityError
from localspec.models.gguf.cursor import HeaderCursor, Limits
from localspec.models.gguf.not_gguf import check_magic
from localspec.models.gguf.opening import open_regular
from localspec.models.gguf.tensors import TensorInfo, check_places, read_tensors
from localspec.models.gguf.values import KeyValue, Strings, Value, read_pairs
from localspec.models.ollama import spoken

__all__ = ["Header", "Limits", "Strings", "TensorInfo", "Value", "read_header", "unusable"]

_DEFAULT_ALIGNMENT = 32
_ALIGNMENTS = tuple(1 << n for n in range(3, 21))  # more than a megabyte would be padding for its own sake


@dataclass(frozen=True)
class Header:
    """The checked header of one file. `size` is the file's size in bytes, `data_offset` where the tensor data starts.
    `types` holds llama.cpp's name of each value's type ("u32", "arr[str]"), which it is strict about. Of a split model
    `parts` are all its files in their order, `tensors` and `size` those of all of them: see `shards.read_model`."""

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
        return self.parts or (self.path,)

    @property
    def name(self) -> str:
        return spoken(self.path)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tensor.name for tensor in self.tensors)

    @property
    def types_bytes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for tensor in self.tensors:
            sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.n_bytes
        return sizes

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    def text(self, key: str) -> str:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        value = self.metadata.get(key)
        return value if isinstance(value, int) else 0

    def required(self, key: str, kind: str, default: Value | None = None) -> Any:
        """Return a value of llama.cpp's type `kind`. Raises IntegrityError for another type, or for a missing key that
        has no default."""
        value = self.metadata.get(key, default)
        if value is None:
            raise unusable(self, f"the metadata key {key} is missing")
        if self.types.get(key, kind) != kind:
            raise unusable(self, f"the metadata key {key} has the type {self.types[key]} instead of {kind}")
        return value


def read_architecture(path: str | PathLike[str]) -> str:
    """Return the architecture of a file without reading its header, if it stands first, as in nearly all files; or "".
    Raises as `read_header`."""
    with _begun(path) as (cursor, _, _, n_pairs):
        first = read_pairs(cursor, min(1, n_pairs)).get("general.architecture")
    return first.value if first is not None and isinstance(first.value, str) else ""


@contextmanager
def _begun(
    path: str | PathLike[str], limits: Limits | None = None, clock: Callable[[], float] = time.thread_time
) -> Iterator[tuple[HeaderCursor, int, int, int]]:
    """Yield a cursor behind a file's first numbers, and these: its version, and how many tensors and entries it has."""
    with open_regular(Path(path)) as (fd, size):
        cursor = HeaderCursor(fd, spoken(path), size, limits or Limits(), clock)
        version = check_magic(cursor)
        n_tensors = cursor.u64("the number of tensors")
        yield cursor, version, n_tensors, cursor.u64("the number of metadata entries")


def read_header(
    path: str | PathLike[str], *, limits: Limits | None = None, clock: Callable[[], float] = time.thread_time
) -> Header:
    """Read and check the header of the GGUF file at `path`. Raises NotFoundError (missing, a directory, a pipe, not
    readable) or IntegrityError (not GGUF, malformed, truncated, beyond the limits). Never blocks, and never reads more
    than `limits.metadata` bytes."""
    with _begun(path, limits, clock) as (cursor, version, n_tensors, n_pairs):
        size = cursor.size
        pairs = read_pairs(cursor, n_pairs)
        alignment = _alignment(cursor, pairs.get("general.alignment"))
        tensors = read_tensors(cursor, n_tensors)
        data_offset = -(-cursor.pos // alignment) * alignment
        check_places(cursor, tensors, data_offset, alignment)
    return Header(
        path=Path(path),
        size=size,
        version=version,
        metadata=MappingProxyType({key: pair.value for key, pair in pairs.items()}),
        types=MappingProxyType({key: pair.type for key, pair in pairs.items()}),
        tensors=tensors,
        data_offset=data_offset,
    )


def unusable(header: Header, why: str) -> IntegrityError:
    """Return the error of a file that is sound GGUF, and no model that could be run."""
    message = f"{header.name} is not a usable model: {why}"
    return IntegrityError(message, hint="download the file again, or another version of it")


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
    Raises as `read_header`."""
    with _begun(path) as (cursor, _, _, n_pairs):
        start, entries = bytes(cursor.data[:8]), []
        for _ in range(n_pairs):
            begins = cursor.pos
            (key,) = read_pairs(cursor, 1)
            if not key.startswith(PARTS):
                entries.append(bytes(cursor.data[begins : cursor.pos]))
    return start + struct.pack("<QQ", 0, len(entries)) + b"".join(entries)
