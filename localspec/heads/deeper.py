"""A model of the llama family with more layers that change nothing: its text at the price of a larger one.

The added layers are copies of the first whose last matrices are zeros, so they add zero to the residual stream. Text
and acceptance stay those of the small model. A pass takes as long as one of a model with so many layers.
"""

from pathlib import Path

import numpy as np

from localspec.heads.target_file import read_tensor
from localspec.heads.writer import Stored, write_gguf
from localspec.models.gguf.header import read_header
from localspec.models.gguf.values import KeyValue

_FIRST = "blk.0."
_LAST = ("attn_output.weight", "ffn_down.weight")  # what a layer adds comes out of these


def write_deeper(path: Path, small: Path, more: int) -> None:
    """Write the llama-architecture model `small` with `more` layers to `path`. Raises OSError where it has no room."""
    header = read_header(small)
    own = [tensor for info in header.tensors if (tensor := read_tensor(header, info.name)) is not None]
    n = header.metadata["llama.block_count"]
    assert isinstance(n, int)
    first = [(each.name.removeprefix(_FIRST), each) for each in own if each.name.startswith(_FIRST)]
    added = [
        Stored(f"blk.{layer}.{part}", each.shape, each.type, np.zeros_like(each.data) if part in _LAST else each.data)
        for layer in range(n, n + more)
        for part, each in first
    ]
    pairs = [
        KeyValue(key, header.types[key], n + more if key == "llama.block_count" else value)
        for key, value in header.metadata.items()
    ]
    write_gguf(path, pairs, [*own, *added])
