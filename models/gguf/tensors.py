"""The tensor table of a GGUF header: shapes, types and places, checked against the file."""

import math
from dataclasses import dataclass

from localspec.models.gguf.cursor import HeaderCursor
from localspec.models.gguf.types import TENSOR_TYPES
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
        return math.prod(self.shape)


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
    """Check that the tensors lie one behind the other, aligned, and within the file. Raises IntegrityError naming the
    tensor, with expected and actual bytes where the file is too short."""
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
