"""Hashes that tell vocabularies apart, and files.

Vocabularies with equal hashes are interchangeable and need no comparison token by token. The reverse does not hold: a
draft may fit a target whose hash is another (see `pairs`), for instance with a few unused tokens more.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.models.gguf.header import Header, Strings, Value

if TYPE_CHECKING:
    from localspec.models.gguf.vocab import Vocab

_ARRAYS = ("tokens", "token_type", "merges", "scores")  # scores decide how SPM and UGM vocabularies cut a text


END_BYTES = 1 << 20  # bytes of a model file that identify it, from its start and from its end


def file_fingerprint(path: Path) -> str:
    """Return what tells a model file from others without reading all of it: its size, beginning and end, hashed."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(END_BYTES)
        file.seek(max(0, size - END_BYTES))
        return hashlib.sha256(str(size).encode() + start + file.read()).hexdigest()


def fingerprint(header: Header, vocab: Vocab) -> str:
    """Return the sha256, in hex, of the tokenizer: kind, tokens, their types, merges or scores, special ids, flags.

    The padding token is left out: makers of quantised files set it as they like, and nothing here depends on it.
    """
    digest = hashlib.sha256(b"localspec tokenizer 1\0")
    kind = (vocab.type, vocab.model, vocab.pre)
    special = (vocab.bos, vocab.eos, vocab.eot, vocab.add_bos, vocab.add_eos)
    digest.update(repr((kind, special)).encode("utf-8", "backslashreplace"))
    for name in _ARRAYS:
        value = header.metadata.get(f"tokenizer.ggml.{name}")
        content = b"" if value is None else _content(value)
        digest.update(f"\0{name} {len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _content(value: Value) -> bytes:
    """Return an array's elements as the file holds them, the same on every machine."""
    if isinstance(value, Strings):
        return value.data
    if isinstance(value, array):
        numbers = value[:]
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()
    return repr(value).encode("utf-8", "backslashreplace")
