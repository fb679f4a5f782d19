"""Write a model that says what a small one says at the cost of a large one.

  python -m tests.weights.scaled SMALL.gguf OUT.gguf --shape 1b --quant Q4_0

The small llama-architecture model is embedded in a larger one: its width is padded with zeros, its heads and
feed-forward units are joined by others whose outputs are multiplied by zero, and layers are added that add nothing.
Weights that cannot reach the residual stream are noise, so that nothing is cheaper than in a real model. An RMS norm
over D instead of d dimensions sees the mean square shrunk by d/D, which its weights (times sqrt(d/D)) and its epsilon
(times d/D) undo. Text, acceptance and cache behaviour are those of the small model in the same quantisation; time and
memory are those of the shape. Every table that uses such a model says so.

A draft head (EAGLE-3, MTP or Medusa) of the small target is scaled in the same way, for the scaled target.

The noise of a shape is drawn and quantised once and stands in every layer, so a 70B shape takes a minute or two.
Writing takes the memory of the largest matrix, some five times in F32, and of one layer for each of the small model's.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from localspec.models.gguf.draft_kinds import MEDUSA
from localspec.models.gguf.head import N_STATES, encoder_width
from tests.weights.read_gguf import read_gguf

Matrix = NDArray[np.float32]  # [rows out, columns in], as ggml stores it: the row is contiguous
Quantised = NDArray[np.uint8]  # [rows out, bytes of a row], as the file holds it
NOISE = 0.02
Tensor = tuple[str, Callable[[], NDArray], bool]  # its name, what makes it, whether it is a quantised matrix
HEADS = ("eagle3", "hy_v3")  # architectures of draft heads
QUANTS = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")  # what gguf-py can write, not only read


@dataclass(frozen=True)
class Shape:
    """Width, layers, heads of 64, heads of the cache, feed-forward width."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    ff: int


SHAPES = {
    "150m": Shape(768, 16, 12, 4, 3072),
    "1b": Shape(2048, 16, 32, 8, 8192),
    "3b": Shape(3072, 28, 48, 16, 8192),
    "8b": Shape(4096, 32, 64, 16, 14336),
    "70b": Shape(8192, 80, 128, 16, 28672),
}


