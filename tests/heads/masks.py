"""Mask tokens of random weights for the bundled target, and their rows in numpy, to compare llama.cpp with."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.heads.head_file import HeadOrigin, origin_of, tokenizer_of, write_file
from localspec.heads.mask_file import ADAPTED, MASK_EMBEDDING, LlamaHeader, require_llama
from localspec.heads.writer import stored
from localspec.models.gguf.draft_kinds import MASKS
from localspec.models.gguf.head import SWITCH
from localspec.models.gguf.header import Header, read_header
from localspec.models.gguf.values import KeyValue
from tests.heads.reference import FACTS, TARGET, read_weights

D, LAYERS, HEADS, WIDTH, EPS = 192, 8, 3, 64, 1e-5
Floats = NDArray[np.float32]


def random_masks(k: int = 4, rank: int = 8, seed: int = 0, target: Path = TARGET) -> dict[str, Floats]:
    """Draw embeddings of the size of the target's, and an adapter that changes much."""
    rng = np.random.default_rng(seed)
    table = read_weights(target)
    weights = {MASK_EMBEDDING: rng.normal(0, table["token_embd.weight"].std(), (k, D))}
    for layer in range(LAYERS):
        for part in ADAPTED:
            n_out, n_in = table[f"blk.{layer}.{part}.weight"].shape
            weights[f"blk.{layer}.{part}.lora_a"] = rng.normal(0, n_in**-0.5, (rank, n_in))
            weights[f"blk.{layer}.{part}.lora_b"] = rng.normal(0, 0.2, (n_out, rank))
    return {name: array.astype(np.float32) for name, array in weights.items()}


def write_masks(
    path: Path, weights: Mapping[str, Floats], origin: HeadOrigin, target: Header, matrices: str = "Q8_0"
) -> None:
    """Write the masks of a `target` to `path`.

    `weights` holds the embeddings `mask_embd.weight` [k, width], and for each matrix of the layers `NAME.lora_a` [rank,
    in] and `NAME.lora_b` [out, rank]. `matrices` is the type of the adapter, Q8_0, F16 or F32.
    """
    require_llama(target)
    llama = LlamaHeader(target)
    sizes = ("context_length", "embedding_length", "block_count", "attention.head_count", "attention.head_count_kv")
    tensors = [stored(name, array, "F32" if name == MASK_EMBEDDING else matrices) for name, array in weights.items()]
    metadata = [
        KeyValue("general.architecture", "str", SWITCH),
        KeyValue("general.name", "str", "mask tokens"),
        *(KeyValue(f"{SWITCH}.{key}", "u32", llama.number(key)) for key in sizes if llama.number(key)),
        *origin_of(MASKS, origin, len(weights[MASK_EMBEDDING])),
    ]
    write_file(path, [*metadata, *tokenizer_of(target)], tensors)


def write_random_masks(path: Path, k: int = 4, *, target: Path = TARGET, matrices: str = "F32") -> Path:
    """Write masks of random weights for a target."""
    write_masks(path, random_masks(k, 32, target=target), FACTS, read_header(target), matrices)
    return path


def mask_rows(target: Mapping[str, Floats], masks: Mapping[str, Floats], text: Sequence[int], k: int) -> Floats:
    """Return the logits [k, V] of the first `k` masks behind `text`, by the weights of both files."""
    x = np.concatenate([target["token_embd.weight"][list(text)], masks[MASK_EMBEDDING][:k]])
    n = len(x)
    is_mask = (np.arange(n) >= len(text))[:, None]
    angle = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def product(name: str, y: Floats) -> Floats:
        delta = (y @ masks[f"{name}.lora_a"].T) @ masks[f"{name}.lora_b"].T
        result: Floats = y @ target[f"{name}.weight"].T + is_mask * delta
        return result

    def turned(y: Floats) -> Floats:
        even, odd = y[..., 0::2], y[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(y.shape)

    for layer in range(LAYERS):
        block = f"blk.{layer}"
        y = _normed(x, target[f"{block}.attn_norm.weight"])
        q = turned(product(f"{block}.attn_q", y).reshape(n, HEADS, WIDTH))
        key = turned(product(f"{block}.attn_k", y).reshape(n, 1, WIDTH))[:, 0]
        value = product(f"{block}.attn_v", y)
        scores = np.where(np.tril(np.ones((n, n), bool)), np.einsum("nhd,md->hnm", q, key) / WIDTH**0.5, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        heard = np.einsum("hnm,md->nhd", share, value).reshape(n, HEADS * WIDTH)
        x = x + product(f"{block}.attn_output", heard)
        y = _normed(x, target[f"{block}.ffn_norm.weight"])
        gate = product(f"{block}.ffn_gate", y)
        x = x + product(f"{block}.ffn_down", gate / (1 + np.exp(-gate)) * product(f"{block}.ffn_up", y))
    rows: Floats = _normed(x[-k:], target["output_norm.weight"]) @ target["output.weight"].T
    return rows


def _normed(x: Floats, gain: Floats) -> Floats:
    result: Floats = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * gain
    return result
