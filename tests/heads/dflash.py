"""The arithmetic of a DFlash head in numpy, and heads of random weights for the bundled target."""

from pathlib import Path

import numpy as np

from localspec.heads.head_file import tokenizer_of
from localspec.heads.writer import stored, write_gguf
from localspec.models.gguf.header import read_header
from localspec.models.gguf.values import KeyValue
from tests.heads.reference import TARGET, Floats, read_weights

WIDTH, VOCAB, FF, HEADS, KV_HEADS, HEAD, EPS = 192, 4096, 384, 3, 1, 64, 1e-5
LAYERS, BLOCKS, BLOCK_SIZE, MASK = (2, 4, 7), 2, 6, 1


def write_random_dflash(path: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    shapes = {"fc": (WIDTH, len(LAYERS) * WIDTH), "enc.output_norm": (WIDTH,), "output_norm": (WIDTH,)}
    for block in range(BLOCKS):
        shapes |= {
            f"blk.{block}.{name}": shape
            for name, shape in {
                "attn_norm": (WIDTH,),
                "attn_q": (HEADS * HEAD, WIDTH),
                "attn_k": (KV_HEADS * HEAD, WIDTH),
                "attn_v": (KV_HEADS * HEAD, WIDTH),
                "attn_output": (WIDTH, HEADS * HEAD),
                "attn_q_norm": (HEAD,),
                "attn_k_norm": (HEAD,),
                "ffn_norm": (WIDTH,),
                "ffn_gate": (FF, WIDTH),
                "ffn_up": (FF, WIDTH),
                "ffn_down": (WIDTH, FF),
            }.items()
        }
    tensors = []
    for name, shape in shapes.items():
        array = rng.standard_normal(shape)
        array = 1 + 0.1 * array if len(shape) == 1 else array / np.sqrt(shape[1])
        tensors.append(stored(f"{name}.weight", array.astype(np.float32), "F32"))
    numbers = {
        "context_length": 1024,
        "embedding_length": WIDTH,
        "block_count": BLOCKS,
        "feed_forward_length": FF,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "rope.dimension_count": HEAD,
        "vocab_size": VOCAB,
        "block_size": BLOCK_SIZE,
    }
    pairs = [
        KeyValue("general.architecture", "str", "dflash"),
        KeyValue("general.name", "str", "random dflash"),
        *(KeyValue(f"dflash.{key}", "u32", number) for key, number in numbers.items()),
        KeyValue("dflash.attention.layer_norm_rms_epsilon", "f32", EPS),
        KeyValue("dflash.rope.freq_base", "f32", 10000.0),
        KeyValue("dflash.target_layers", "arr[i32]", LAYERS),
        KeyValue("tokenizer.ggml.mask_token_id", "u32", MASK),
        *tokenizer_of(read_header(TARGET)),
    ]
    write_gguf(path, pairs, tensors)
    return path


def block_rows(path: Path, target: Path, states: Floats, start: int, token: int, n_guesses: int) -> Floats:
    """Return the logits [n_guesses, vocab] of the masks behind `token`.

    `states` are the target's, of the positions from `start` up to the token's.
    """
    weights = {**read_weights(target), **read_weights(path)}
    matrix = {name.removesuffix(".weight"): np.asarray(array, np.float64) for name, array in weights.items()}
    fused = _norm(states @ matrix["fc"].T, matrix["enc.output_norm"])
    before = np.arange(start, start + len(states))
    here = start + len(states) + np.arange(1 + n_guesses)
    x = matrix["token_embd"][[token] + [MASK] * n_guesses]
    for block in range(BLOCKS):
        at = {name.split(".", 2)[2]: array for name, array in matrix.items() if name.startswith(f"blk.{block}.")}
        normed = _norm(x, at["attn_norm"])
        query = _heads(normed @ at["attn_q"].T, at["attn_q_norm"], here)
        keys = np.concatenate(
            [_heads(one @ at["attn_k"].T, at["attn_k_norm"], p) for one, p in ((fused, before), (normed, here))]
        )
        values = np.concatenate([one @ at["attn_v"].T for one in (fused, normed)]).reshape(len(keys), KV_HEADS, HEAD)
        shared = HEADS // KV_HEADS
        scores = np.einsum("nhd,mhd->hnm", query, np.repeat(keys, shared, 1)) / np.sqrt(HEAD)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        x = x + np.einsum("hnm,mhd->nhd", share, np.repeat(values, shared, 1)).reshape(len(x), -1) @ at["attn_output"].T
        inner = _norm(x, at["ffn_norm"])
        gate = inner @ at["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (inner @ at["ffn_up"].T)) @ at["ffn_down"].T
    rows: Floats = (_norm(x, matrix["output_norm"]) @ matrix["output"].T)[1:]
    return rows


def _heads(flat: Floats, weight: Floats, positions: Floats) -> Floats:
    """Return queries or keys [n, heads, width], normed and turned by their positions in halves."""
    split = _norm(flat.reshape(len(flat), -1, HEAD), weight)
    angle = positions[:, None, None] * 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
    one, two = split[..., : HEAD // 2], split[..., HEAD // 2 :]
    return np.concatenate([one * np.cos(angle) - two * np.sin(angle), one * np.sin(angle) + two * np.cos(angle)], -1)


def _norm(x: Floats, weight: Floats) -> Floats:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight
