"""Tiny random models that keep a state, with the bundled tokenizer. Two of the architectures roll back in place.

The shapes are the least that llama.cpp accepts. Logits deviate by about three, so that temperature 0 has no near ties.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from localspec.heads.head_file import tokenizer_of
from localspec.heads.writer import stored, write_gguf
from localspec.models.gguf.header import read_header
from localspec.models.gguf.values import KeyValue
from tests.integration.pair import TARGET

WIDTH, VOCAB, FF, CTX = 64, 4096, 128, 1024
HEADS, KV_HEADS, HEAD = 2, 1, 32
STATE, GROUPS, RANK, KERNEL = 16, 2, 2, 4
WKV = 64  # the width of a head of rwkv: with less llama.cpp's kernels for AVX-512 read beyond it

ROLLING = ("qwen35", "lfm2")  # take tokens of a pass back in place
REPLAYING = ("mamba2", "granitehybrid", "rwkv7")
ARCHS = (*ROLLING, *REPLAYING)
# Bytes of one state, as llama.cpp's hparams compute them: what convolutions last saw, and the state proper, in F32.
STATES = {
    "qwen35": 3 * 4 * (3 * (2 * STATE + 2 * GROUPS * STATE) + 2 * STATE * STATE),
    "lfm2": 4 * WIDTH * 2,
    "mamba2": 2 * 4 * (3 * (2 * WIDTH + 2 * GROUPS * STATE) + 2 * WIDTH * STATE),
    "granitehybrid": 4 * (3 * (2 * WIDTH + 2 * GROUPS * STATE) + 2 * WIDTH * STATE),
    "rwkv7": 2 * 4 * (2 * WIDTH + WIDTH * WKV),
}

Arrays = dict[str, NDArray[np.float32]]
Values = dict[str, tuple[str, object]]

_FOLDER = TemporaryDirectory(prefix="localspec-states-")


class _Draw:
    """Random matrices [rows, columns] and norms [n]."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def linear(self, rows: int, columns: int, scale: float = 1.0) -> NDArray[np.float32]:
        return self.noise(rows, columns, scale=scale * columns**-0.5)

    def norm(self, n: int) -> NDArray[np.float32]:
        return (1 + 0.1 * self.rng.standard_normal(n)).astype(np.float32)

    def noise(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> NDArray[np.float32]:
        return (mean + scale * self.rng.standard_normal(shape)).astype(np.float32)


@cache
def stateful_gguf(arch: str, seed: int = 0) -> Path:
    """Return a random model of an architecture, written once per test run."""
    draw = _Draw(seed)
    tensors = {"token_embd.weight": draw.linear(VOCAB, WIDTH, 8.0), "output.weight": draw.linear(VOCAB, WIDTH, 3.0)}
    more, values = _BUILDERS[arch](draw)
    pairs = [KeyValue("general.architecture", "str", arch)]
    common: Values = {
        "context_length": ("u32", CTX),
        "embedding_length": ("u32", WIDTH),
        "feed_forward_length": ("u32", FF),
        "vocab_size": ("u32", VOCAB),
        "attention.layer_norm_rms_epsilon": ("f32", 1e-5),
    }
    pairs += [KeyValue(f"{arch}.{key}", kind, value) for key, (kind, value) in (common | values).items()]
    pairs += tokenizer_of(read_header(TARGET))
    path = Path(_FOLDER.name) / f"{arch}-{seed}.gguf"
    write_gguf(path, pairs, [stored(name, array, "F32") for name, array in (tensors | more).items()])
    return path


def _feed_forward(draw: _Draw, at: str) -> Arrays:
    return {
        f"{at}ffn_gate.weight": draw.linear(FF, WIDTH),
        f"{at}ffn_up.weight": draw.linear(FF, WIDTH),
        f"{at}ffn_down.weight": draw.linear(WIDTH, FF),
    }


def _attention(draw: _Draw, at: str, query_width: int = 1) -> Arrays:
    return {
        f"{at}attn_q.weight": draw.linear(HEADS * HEAD * query_width, WIDTH),
        f"{at}attn_k.weight": draw.linear(KV_HEADS * HEAD, WIDTH),
        f"{at}attn_v.weight": draw.linear(KV_HEADS * HEAD, WIDTH),
        f"{at}attn_output.weight": draw.linear(WIDTH, HEADS * HEAD),
    }


def _head_norms(draw: _Draw, at: str) -> Arrays:
    return {f"{at}attn_q_norm.weight": draw.norm(HEAD), f"{at}attn_k_norm.weight": draw.norm(HEAD)}


def _heads(kv_heads: object = KV_HEADS) -> Values:
    kind = "u32" if isinstance(kv_heads, int) else "arr[i32]"
    return {
        "attention.head_count": ("u32", HEADS),
        "attention.head_count_kv": (kind, kv_heads),
        "attention.key_length": ("u32", HEAD),
        "attention.value_length": ("u32", HEAD),
        "rope.dimension_count": ("u32", HEAD),
        "rope.freq_base": ("f32", 10000.0),
    }


def _ssm(inner: int) -> Values:
    return {
        "ssm.conv_kernel": ("u32", KERNEL),
        "ssm.inner_size": ("u32", inner),
        "ssm.state_size": ("u32", STATE),
        "ssm.time_step_rank": ("u32", RANK),
        "ssm.group_count": ("u32", GROUPS),
    }


def _qwen35(draw: _Draw) -> tuple[Arrays, Values]:
    """Three layers with a state, one that attends, and a block for further tokens behind them."""
    layers, inner = 4, STATE * RANK
    conv = 2 * STATE * GROUPS + inner
    found: Arrays = {"output_norm.weight": draw.norm(WIDTH)}
    for layer in range(layers + 1):
        at = f"blk.{layer}."
        found |= {f"{at}attn_norm.weight": draw.norm(WIDTH), f"{at}post_attention_norm.weight": draw.norm(WIDTH)}
        found |= _feed_forward(draw, at)
        if layer >= layers - 1:
            found |= _attention(draw, at, query_width=2) | _head_norms(draw, at)
            continue
        found |= {
            f"{at}attn_qkv.weight": draw.linear(conv, WIDTH),
            f"{at}attn_gate.weight": draw.linear(inner, WIDTH),
            f"{at}ssm_conv1d.weight": draw.noise(conv, KERNEL, scale=0.5),
            f"{at}ssm_dt.bias": draw.noise(RANK),
            f"{at}ssm_a": -np.abs(draw.noise(RANK)) - np.float32(0.1),
            f"{at}ssm_beta.weight": draw.linear(RANK, WIDTH),
            f"{at}ssm_alpha.weight": draw.linear(RANK, WIDTH),
            f"{at}ssm_norm.weight": draw.norm(STATE),
            f"{at}ssm_out.weight": draw.linear(WIDTH, inner),
        }
    at = f"blk.{layers}.nextn."
    found |= {
        f"{at}eh_proj.weight": draw.linear(WIDTH, 2 * WIDTH),
        f"{at}enorm.weight": draw.norm(WIDTH),
        f"{at}hnorm.weight": draw.norm(WIDTH),
        f"{at}shared_head_norm.weight": draw.norm(WIDTH),
    }
    values: Values = {
        "block_count": ("u32", layers + 1),
        "nextn_predict_layers": ("u32", 1),
        "full_attention_interval": ("u32", layers),
        "rope.dimension_sections": ("arr[i32]", [6, 5, 5, 0]),
    }
    return found, values | _heads() | _ssm(inner)


def _lfm2(draw: _Draw) -> tuple[Arrays, Values]:
    """A layer with a short convolution, and one that attends."""
    found: Arrays = {"token_embd_norm.weight": draw.norm(WIDTH)}
    for layer in range(2):
        at = f"blk.{layer}."
        found |= {f"{at}attn_norm.weight": draw.norm(WIDTH), f"{at}ffn_norm.weight": draw.norm(WIDTH)}
        found |= _feed_forward(draw, at)
        if layer:
            found |= _attention(draw, at) | _head_norms(draw, at)
        else:
            found |= {
                f"{at}shortconv.conv.weight": draw.noise(WIDTH, 3, scale=0.5),
                f"{at}shortconv.in_proj.weight": draw.linear(3 * WIDTH, WIDTH),
                f"{at}shortconv.out_proj.weight": draw.linear(WIDTH, WIDTH),
            }
    return found, {"block_count": ("u32", 2), "shortconv.l_cache": ("u32", 3)} | _heads([0, KV_HEADS])


def _state_layer(draw: _Draw, at: str) -> Arrays:
    """Return the tensors of a mamba2 layer."""
    inner, conv = 2 * WIDTH, 2 * WIDTH + 2 * GROUPS * STATE
    return {
        f"{at}attn_norm.weight": draw.norm(WIDTH),
        f"{at}ssm_in.weight": draw.linear(inner + conv + RANK, WIDTH),
        f"{at}ssm_conv1d.weight": draw.noise(conv, KERNEL, scale=0.5),
        f"{at}ssm_conv1d.bias": draw.noise(conv, scale=0.1),
        f"{at}ssm_dt.bias": draw.noise(RANK, scale=0.5, mean=-1.0),
        f"{at}ssm_a": -np.abs(draw.noise(RANK, 1)) - np.float32(0.1),
        f"{at}ssm_d": draw.noise(RANK, 1, scale=0.1, mean=1.0),
        f"{at}ssm_norm.weight": draw.noise(GROUPS, inner // GROUPS, scale=0.1, mean=1.0),
        f"{at}ssm_out.weight": draw.linear(WIDTH, inner),
    }


def _mamba2(draw: _Draw) -> tuple[Arrays, Values]:
    found: Arrays = {"output_norm.weight": draw.norm(WIDTH)}
    for layer in range(2):
        found |= _state_layer(draw, f"blk.{layer}.")
    return found, {"block_count": ("u32", 2), "attention.head_count": ("u32", 0)} | _ssm(2 * WIDTH)


def _granitehybrid(draw: _Draw) -> tuple[Arrays, Values]:
    """A layer of mamba2, and one that attends."""
    found: Arrays = {"output_norm.weight": draw.norm(WIDTH)} | _state_layer(draw, "blk.0.")
    found |= _attention(draw, "blk.1.") | {"blk.1.attn_norm.weight": draw.norm(WIDTH)}
    for at in ("blk.0.", "blk.1."):
        found |= {f"{at}ffn_norm.weight": draw.norm(WIDTH)} | _feed_forward(draw, at)
    return found, {"block_count": ("u32", 2)} | _heads([0, KV_HEADS]) | _ssm(2 * WIDTH)


def _rwkv7(draw: _Draw) -> tuple[Arrays, Values]:
    lora = 8
    found: Arrays = {}
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.1.attn_norm", "blk.1.attn_norm_2"):
        found |= {f"{name}.weight": draw.norm(WIDTH), f"{name}.bias": draw.noise(WIDTH, scale=0.1)}
    found |= {"token_embd_norm.weight": draw.norm(WIDTH), "token_embd_norm.bias": draw.noise(WIDTH, scale=0.1)}
    for layer in range(2):
        at = f"blk.{layer}."
        for what in "wav":
            found[f"{at}time_mix_{what}0.weight"] = draw.noise(WIDTH, scale=0.5)
            found[f"{at}time_mix_{what}1.weight"] = draw.linear(lora, WIDTH)
            found[f"{at}time_mix_{what}2.weight"] = draw.linear(WIDTH, lora)
        for what in ("key", "value", "receptance", "output"):
            found[f"{at}time_mix_{what}.weight"] = draw.linear(WIDTH, WIDTH)
        found |= {
            f"{at}time_mix_g1.weight": draw.linear(lora, WIDTH),
            f"{at}time_mix_g2.weight": draw.linear(WIDTH, lora),
            f"{at}time_mix_lerp_fused.weight": draw.noise(6, 1, 1, WIDTH, scale=0.2, mean=0.5),
            f"{at}time_mix_k_k.weight": draw.norm(WIDTH),
            f"{at}time_mix_k_a.weight": draw.norm(WIDTH),
            f"{at}time_mix_r_k.weight": draw.noise(WIDTH, scale=0.1),
            f"{at}time_mix_ln.weight": draw.norm(WIDTH),
            f"{at}time_mix_ln.bias": draw.noise(WIDTH, scale=0.1),
            f"{at}channel_mix_lerp_k.weight": draw.noise(1, 1, WIDTH, scale=0.2, mean=0.5),
            f"{at}channel_mix_key.weight": draw.linear(FF, WIDTH),
            f"{at}channel_mix_value.weight": draw.linear(WIDTH, FF),
        }
    values: Values = {
        "block_count": ("u32", 2),
        "attention.layer_norm_epsilon": ("f32", 1e-5),
        "attention.head_count": ("u32", 0),
        "wkv.head_size": ("u32", WKV),
        "token_shift_count": ("u32", 2),
    }
    for rank in ("decay", "iclr", "value_residual_mix", "gate"):
        values[f"attention.{rank}_lora_rank"] = "u32", lora
    return found, values


_BUILDERS: dict[str, Callable[[_Draw], tuple[Arrays, Values]]] = {
    "qwen35": _qwen35,
    "lfm2": _lfm2,
    "mamba2": _mamba2,
    "granitehybrid": _granitehybrid,
    "rwkv7": _rwkv7,
}
