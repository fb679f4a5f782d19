"""Random models that keep a state, of any size: the tensors and the metadata of some architectures.

Logits deviate by about three, so that temperature 0 has few near ties. No end token is ever the most probable.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.heads.head_file import tokenizer_of
from localspec.heads.writer import stored, write_gguf
from localspec.models.gguf.header import read_header
from localspec.models.gguf.values import KeyValue

VOCAB, CTX, KERNEL = 4096, 1024, 4
HEAD_DIM = 64  # of a state: with less llama.cpp's kernels of rwkv for AVX-512 read beyond it

Arrays = dict[str, NDArray[np.float32]]
Values = dict[str, tuple[str, object]]


@dataclass(frozen=True)
class Size:
    """Widths of a model and the number of its layers; 0 layers are as many as the architecture repeats.

    Layers from `whole` on add `late` of what random weights would. `has_block`: qwen35 has a block for further tokens.
    """

    width: int = 64
    ff: int = 128
    heads: int = 2
    kv_heads: int = 1
    head: int = 32
    state: int = 16
    groups: int = 2
    layers: int = 0
    whole: int = 0
    late: float = 1.0
    has_block: bool = True

    @property
    def inner(self) -> int:
        """The width of a state layer."""
        return 2 * self.width

    @property
    def rank(self) -> int:
        """The heads of a state layer."""
        return self.inner // HEAD_DIM


TINY = Size()
LARGE = Size(width=1024, ff=2048, heads=16, kv_heads=4, head=64, state=64)


class Draw:
    """Random matrices [rows, columns] and norms [n]."""

    def __init__(self, seed: int, size: Size) -> None:
        self._rng = np.random.default_rng(seed)
        self._size = size

    def linear(self, rows: int, columns: int, scale: float = 1.0) -> NDArray[np.float32]:
        return self.noise(rows, columns, scale=scale * columns**-0.5)

    def adding(self, layer: int, rows: int, columns: int) -> NDArray[np.float32]:
        """Return a matrix whose product is added to what the layers before wrote."""
        return self.linear(rows, columns, self._size.late if layer >= self._size.whole else 1.0)

    def norm(self, n: int) -> NDArray[np.float32]:
        return (1 + 0.1 * self._rng.standard_normal(n)).astype(np.float32)

    def noise(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> NDArray[np.float32]:
        values = self._rng.standard_normal(shape, np.float32)
        return np.float32(mean) + np.float32(scale) * values


# Makes all tensors but embedding and output, and the metadata of the architecture; the least number of layers.
Plan = tuple[Callable[[Draw, Size], tuple[Arrays, Values]], int]


def write_stateful(
    path: Path, arch: str, size: Size = TINY, kind: str = "F32", seed: int = 0, plan: Plan | None = None
) -> Path:
    """Write a model and return its path; the first layers are those of any other number of layers.

    Matrices of whole blocks are of the `kind`, F32 or Q8_0. `plan` is that of `ARCHS` by default. Raises OSError.
    """
    draw = Draw(seed, size)
    build, repeated = plan or ARCHS[arch]
    size = replace(size, layers=size.layers or repeated)
    tensors: Arrays = {
        "token_embd.weight": draw.linear(VOCAB, size.width, size.width**0.5),
        "output.weight": draw.linear(VOCAB, size.width, 3.0),
    }
    tokenizer = read_header(Path(str(files("localspec.models"))) / "storyteller" / "target-q8_0.gguf")
    for name in ("bos", "eos"):
        tensors["output.weight"][tokenizer.metadata[f"tokenizer.ggml.{name}_token_id"]] = 0
    more, values = build(draw, size)
    common: Values = {
        "context_length": ("u32", CTX),
        "embedding_length": ("u32", size.width),
        "feed_forward_length": ("u32", size.ff),
        "vocab_size": ("u32", VOCAB),
        "block_count": ("u32", size.layers),
        "attention.layer_norm_rms_epsilon": ("f32", 1e-5),
    }
    pairs = [KeyValue("general.architecture", "str", arch)]
    pairs += [KeyValue(f"{arch}.{key}", kind, value) for key, (kind, value) in (common | values).items()]
    pairs += tokenizer_of(tokenizer)
    write_gguf(path, pairs, [stored(name, array, _kind(name, array, kind)) for name, array in (tensors | more).items()])
    return path


def _kind(name: str, array: NDArray[np.float32], kind: str) -> str:
    """Return the type of a tensor: matrices are of the `kind`, but for those that llama.cpp wants in F32."""
    is_matrix = array.ndim == 2 and not array.shape[1] % 32 and "ssm_norm" not in name and "lerp" not in name
    return kind if is_matrix else "F32"


def _feed_forward(draw: Draw, size: Size, layer: int) -> Arrays:
    at = f"blk.{layer}."
    return {
        f"{at}ffn_gate.weight": draw.linear(size.ff, size.width),
        f"{at}ffn_up.weight": draw.linear(size.ff, size.width),
        f"{at}ffn_down.weight": draw.adding(layer, size.width, size.ff),
    }


def _attention(draw: Draw, size: Size, layer: int, query_width: int = 1) -> Arrays:
    at = f"blk.{layer}."
    return {
        f"{at}attn_q.weight": draw.linear(size.heads * size.head * query_width, size.width),
        f"{at}attn_k.weight": draw.linear(size.kv_heads * size.head, size.width),
        f"{at}attn_v.weight": draw.linear(size.kv_heads * size.head, size.width),
        f"{at}attn_output.weight": draw.adding(layer, size.width, size.heads * size.head),
    }


def _head_norms(draw: Draw, size: Size, at: str) -> Arrays:
    return {f"{at}attn_q_norm.weight": draw.norm(size.head), f"{at}attn_k_norm.weight": draw.norm(size.head)}


def _heads(size: Size, attends: list[int] | None = None) -> Values:
    """Return the keys of attention; `attends` has a 1 for each layer that attends, where not all do."""
    kv_heads = size.kv_heads if attends is None else [size.kv_heads * one for one in attends]
    return {
        "attention.head_count": ("u32", size.heads),
        "attention.head_count_kv": ("u32" if attends is None else "arr[i32]", kv_heads),
        "attention.key_length": ("u32", size.head),
        "attention.value_length": ("u32", size.head),
        "rope.dimension_count": ("u32", size.head),
        "rope.freq_base": ("f32", 10000.0),
    }


def _ssm(size: Size, inner: int) -> Values:
    return {
        "ssm.conv_kernel": ("u32", KERNEL),
        "ssm.inner_size": ("u32", inner),
        "ssm.state_size": ("u32", size.state),
        "ssm.time_step_rank": ("u32", size.rank),
        "ssm.group_count": ("u32", size.groups),
    }


def _qwen35(draw: Draw, size: Size) -> tuple[Arrays, Values]:
    """Of four layers three keep a state and one attends. The block for further tokens is behind them."""
    inner = size.state * size.rank
    conv = 2 * size.state * size.groups + inner
    found: Arrays = {"output_norm.weight": draw.norm(size.width)}
    for layer in range(size.layers + size.has_block):
        at = f"blk.{layer}."
        found |= {f"{at}{name}.weight": draw.norm(size.width) for name in ("attn_norm", "post_attention_norm")}
        found |= _feed_forward(draw, size, layer)
        if layer % 4 == 3 or layer == size.layers:
            found |= _attention(draw, size, layer, query_width=2) | _head_norms(draw, size, at)
            continue
        found |= {
            f"{at}attn_qkv.weight": draw.linear(conv, size.width),
            f"{at}attn_gate.weight": draw.linear(inner, size.width),
            f"{at}ssm_conv1d.weight": draw.noise(conv, KERNEL, scale=0.5),
            f"{at}ssm_dt.bias": draw.noise(size.rank),
            f"{at}ssm_a": -np.abs(draw.noise(size.rank)) - np.float32(0.1),
            f"{at}ssm_beta.weight": draw.linear(size.rank, size.width),
            f"{at}ssm_alpha.weight": draw.linear(size.rank, size.width),
            f"{at}ssm_norm.weight": draw.norm(size.state),
            f"{at}ssm_out.weight": draw.adding(layer, size.width, inner),
        }
    values: Values = {"full_attention_interval": ("u32", 4), "rope.dimension_sections": ("arr[i32]", [6, 5, 5, 0])}
    if size.has_block:
        at = f"blk.{size.layers}.nextn."
        token, state = np.eye(size.width, dtype=np.float32), draw.adding(size.layers, size.width, size.width)
        found[f"{at}eh_proj.weight"] = np.concatenate([token, state], 1)
        found |= {f"{at}{name}.weight": draw.norm(size.width) for name in ("enorm", "hnorm", "shared_head_norm")}
        values |= {"nextn_predict_layers": ("u32", 1), "block_count": ("u32", size.layers + 1)}
    return found, values | _heads(size) | _ssm(size, inner)


def _lfm2(draw: Draw, size: Size) -> tuple[Arrays, Values]:
    """Layers with a short convolution, and in turn such as attend."""
    found: Arrays = {"token_embd_norm.weight": draw.norm(size.width)}
    attends = [layer % 2 for layer in range(size.layers)]
    for layer in range(size.layers):
        at = f"blk.{layer}."
        found |= {f"{at}attn_norm.weight": draw.norm(size.width), f"{at}ffn_norm.weight": draw.norm(size.width)}
        found |= _feed_forward(draw, size, layer)
        if attends[layer]:
            found |= _attention(draw, size, layer) | _head_norms(draw, size, at)
        else:
            found |= {
                f"{at}shortconv.conv.weight": draw.noise(size.width, 3, scale=0.5),
                f"{at}shortconv.in_proj.weight": draw.linear(3 * size.width, size.width),
                f"{at}shortconv.out_proj.weight": draw.adding(layer, size.width, size.width),
            }
    return found, {"shortconv.l_cache": ("u32", 3)} | _heads(size, attends)


def _state_layer(draw: Draw, size: Size, layer: int) -> Arrays:
    """Return the tensors of a mamba2 layer."""
    at, conv = f"blk.{layer}.", size.inner + 2 * size.groups * size.state
    return {
        f"{at}attn_norm.weight": draw.norm(size.width),
        f"{at}ssm_in.weight": draw.linear(size.inner + conv + size.rank, size.width),
        f"{at}ssm_conv1d.weight": draw.noise(conv, KERNEL, scale=0.5),
        f"{at}ssm_conv1d.bias": draw.noise(conv, scale=0.1),
        f"{at}ssm_dt.bias": draw.noise(size.rank, scale=0.5, mean=-1.0),
        f"{at}ssm_a": -np.abs(draw.noise(size.rank, 1)) - np.float32(0.1),
        f"{at}ssm_d": draw.noise(size.rank, 1, scale=0.1, mean=1.0),
        f"{at}ssm_norm.weight": draw.noise(size.groups, size.inner // size.groups, scale=0.1, mean=1.0),
        f"{at}ssm_out.weight": draw.adding(layer, size.width, size.inner),
    }


def _mamba2(draw: Draw, size: Size) -> tuple[Arrays, Values]:
    found: Arrays = {"output_norm.weight": draw.norm(size.width)}
    for layer in range(size.layers):
        found |= _state_layer(draw, size, layer)
    return found, {"attention.head_count": ("u32", 0)} | _ssm(size, size.inner)


def _granitehybrid(draw: Draw, size: Size) -> tuple[Arrays, Values]:
    """Layers of mamba2, and in turn such as attend."""
    found: Arrays = {"output_norm.weight": draw.norm(size.width)}
    attends = [layer % 2 for layer in range(size.layers)]
    for layer in range(size.layers):
        at = f"blk.{layer}."
        if attends[layer]:
            found |= _attention(draw, size, layer) | {f"{at}attn_norm.weight": draw.norm(size.width)}
        else:
            found |= _state_layer(draw, size, layer)
        found |= {f"{at}ffn_norm.weight": draw.norm(size.width)} | _feed_forward(draw, size, layer)
    return found, _heads(size, attends) | _ssm(size, size.inner)


def _rwkv7(draw: Draw, size: Size) -> tuple[Arrays, Values]:
    found: Arrays = {}
    for name in ("output_norm", "token_embd_norm"):
        found |= {f"{name}.weight": draw.norm(size.width), f"{name}.bias": draw.noise(size.width, scale=0.1)}
    for layer in range(size.layers):
        found |= _rwkv7_layer(draw, size, layer)
    values: Values = {
        "attention.layer_norm_epsilon": ("f32", 1e-5),
        "attention.head_count": ("u32", 0),
        "wkv.head_size": ("u32", HEAD_DIM),
        "token_shift_count": ("u32", 2),
    }
    for rank in ("decay", "iclr", "value_residual_mix", "gate"):
        values[f"attention.{rank}_lora_rank"] = "u32", LORA
    return found, values


LORA = 8


def _rwkv7_layer(draw: Draw, size: Size, layer: int) -> Arrays:
    at, width = f"blk.{layer}.", size.width
    found: Arrays = {}
    for name in ("attn_norm", "attn_norm_2"):
        found |= {f"{at}{name}.weight": draw.norm(width), f"{at}{name}.bias": draw.noise(width, scale=0.1)}
    for what in "wav":
        found[f"{at}time_mix_{what}0.weight"] = draw.noise(width, scale=0.5)
        found[f"{at}time_mix_{what}1.weight"] = draw.linear(LORA, width)
        found[f"{at}time_mix_{what}2.weight"] = draw.linear(width, LORA)
    for what in ("key", "value", "receptance"):
        found[f"{at}time_mix_{what}.weight"] = draw.linear(width, width)
    return found | {
        f"{at}time_mix_output.weight": draw.adding(layer, width, width),
        f"{at}time_mix_g1.weight": draw.linear(LORA, width),
        f"{at}time_mix_g2.weight": draw.linear(width, LORA),
        f"{at}time_mix_lerp_fused.weight": draw.noise(6, 1, 1, width, scale=0.2, mean=0.5),
        f"{at}time_mix_k_k.weight": draw.norm(width),
        f"{at}time_mix_k_a.weight": draw.norm(width),
        f"{at}time_mix_r_k.weight": draw.noise(width, scale=0.1),
        f"{at}time_mix_ln.weight": draw.norm(width),
        f"{at}time_mix_ln.bias": draw.noise(width, scale=0.1),
        f"{at}channel_mix_lerp_k.weight": draw.noise(1, 1, width, scale=0.2, mean=0.5),
        f"{at}channel_mix_key.weight": draw.linear(size.ff, width),
        f"{at}channel_mix_value.weight": draw.adding(layer, width, size.ff),
    }


ARCHS: dict[str, Plan] = {
    "qwen35": (_qwen35, 4),
    "lfm2": (_lfm2, 2),
    "mamba2": (_mamba2, 2),
    "granitehybrid": (_granitehybrid, 2),
    "rwkv7": (_rwkv7, 2),
}