class Small:
    """The small model's tensors, as F32, and its metadata."""

    def __init__(self, path: Path) -> None:
        self.reader = read_gguf(path)
        self._tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.arch = str(self.reader.fields["general.architecture"].contents())
        guesses = self.reader.fields.get("localspec.head.guesses")
        self.guesses = 0 if guesses is None else int(guesses.contents())  # of a Medusa head
        self.shape = Shape(*(self.number(key) for key in (
            "embedding_length", "block_count", "attention.head_count", "attention.head_count_kv", "feed_forward_length"
        )))  # fmt: skip
        self.epsilon = self.value(f"{self.arch}.attention.layer_norm_rms_epsilon")

    def value(self, key: str) -> float:
        return float(self.reader.fields[key].contents())

    def number(self, key: str) -> int:
        return int(self.value(f"{self.arch}.{key}"))

    def ids(self, name: str) -> NDArray[np.int64] | None:
        """Return a tensor of token ids, None if the model has none of that name."""
        tensor = self._tensors.get(name)
        return None if tensor is None else np.asarray(tensor.data, np.int64)

    def matrix(self, name: str) -> Matrix | None:
        """Return a tensor as F32, None if the model has none of that name."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


class Widener:
    """Pads the small model's tensors to the large shape, quantised to `kind`."""

    def __init__(self, small: Small, large: Shape, kind: gguf.GGMLQuantizationType, seed: int) -> None:
        self._small = small
        self._large = large
        self._kind = kind
        self._block, self._block_bytes = gguf.GGML_QUANT_SIZES[kind]
        self._draw = partial(np.random.default_rng(seed).normal, 0.0, NOISE)
        self._fills: dict[tuple[bool, int, int], Quantised] = {}

    def norm(self, name: str, states: int = 1) -> Matrix:
        """Scale a norm's weights for the larger width; the padding is never seen. It may be over several states."""
        weights = self._small.matrix(name)
        padded = np.ones((states, self._large.width), np.float32)
        if weights is not None:
            scale = math.sqrt(self._small.shape.width / self._large.width)
            padded[:, : self._small.shape.width] = scale * weights.reshape(states, -1)
        return padded.reshape(-1)

    def reading(self, name: str, rows: int, states: int = 1) -> Quantised:
        """Pad a matrix that reads the residual stream, or several states side by side.

        The padding is noise: beyond the small width it reads zeros.
        """
        return self._place(name, rows, self._large.width, states, is_noisy=True)

    def joining(self, name: str, states: int) -> Quantised:
        """Pad a matrix that turns several states side by side into one: it writes to the residual stream."""
        return self._place(name, self._large.width, self._large.width, states, is_noisy=False)

    def guessing(self, name: str, guesses: int) -> Quantised:
        """Pad a matrix that holds those of Medusa's heads side by side: each writes to the residual stream."""
        small, large = self._small.shape.width, self._large.width
        real = self._small.matrix(name)
        assert real is not None
        matrix = np.zeros((large, encoder_width(MEDUSA, large, guesses)), np.float32)
        for k in range(guesses):
            matrix[:small, k * large : k * large + small] = real[:, k * small : (k + 1) * small]
        return self._quantised(matrix)

    def writing(self, name: str, columns: int) -> Quantised:
        """Pad a matrix that writes to the residual stream: everything but the small model's own part is zero."""
        return self._place(name, self._large.width, columns, is_noisy=False)

    def embedding(self, name: str) -> Quantised:
        """Pad the embedding's width with zeros: the residual stream starts there."""
        table = self._small.matrix(name)
        assert table is not None
        return self._place(name, table.shape[0], self._large.width, is_noisy=False)

    def _place(self, name: str, rows: int, columns: int, states: int = 1, *, is_noisy: bool) -> Quantised:
        """Return noise or zeros of `rows` by `states` times `columns`, with the small model's part in each state."""
        fill = self._fill(rows, states * columns, is_noisy)
        real = self._small.matrix(name)
        if real is None:
            return fill
        matrix, width = fill.copy(), real.shape[1] // states
        for state in range(states):
            part = self._base(real.shape[0], -(-width // self._block) * self._block, is_noisy)
            part[:, :width] = real[:, state * width : (state + 1) * width]
            first, patch = state * columns // self._block * self._block_bytes, self._quantised(part)
            matrix[: patch.shape[0], first : first + patch.shape[1]] = patch
        return matrix

    def _fill(self, rows: int, columns: int, is_noisy: bool) -> Quantised:
        """Return a matrix of noise or zeros: the same one for every layer, as its bytes take minutes to make."""
        key = (is_noisy, rows, columns)
        if key not in self._fills:
            self._fills[key] = self._quantised(self._base(rows, columns, is_noisy))
        return self._fills[key]

    def _base(self, rows: int, columns: int, is_noisy: bool) -> Matrix:
        return np.asarray(self._draw((rows, columns)) if is_noisy else np.zeros((rows, columns)), np.float32)

    def _quantised(self, matrix: Matrix) -> Quantised:
        return np.ascontiguousarray(quantize(matrix, self._kind)).view(np.uint8)


def write_scaled(source: Path, target: Path, large: Shape, quant: str, seed: int = 0) -> None:
    """Write `source` embedded in the shape `large` to `target`; raises ValueError where it does not fit."""
    small = Small(source)
    if small.arch in HEADS:
        large = replace(large, layers=1)
    if small.guesses:  # its block adds nothing
        large = replace(small.shape, width=large.width)
    _check(small.shape, large)
    kind = gguf.GGMLQuantizationType[quant]
    widen = Widener(small, large, kind, seed)
    writer = gguf.GGUFWriter(target, small.arch)
    _copy_metadata(small, writer, large, quant)
    embedding = ("token_embd.weight", lambda: widen.embedding("token_embd.weight"), True)
    tensors: list[Tensor] = [
        *((embedding,) if small.matrix("token_embd.weight") is not None else ()),
        ("output_norm.weight", lambda: widen.norm("output_norm.weight"), False),
        *_head_tensors(widen, small, large),
    ]
    head = small.matrix("output.weight")
    if head is not None:
        tensors.append(("output.weight", lambda: widen.reading("output.weight", head.shape[0]), True))
    for layer in range(large.layers):
        tensors += _block(widen, large, f"blk.{layer}.", states=2 if small.arch == "eagle3" else 1)
    ids = small.ids("d2t")
    if ids is not None:
        writer.add_tensor("d2t", ids)
    for name, make, is_matrix in tensors:
        writer.add_tensor(name, make(), raw_dtype=kind if is_matrix else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _head_tensors(widen: Widener, small: Small, large: Shape) -> list[Tensor]:
    """List the tensors that only heads have: those that join states, and their norms."""
    norms = {"blk.0.attn_norm_2.weight": 1, "enc.output_norm.weight": 3}
    norms |= {f"blk.0.nextn.{name}.weight": 1 for name in ("enorm", "hnorm", "shared_head_norm")}
    joining = {"fc.weight": 3, "blk.0.nextn.eh_proj.weight": 2}
    per_head = ("blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight")
    has = {tensor.name for tensor in small.reader.tensors}
    guessing: list[Tensor] = []
    if small.guesses:
        del joining["fc.weight"]
        guessing = [("fc.weight", partial(widen.guessing, "fc.weight", small.guesses), True)]
    return [
        *guessing,
        *((name, partial(widen.norm, name, states), False) for name, states in norms.items() if name in has),
        *((name, partial(widen.joining, name, states), True) for name, states in joining.items() if name in has),
        *((name, partial(small.matrix, name), False) for name in per_head if name in has),
    ]


def _block(widen: Widener, large: Shape, at: str, states: int) -> list[Tensor]:
    """List a layer's tensors, whose attention reads `states` side by side.

    A layer that the small model lacks writes nothing to the residual stream.
    """
    q, kv = 64 * large.heads, 64 * large.kv_heads
    return [
        (f"{at}attn_norm.weight", lambda: widen.norm(f"{at}attn_norm.weight"), False),
        (f"{at}attn_q.weight", lambda: widen.reading(f"{at}attn_q.weight", q, states), True),
        (f"{at}attn_k.weight", lambda: widen.reading(f"{at}attn_k.weight", kv, states), True),
        (f"{at}attn_v.weight", lambda: widen.reading(f"{at}attn_v.weight", kv, states), True),
        (f"{at}attn_output.weight", lambda: widen.writing(f"{at}attn_output.weight", q), True),
        (f"{at}ffn_norm.weight", lambda: widen.norm(f"{at}ffn_norm.weight"), False),
        (f"{at}ffn_gate.weight", lambda: widen.reading(f"{at}ffn_gate.weight", large.ff), True),
        (f"{at}ffn_up.weight", lambda: widen.reading(f"{at}ffn_up.weight", large.ff), True),
        (f"{at}ffn_down.weight", lambda: widen.writing(f"{at}ffn_down.weight", large.ff), True),
    ]


def _check(small: Shape, large: Shape) -> None:
    """The small model's query heads must share cache heads in the large one as they do in their own."""
    if small.kv_heads != 1 or small.heads > large.heads // large.kv_heads:
        raise ValueError("the small model needs one cache head and no more query heads than share one in the shape")
    if small.width > large.width or small.layers > large.layers or small.ff > large.ff:
        raise ValueError("the shape is smaller than the model")


def _copy_metadata(small: Small, writer: gguf.GGUFWriter, large: Shape, quant: str) -> None:
    """Copy the tokenizer and what else the small file says; write the large shape."""
    shape = {
        "embedding_length": large.width,
        "block_count": large.layers,
        "attention.head_count": large.heads,
        "attention.head_count_kv": large.kv_heads,
        "feed_forward_length": large.ff,
    }
    if small.arch == "eagle3":
        shape["target_hidden_size"] = large.width
    if small.guesses:
        shape["target_hidden_size"] = encoder_width(MEDUSA, large.width, small.guesses) // N_STATES
    if small.arch == "hy_v3":
        shape["expert_feed_forward_length"] = large.ff
    shape = {f"{small.arch}.{key}": number for key, number in shape.items()}
    for key, field in small.reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type", *shape):
            continue
        value = field.contents()
        if key == f"{small.arch}.attention.layer_norm_rms_epsilon":
            value = small.epsilon * small.shape.width / large.width
        elif key == "general.name":
            value = f"{value} (scaled)"
        writer.add_key_value(key, value, field.types[0], sub_type=field.types[-1] if len(field.types) > 1 else None)
    for key, number in shape.items():
        writer.add_uint32(key, number)
    if f"{small.arch}.attention.key_length" not in small.reader.fields:
        writer.add_uint32(f"{small.arch}.attention.key_length", 64)
        writer.add_uint32(f"{small.arch}.attention.value_length", 64)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{quant}" if quant != "F32" else "ALL_F32"])


def add_shape_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument(
        "--quant", choices=QUANTS, default="Q4_0", help="of the matrices; K-quants only llama.cpp itself can write"
    )


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """Let a person choose the bundled target's shape, or one that was written before."""
    add_shape_options(parser)
    parser.add_argument("--target", type=Path, help="a target that tests.weights.scaled wrote before")


def scaled_target(options: argparse.Namespace, folder: Path) -> Path:
    """Return the target that `add_target_options` asked for, written to `folder` unless it is there already."""
    if options.target is not None:
        return Path(options.target)
    small = Path(str(files("localspec.models"))) / "storyteller" / "target-q8_0.gguf"
    write_scaled(small, folder / "target.gguf", SHAPES[options.shape], options.quant)
    return folder / "target.gguf"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("small", type=Path)
    parser.add_argument("out", type=Path)
    add_shape_options(parser)
    options = parser.parse_args()
    try:
        write_scaled(options.small, options.out, SHAPES[options.shape], options.quant)
    except (ValueError, KeyError, OSError) as error:
        raise SystemExit(f"scaled: {error}") from error


if __name__ == "__main__":
    main()
