"""GGUF files of any shape that take no space: real headers, and holes where the weights would be.

The header says everything that sizes, plans and llama.cpp's own dry runs look at, so a model of 70 billion parameters
is a file of some kilobytes. Nothing may be computed with it: every weight reads as zero.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import gguf
import numpy as np


@dataclass(frozen=True)
class Hollow:
    """A shape in the terms of GGUF. `experts` makes every feed-forward layer one of experts of width `ff`."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    ff: int
    vocab: int
    quant: str = "Q4_K"
    head: int | None = None  # width of an attention head; None: width / heads
    experts: int = 0
    used: int = 0
    is_tied: bool = False
    arch: str = "llama"
    ctx: int = 131_072
    window: int = 0
    word: str = "w"  # what the tokens begin with that are no bytes: another one makes another vocabulary


LLAMA_70B = Hollow(80, 8192, 64, 8, 28672, 128_256)
LLAMA_8B = Hollow(32, 4096, 32, 8, 14336, 128_256)
LLAMA_1B = Hollow(16, 2048, 32, 8, 8192, 128_256, is_tied=True)
QWEN3_30B_A3B = Hollow(48, 2048, 32, 4, 768, 151_936, head=128, experts=128, used=8, arch="qwen3moe")


def write(path: Path, shape: Hollow) -> Path:
    header, size = _written(shape)
    path.write_bytes(header)
    os.truncate(path, size)
    return path


@cache
def _written(shape: Hollow) -> tuple[bytes, int]:
    """Return the header of a file of this shape and the file's size in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "header.gguf"
        return _write_header(path, shape), path.stat().st_size


def _write_header(path: Path, shape: Hollow) -> bytes:
    writer = gguf.GGUFWriter(path, shape.arch)
    head = shape.head or shape.width // shape.heads
    writer.add_name("hollow")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.ctx)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.ff)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500_000.0)
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.used)
        writer.add_expert_feed_forward_length(shape.ff)
    _add_vocabulary(writer, shape.vocab, shape.word)
    for name, dims, quant in tensors(shape, head):
        kind = gguf.GGMLQuantizationType[quant]
        n_bytes = gguf.quant_shape_to_byte_shape(dims[::-1], kind)
        writer.add_tensor_info(name, dims[::-1], np.dtype(np.float32), int(np.prod(n_bytes)), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    at = writer.fout[0].tell()
    total = sum(-(-info.nbytes // 32) * 32 for info in writer.tensors[0].values())
    writer.close()
    header = path.read_bytes()
    os.truncate(path, at + -at % 32 + total)
    return header


def tensors(shape: Hollow, head: int) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yield name, dimensions as ggml orders them, and type of every tensor."""
    q, kv = shape.heads * head, shape.kv_heads * head
    yield "token_embd.weight", (shape.width, shape.vocab), shape.quant
    yield "output_norm.weight", (shape.width,), "F32"
    if not shape.is_tied:
        yield "output.weight", (shape.width, shape.vocab), shape.quant
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        yield f"{at}attn_norm.weight", (shape.width,), "F32"
        yield f"{at}attn_q.weight", (shape.width, q), shape.quant
        yield f"{at}attn_k.weight", (shape.width, kv), shape.quant
        yield f"{at}attn_v.weight", (shape.width, kv), shape.quant
        yield f"{at}attn_output.weight", (q, shape.width), shape.quant
        if shape.arch == "qwen3moe":
            yield f"{at}attn_q_norm.weight", (head,), "F32"
            yield f"{at}attn_k_norm.weight", (head,), "F32"
        yield f"{at}ffn_norm.weight", (shape.width,), "F32"
        tail: tuple[int, ...] = (shape.experts,) if shape.experts else ()
        suffix = "_exps" if shape.experts else ""
        if shape.experts:
            yield f"{at}ffn_gate_inp.weight", (shape.width, shape.experts), "F32"
        yield f"{at}ffn_gate{suffix}.weight", (shape.width, shape.ff, *tail), shape.quant
        yield f"{at}ffn_up{suffix}.weight", (shape.width, shape.ff, *tail), shape.quant
        yield f"{at}ffn_down{suffix}.weight", (shape.ff, shape.width, *tail), shape.quant


def _add_vocabulary(writer: gguf.GGUFWriter, n: int, word: str) -> None:
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % i for i in range(256))]
    tokens += [b"%s%d" % (word.encode(), i) for i in range(len(tokens), n)]
    tokens = tokens[:n]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(n)])
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (n - 259)][:n])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
