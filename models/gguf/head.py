"""Draft heads in GGUF: EAGLE-3 (architecture eagle3) and blocks that predict further tokens, in a file of their own.

A head reads hidden states of the target it was trained for. It writes no text by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.models.gguf.header import Header, unusable

EAGLE3, MTP = "eagle3", "mtp"
N_TAPPED = 3  # layers that an EAGLE-3 head reads


@dataclass(frozen=True)
class HeadInfo:
    """A head as its file describes it.

    `kind` is "eagle3" or "mtp". `target_width` is the width of the target, `target_layers` the layers whose inputs an
    EAGLE-3 head reads. `borrows`: the file lacks the embedding or the output matrix, and takes the target's.
    """

    kind: str
    target_width: int
    target_layers: tuple[int, ...] = ()
    borrows: bool = False


def head_info(header: Header) -> HeadInfo | None:
    """Return what the file says of a head, None for other files. Raises IntegrityError for a head that lacks a key."""
    arch = header.metadata.get("general.architecture")
    if not isinstance(arch, str):
        return None
    if arch == EAGLE3:
        return _eagle3(header)
    n_layers, n_next = (header.metadata.get(f"{arch}.{key}") for key in ("block_count", "nextn_predict_layers"))
    if not isinstance(n_next, int) or not isinstance(n_layers, int) or not 1 <= n_next <= n_layers:
        return None
    trunk = {f"blk.{layer}.attn_norm.weight" for layer in range(min(n_layers - n_next, 1))}
    if trunk & {tensor.name for tensor in header.tensors}:
        return None
    return HeadInfo(MTP, _number(header, f"{arch}.embedding_length"))


def _eagle3(header: Header) -> HeadInfo:
    layers = header.metadata.get("eagle3.target_layers")
    if not isinstance(layers, Sequence) or isinstance(layers, str) or len(layers) != N_TAPPED:
        raise unusable(header, f"eagle3.target_layers does not name {N_TAPPED} layers of the target")
    names = {tensor.name for tensor in header.tensors}
    return HeadInfo(
        kind=EAGLE3,
        target_width=_number(header, "eagle3.target_hidden_size"),
        target_layers=tuple(map(int, layers)),
        borrows=not {"token_embd.weight", "output.weight"} <= names,
    )


def _number(header: Header, key: str) -> int:
    value = header.metadata.get(key)
    if not isinstance(value, int) or value < 1:
        raise unusable(header, f"the metadata key {key} is missing or is no width")
    return value
