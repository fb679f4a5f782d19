"""Tensors of a target's file, which heads copy or are trained against."""

import numpy as np
from numpy.typing import NDArray

from localspec.heads.writer import Stored
from localspec.models.gguf.header import Header, read_header

EMBEDDING, OUTPUT, OUTPUT_NORM = "token_embd.weight", "output.weight", "output_norm.weight"


def read_tensor(target: Header, name: str) -> Stored | None:
    """Return a tensor of the target as its file holds it, None where it has none of that name."""
    for path in target.files:
        part = target if len(target.files) == 1 else read_header(path)
        for tensor in part.tensors:
            if tensor.name == name:
                at = part.data_offset + tensor.offset
                return Stored(name, tensor.shape, tensor.type, np.memmap(path, np.uint8, "r", at, (tensor.n_bytes,)))
    return None


def target_rows(target: Header, name: str, rows: NDArray[np.integer] | None = None) -> NDArray[np.float32] | None:
    """Return rows of a matrix of the target (None: all), or a norm, as float32; None where it has no such tensor."""
    import gguf  # late: it belongs to the extra `train`
    from gguf.quants import dequantize

    tensor = read_tensor(target, name)
    if tensor is None:
        return None
    table = tensor.data.reshape(*reversed(tensor.shape[1:]), -1)  # bytes of a row
    picked = np.asarray(table if rows is None else table[rows])
    return np.asarray(dequantize(picked, gguf.GGMLQuantizationType[tensor.type]), np.float32)


def output_rows(target: Header, rows: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return rows [n, width] of the target's output matrix, which is its embedding where it has none of its own."""
    weights = target_rows(target, OUTPUT, rows)
    if weights is None:
        weights = target_rows(target, EMBEDDING, rows)
    if weights is None:
        raise ValueError(f"{target.name} has no output matrix")
    return weights
