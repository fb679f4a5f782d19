"""Write a GGUF model with random weights: the cost and the file format of a real model, without its sense.

For tests and benchmarks, which need a model of a given shape in seconds. Weights are drawn tensor by tensor, and
quantised blocks are filled with random bits directly, so a shape of a billion parameters takes little memory.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

QUANTS = ("F32", "F16", "BF16", "Q8_0", "Q4_0")
_BLOCK = 32
_END = "<|endoftext|>"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Shape:
    """The shape to write. `heads`, `kv_heads` and `ff` mean nothing to mamba.

    `window` is the sliding window of gemma3, `suppressed` are tokens that are never to be sampled. With `experts` the
    layers of llama have so many feed-forward parts, of which a token uses `used`. The router is drawn at random. Rows
    of one text share what attention gave them, so they choose more alike than random tokens: of 8 experts 30 % of the
    first choices are that of the token before. In Mixtral 8x7B about 28 % are (arXiv 2401.04088).
    """

    arch: str = "llama"
    vocab: int = 4096
    width: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    ff: int = 256
    ctx: int = 4096
    window: int = 64
    quant: str = "F16"
    experts: int = 0
    used: int = 2
    suppressed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Weight:
    """One tensor: `shape` in ggml's order (row length first); normal noise of deviation `std` around `mean`."""

    name: str
    shape: tuple[int, ...]
    std: float
    mean: float = 0.0
    is_quantised: bool = True


def write_random_gguf(path: str | os.PathLike[str], shape: Shape | None = None, seed: int = 0) -> Path:
    """Write the model to `path` and return it; the same shape and seed give the same file.

    Raises ValueError for a shape that cannot be built. Nothing is left at `path` if writing fails.
    """
    shape = shape or Shape()
    weights = list(ARCHITECTURES[shape.arch](shape))
    _check(shape, weights)
    path = Path(path)
    partial = path.with_name(path.name + ".part")
    try:
        _write(partial, shape, weights, np.random.default_rng(seed))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _check(shape: Shape, weights: list[Weight]) -> None:
    if shape.width % shape.heads or shape.heads % shape.kv_heads or shape.width // shape.heads % 2:
        raise ValueError("width must be a multiple of heads with an even quotient, and heads a multiple of kv_heads")
    if not 257 <= shape.vocab <= 257 + sum(len(_LETTERS) ** n for n in (2, 3, 4)):
        raise ValueError("vocab must be from 257 (a token per byte and an end token) to about 475000")
    if shape.quant.startswith("Q"):
        for weight in weights:
            if weight.is_quantised and weight.shape[0] % _BLOCK:
                raise ValueError(f"{weight.name} has rows of {weight.shape[0]}, not a multiple of {_BLOCK}")


