"""GGUF files made by hand, field by field, so that a test can put a lie into any of them; and looking at them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.types import TENSOR_TYPES, VALUE_TYPES

NUMBERS = {name: number for number, name in VALUE_TYPES.items()}
_FORMATS = {
    "u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i",
    "u64": "Q", "i64": "q", "f32": "f", "f64": "d", "bool": "?",
}  # fmt: skip

Fields = list[bytes]


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def string(text: str | bytes) -> Fields:
    raw = text.encode() if isinstance(text, str) else text
    return [u64(len(raw)), raw]


def raw(key: str, *fields: bytes) -> Fields:
    """Return a metadata entry with hand-made fields after its key."""
    return [*string(key), *fields]


def value(kind: str, content: object) -> Fields:
    if kind == "str":
        assert isinstance(content, str | bytes)
        return string(content)
    return [struct.pack("<" + _FORMATS[kind], content)]


def pair(key: str | bytes, kind: str, content: object) -> Fields:
    """Return the fields of one metadata entry; `kind` is u32, str ... or arr[u32] ..."""
    if not kind.startswith("arr["):
        return [*string(key), u32(NUMBERS[kind]), *value(kind, content)]
    of = kind[4:-1]
    assert isinstance(content, Sequence)
    items = [part for item in content for part in value(of, item)]
    return [*string(key), u32(NUMBERS["arr"]), u32(NUMBERS[of]), u64(len(content)), b"".join(items)]


def tensor(name: str, shape: Sequence[int], kind: int = 0, offset: int = 0) -> Fields:
    return [*string(name), u32(len(shape)), *(u64(dim) for dim in shape), u32(kind), u64(offset)]


def n_bytes(shape: Sequence[int], kind: int) -> int:
    size = TENSOR_TYPES[kind].size
    for dim in shape:
        size *= dim
    return size // TENSOR_TYPES[kind].block


@dataclass
class File:
    """A GGUF file in parts. Counts that are None are the true ones."""

    pairs: dict[str, Fields] = field(default_factory=dict)
    tensors: list[Fields] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    n_pairs: int | None = None
    n_tensors: int | None = None
    alignment: int = 32

    def fields(self) -> Fields:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_pairs = len(self.pairs) if self.n_pairs is None else self.n_pairs
        head = [self.magic, u32(self.version), u64(n_tensors), u64(n_pairs)]
        head += [part for entry in (*self.pairs.values(), *self.tensors) for part in entry]
        padding = -sum(map(len, head)) % self.alignment
        return [*head, b"\0" * padding, self.data]

    def build(self) -> bytes:
        return b"".join(self.fields())

    def boundaries(self) -> list[int]:
        return list(accumulate(map(len, self.fields())))

    def set(self, key: str, kind: str, content: object) -> File:
        self.pairs[key] = pair(key, kind, content)
        return self

    def without(self, key: str) -> File:
        del self.pairs[key]
        return self

    def with_tensors(self, *tensors: Fields, data: bytes | None = None) -> File:
        self.tensors = list(tensors)
        if data is not None:
            self.data = data
        return self

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path


def words(n: int) -> list[str]:
    return [f"w{i}" for i in range(n)]


def model(tokens: Iterable[str | bytes] | None = None, arch: str = "llama", width: int = 32) -> File:
    """Return a small valid model: three tensors of two types, a BPE tokenizer."""
    vocab = words(16) if tokens is None else list(tokens)
    file = File()
    file.set("general.architecture", "str", arch)
    file.set("general.name", "str", "tiny")
    file.set("general.file_type", "u32", 7)
    file.set(f"{arch}.block_count", "u32", 2)
    file.set(f"{arch}.context_length", "u32", 128)
    file.set(f"{arch}.embedding_length", "u32", width)
    file.set(f"{arch}.attention.head_count", "u32", 4)
    file.set("tokenizer.ggml.model", "str", "gpt2")
    file.set("tokenizer.ggml.pre", "str", "gpt-2")
    file.set("tokenizer.ggml.tokens", "arr[str]", vocab)
    file.set("tokenizer.ggml.token_type", "arr[i32]", [1] * len(vocab))
    file.set("tokenizer.ggml.merges", "arr[str]", ["a b"])
    file.set("tokenizer.ggml.bos_token_id", "u32", 0)
    file.set("tokenizer.ggml.eos_token_id", "u32", 1)
    file.set("tokenizer.ggml.add_bos_token", "bool", True)
    shapes = [("token_embd.weight", (width, 2), 8), ("output_norm.weight", (width,), 0), ("scale", (8,), 0)]
    offset = 0
    for name, shape, kind in shapes:
        file.tensors.append(tensor(name, shape, kind, offset))
        size = n_bytes(shape, kind)
        # The last tensor is not padded, so the file's last byte is a weight.
        file.data += bytes(size if name == "scale" else -(-size // 32) * 32)
        offset = len(file.data)
    return file


def inspect(path: Path) -> ModelInfo:
    return model_info(read_header(path))


def assert_fails(path: Path, error: type[LocalspecError], text: str) -> LocalspecError:
    """Check that looking at `path` raises exactly `error`, in one line with a hint, naming the file and `text`."""
    with pytest.raises(LocalspecError) as caught:
        inspect(path)
    raised = caught.value
    assert type(raised) is error, raised.message
    assert text in raised.message
    assert raised.hint
    assert "\n" not in raised.message + raised.hint
    return raised
