"""A model's file without its weights: what another machine needs to read and write texts in the model's tokens."""

from __future__ import annotations

import struct
import time
from pathlib import Path

from localspec.models.gguf.cursor import HeaderCursor, Limits
from localspec.models.gguf.open import check_magic, open_regular
from localspec.models.gguf.values import read_pairs
from localspec.sanitize import shown

PARTS = "split."  # keys of a split model: they tell llama.cpp to look for the other files


def bare(path: Path) -> bytes:
    """Return a GGUF file with the metadata of another, and no tensors. Of a split model `path` is its first part.

    Raises as `read_header`.
    """
    with open_regular(path) as (fd, size):
        cursor = HeaderCursor(fd, shown(path), size, Limits(), time.thread_time)
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