def _write(path: Path, shape: Shape, weights: list[Weight], rng: np.random.Generator) -> None:
    writer = gguf.GGUFWriter(path, shape.arch)
    try:
        _add_metadata(writer, shape)
        for weight in weights:
            kind = _kind(weight, shape)
            n_bytes = gguf.quant_shape_to_byte_shape(weight.shape[::-1], kind)
            writer.add_tensor_info(weight.name, weight.shape[::-1], np.dtype(np.float32), int(np.prod(n_bytes)), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for weight in weights:
            writer.write_tensor_data(_noise(weight, _kind(weight, shape), rng))
    finally:
        writer.close()


def _kind(weight: Weight, shape: Shape) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[shape.quant if weight.is_quantised else "F32"]


def _noise(weight: Weight, kind: gguf.GGMLQuantizationType, rng: np.random.Generator) -> NDArray[np.generic]:
    """Return the tensor's bytes as an array, in the type's own block layout."""
    n = int(np.prod(weight.shape))
    if kind.name == "Q4_0":
        # Nibbles are uniform on -8..7: deviation sqrt((16^2 - 1) / 12).
        return _blocks(n, 16, weight.std / 4.61, rng)
    if kind.name == "Q8_0":
        return _blocks(n, 32, weight.std / 73.9, rng)
    values = rng.standard_normal(n, dtype=np.float32) * np.float32(weight.std) + np.float32(weight.mean)
    if kind.name == "F16":
        return values.astype(np.float16)
    if kind.name == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values


def _blocks(n: int, n_bytes: int, scale: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return n / 32 blocks of a float16 scale and `n_bytes` random bytes."""
    blocks = np.empty((n // _BLOCK, 2 + n_bytes), dtype=np.uint8)  # [n / 32, 2 + n_bytes]
    blocks[:, :2] = np.array([scale], dtype="<f2").view(np.uint8)
    blocks[:, 2:] = np.frombuffer(rng.bytes(len(blocks) * n_bytes), dtype=np.uint8).reshape(-1, n_bytes)
    return blocks


def _add_metadata(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name(f"random {shape.arch}")
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if shape.quant == "F32" else f"MOSTLY_{shape.quant}"])
    writer.add_vocab_size(shape.vocab)
    writer.add_context_length(shape.ctx)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    if shape.suppressed:
        writer.add_array("tokenizer.ggml.suppress_tokens", shape.suppressed)
    writer.add_layer_norm_rms_eps(1e-5)
    if shape.arch == "mamba":
        writer.add_head_count(0)
        writer.add_feed_forward_length(0)
    elif shape.arch == "jamba":
        writer.add_feed_forward_length(shape.ff)
        writer.add_head_count(shape.heads)
        writer.add_head_count_kv([shape.kv_heads if _attends(layer) else 0 for layer in range(shape.layers)])
    if shape.arch in ("mamba", "jamba"):
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(2 * shape.width)
        writer.add_ssm_state_size(_SSM_STATE)
        writer.add_ssm_time_step_rank(_time_step_rank(shape))
    else:
        head = shape.width // shape.heads
        writer.add_feed_forward_length(shape.ff)
        writer.add_head_count(shape.heads)
        writer.add_head_count_kv(shape.kv_heads)
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_rope_freq_base(10000.0)
    if shape.arch == "llama":
        writer.add_rope_dimension_count(shape.width // shape.heads)
        if shape.experts:
            writer.add_expert_count(shape.experts)
            writer.add_expert_used_count(shape.used)
    if shape.arch == "gemma3":
        writer.add_sliding_window(shape.window)
    _add_tokenizer(writer, shape.vocab)


def _add_tokenizer(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """Add a byte-level BPE: an end token, the 256 bytes, then words of letters of which only the shortest merge."""
    words = ("".join(word) for n in (2, 3, 4) for word in itertools.product(_LETTERS, repeat=n))
    tokens = [_END, *_byte_alphabet(), *itertools.islice(words, n_vocab - 257)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (n_vocab - 1)])
    # llama.cpp insists on the array, so a vocabulary of bytes alone gets one merge that leads nowhere.
    writer.add_token_merges([f"{token[0]} {token[1]}" for token in tokens[257:] if len(token) == 2] or ["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(True)


def _byte_alphabet() -> list[str]:
    """Return GPT-2's printable character for each byte."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    spare = itertools.count(256)
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def _ends(shape: Shape, embedding_std: float = 1.0) -> Iterator[Weight]:
    """Yield what every architecture has: embedding, last norm, and an output of logits with a deviation of about 3."""
    yield Weight("token_embd.weight", (shape.width, shape.vocab), embedding_std)
    yield _norm("output_norm.weight", shape.width)
    yield Weight("output.weight", (shape.width, shape.vocab), 3 * shape.width**-0.5)


def _norm(name: str, width: int) -> Weight:
    return Weight(name, (width,), 0.0, mean=1.0, is_quantised=False)


def _linear(name: str, n_in: int, n_out: int) -> Weight:
    return Weight(name, (n_in, n_out), n_in**-0.5)


def _transformer_block(shape: Shape, prefix: str) -> Iterator[Weight]:
    kv = shape.width // shape.heads * shape.kv_heads
    yield _norm(f"{prefix}.attn_norm.weight", shape.width)
    yield _linear(f"{prefix}.attn_q.weight", shape.width, shape.width)
    yield _linear(f"{prefix}.attn_k.weight", shape.width, kv)
    yield _linear(f"{prefix}.attn_v.weight", shape.width, kv)
    yield _linear(f"{prefix}.attn_output.weight", shape.width, shape.width)
    yield from _feed_forward(shape, prefix)


def _feed_forward(shape: Shape, prefix: str) -> Iterator[Weight]:
    yield _norm(f"{prefix}.ffn_norm.weight", shape.width)
    if shape.experts:
        yield Weight(
            f"{prefix}.ffn_gate_inp.weight", (shape.width, shape.experts), shape.width**-0.5, is_quantised=False
        )
        for part, n_in, n_out in (
            ("gate", shape.width, shape.ff),
            ("up", shape.width, shape.ff),
            ("down", shape.ff, shape.width),
        ):
            yield Weight(f"{prefix}.ffn_{part}_exps.weight", (n_in, n_out, shape.experts), n_in**-0.5)
        return
    yield _linear(f"{prefix}.ffn_gate.weight", shape.width, shape.ff)
    yield _linear(f"{prefix}.ffn_up.weight", shape.width, shape.ff)
    yield _linear(f"{prefix}.ffn_down.weight", shape.ff, shape.width)


def _llama(shape: Shape) -> Iterator[Weight]:
    yield from _ends(shape)
    for layer in range(shape.layers):
        yield from _transformer_block(shape, f"blk.{layer}")


def _gemma3(shape: Shape) -> Iterator[Weight]:
    """Yield a model whose layers, but each sixth, attend to a window: llama.cpp's sliding-window cache."""
    yield from _ends(shape, embedding_std=shape.width**-0.5)
    for layer in range(shape.layers):
        prefix = f"blk.{layer}"
        yield from _transformer_block(shape, prefix)
        yield _norm(f"{prefix}.post_attention_norm.weight", shape.width)
        yield _norm(f"{prefix}.post_ffw_norm.weight", shape.width)
        yield _norm(f"{prefix}.attn_q_norm.weight", shape.width // shape.heads)
        yield _norm(f"{prefix}.attn_k_norm.weight", shape.width // shape.heads)


_SSM_STATE = 16


def _time_step_rank(shape: Shape) -> int:
    return max(1, shape.width // 16)


def _mamba(shape: Shape) -> Iterator[Weight]:
    """Yield a recurrent model: it keeps a state."""
    yield from _ends(shape)
    for layer in range(shape.layers):
        yield from _state_block(shape, f"blk.{layer}")


def _state_block(shape: Shape, prefix: str) -> Iterator[Weight]:
    inner, rank = 2 * shape.width, _time_step_rank(shape)
    yield _norm(f"{prefix}.attn_norm.weight", shape.width)
    yield _linear(f"{prefix}.ssm_in.weight", shape.width, 2 * inner)
    yield Weight(f"{prefix}.ssm_conv1d.weight", (4, inner), 0.5, is_quantised=False)
    yield Weight(f"{prefix}.ssm_conv1d.bias", (inner,), 0.1, is_quantised=False)
    yield _linear(f"{prefix}.ssm_x.weight", inner, rank + 2 * _SSM_STATE)
    yield Weight(f"{prefix}.ssm_dt.weight", (rank, inner), rank**-0.5, is_quantised=False)
    yield Weight(f"{prefix}.ssm_dt.bias", (inner,), 0.5, mean=-3.0, is_quantised=False)
    # The state decays at rate A < 0: eight deviations away from zero.
    yield Weight(f"{prefix}.ssm_a", (_SSM_STATE, inner), 0.5, mean=-4.0, is_quantised=False)
    yield _norm(f"{prefix}.ssm_d", inner)
    yield _linear(f"{prefix}.ssm_out.weight", inner, shape.width)


def _jamba(shape: Shape) -> Iterator[Weight]:
    """Yield a hybrid model: every other layer attends, and those between keep a state."""
    yield from _ends(shape)
    for layer in range(shape.layers):
        prefix = f"blk.{layer}"
        if _attends(layer):
            yield from _transformer_block(shape, prefix)
            continue
        yield from _state_block(shape, prefix)
        for name, size in (("dt", _time_step_rank(shape)), ("b", _SSM_STATE), ("c", _SSM_STATE)):
            yield _norm(f"{prefix}.ssm_{name}_norm.weight", size)
        yield from _feed_forward(shape, prefix)


def _attends(layer: int) -> bool:
    return layer % 2 == 1


ARCHITECTURES = {"llama": _llama, "gemma3": _gemma3, "mamba": _mamba, "jamba": _jamba}
