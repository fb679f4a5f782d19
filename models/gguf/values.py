"""The key-value section of a GGUF header."""

from __future__ import annotations

import struct
import sys
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from localspec.models.gguf.cursor import HeaderCursor
from localspec.models.gguf.types import ARRAY_TYPE, STRING_TYPE, VALUE_FORMATS, VALUE_TYPES
from localspec.sanitize import shown

_MAX_KEY = 65535  # the format's own limit
_MIN_PAIR = 8 + 1 + 4 + 1  # length, a key of one byte, a type, a value of one byte
_LENGTH = struct.Struct("<Q")
_TICK_EVERY = 8192
_KEPT = 16  # arrays of strings: models of a family have the same vocabulary, of which reading takes the longest

_read_before: deque[Strings] = deque(maxlen=_KEPT)


class Strings(Sequence[bytes]):
    """An array of strings as it lies in the file; a string becomes a `bytes` object when it is asked for."""

    def __init__(self, data: bytes, starts: array[int]) -> None:
        # starts[i] is where string i begins; the eight bytes before it hold its length, so one more entry ends it
        self._data = data
        self._starts = starts

    @property
    def data(self) -> bytes:
        """Return the strings as they lie in the file: each after its length in eight bytes."""
        return self._data

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._data[self._starts[index] : self._starts[index + 1] - 8]

    def __iter__(self) -> Iterator[bytes]:
        data, starts = self._data, self._starts
        return (data[starts[i] : starts[i + 1] - 8] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strings) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return f"Strings({len(self)})"

    def extended(self, texts: Sequence[bytes]) -> Strings:
        data, starts = bytearray(self._data), array("I", self._starts)
        for text in texts:
            data += _LENGTH.pack(len(text)) + text
            starts.append(len(data) + 8)
        return Strings(bytes(data), starts)


Value = bool | int | float | str | Strings | Sequence[int] | Sequence[float]


@dataclass(frozen=True)
class KeyValue:
    """One key with its value; `type` is llama.cpp's name of the value's type: u32, str, arr[f32] ..."""

    key: str
    type: str
    value: Value


def read_pairs(cursor: HeaderCursor, count: int) -> dict[str, KeyValue]:
    """Read `count` key-value pairs; raise IntegrityError for whatever llama.cpp would not survive or refuse."""
    cursor.claim_entries(count, _MIN_PAIR, "metadata entries")
    pairs: dict[str, KeyValue] = {}
    for index in range(count):
        cursor.tick()
        key = cursor.string(f"the key of metadata entry {index}", _MAX_KEY)
        if not key:
            raise cursor.bad(f"metadata entry {index} has an empty key")
        if b"\0" in key:  # llama.cpp looks keys up by the C string
            raise cursor.bad(f"the metadata key '{shown(key)}' holds a zero byte")
        pair = _read_pair(cursor, key.decode("utf-8", "backslashreplace"))
        if pair.key in pairs:
            raise cursor.bad(f"the metadata key '{shown(pair.key)}' occurs twice")
        pairs[pair.key] = pair
    return pairs


def _read_pair(cursor: HeaderCursor, key: str) -> KeyValue:
    what = f"the value of '{shown(key)}'"
    kind = cursor.u32(what)
    if kind not in VALUE_TYPES:
        raise cursor.bad(f"{what} has the unknown type {kind}")
    if kind != ARRAY_TYPE:
        return KeyValue(key, VALUE_TYPES[kind], _read_scalar(cursor, kind, what))
    kind = cursor.u32(what)
    if kind == ARRAY_TYPE:
        raise cursor.bad(f"{what} is an array of arrays, which llama.cpp does not read")
    if kind not in VALUE_TYPES:
        raise cursor.bad(f"{what} is an array of the unknown type {kind}")
    count = cursor.u64(what)
    read = _read_strings if kind == STRING_TYPE else _read_numbers
    return KeyValue(key, f"arr[{VALUE_TYPES[kind]}]", read(cursor, kind, count, what))


def _read_scalar(cursor: HeaderCursor, kind: int, what: str) -> Value:
    if kind == STRING_TYPE:
        return cursor.string(what, cursor.most).decode("utf-8", "replace")
    code = "<" + VALUE_FORMATS[kind]
    value: int | float = struct.unpack(code, cursor.take(struct.calcsize(code), what))[0]
    return bool(value) if VALUE_TYPES[kind] == "bool" else value


def _read_numbers(cursor: HeaderCursor, kind: int, count: int, what: str) -> Value:
    numbers = array(VALUE_FORMATS[kind])
    cursor.claim(count, numbers.itemsize, f"elements for {what}")
    numbers.frombytes(cursor.take(count * numbers.itemsize, what))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _read_strings(cursor: HeaderCursor, _kind: int, count: int, what: str) -> Strings:
    cursor.claim(count, 8, f"elements for {what}")
    for known in tuple(_read_before):
        if len(known) == count and cursor.goes_on_with(known.data, what):
            return known
    begin = cursor.pos
    starts = array("I")  # 32 bits hold every offset below the limit on metadata
    unpack, data, pos = _LENGTH.unpack_from, cursor.data, cursor.pos
    for index in range(count):
        if not index % _TICK_EVERY:
            cursor.tick()
        # `need` only where the buffer ends: this loop runs for every token of the vocabulary
        if pos + 8 > len(data):
            cursor.seek(pos)
            cursor.need(8, what)
        length = unpack(data, pos)[0]
        pos += 8
        if pos + length > len(data):
            cursor.seek(pos)
            cursor.need(length, what)
        starts.append(pos - begin)
        pos += length
    cursor.seek(pos)
    starts.append(pos - begin + 8)
    _read_before.append(strings := Strings(bytes(data[begin:pos]), starts))
    return strings
