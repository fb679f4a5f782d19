"""The arithmetic of both heads in numpy, to compare llama.cpp and PyTorch with; and heads of random weights."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray

from localspec.heads.head_file import HeadOrigin, HeadShape, Kind, Weights, write_head
from localspec.models.gguf.header import read_header
from tests.weights.read_gguf import read_gguf

Floats = NDArray[np.floating]

TARGET = Path(str(files("localspec.models"))) / "storyteller" / "target-q8_0.gguf"
FACTS = HeadOrigin(target="0" * 64, tokens=0, steps=0, accepted=(0.5, 0.25), seed=0)


def storyteller_shape(kind: Kind) -> HeadShape:
    """Return a small head for the bundled target; two heads of the cache, so that their sharing is seen."""
    shape = HeadShape(
        kind=kind,
        d=192,
        heads=4,
        kv_heads=2,
        head_width=64,
        ff=384,
        vocab=4096,
        n_out=4096 if kind == "mtp" else 1024,
        target_width=192,
        context=1024,
    )
    shape = replace(shape, layers=(2, 4, 7)) if kind == "eagle3" else shape
    shape = replace(shape, heads=1, kv_heads=1, ff=32, guesses=4) if kind == "medusa" else shape
    return replace(shape, norm_before_fc=kind in ("eagle3", "eagle1"))


def random_weights(shape: HeadShape, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """Draw weights that keep states of the order of one, and logits of the order of three."""
    rng = np.random.default_rng(seed)
    weights: dict[str, NDArray[np.generic]] = {}
    for name, size in shape.tensors().items():
        if name == "d2t":
            weights[name] = np.sort(rng.choice(shape.vocab, shape.n_out, replace=False)).astype(np.int64)
        elif len(size) == 1:
            weights[name] = (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)
        else:
            scale = {"token_embd.weight": 1.0, "output.weight": 3 / np.sqrt(size[1])}.get(name, 1 / np.sqrt(size[1]))
            weights[name] = (scale * rng.standard_normal(size)).astype(np.float32)
    return weights


def write_random_head(path: Path, kind: Kind, *, seed: int = 0, matrices: str = "F32", target: Path = TARGET) -> Path:
    """Write a head of random weights for the bundled target. With F32 matrices llama.cpp rounds nothing."""
    shape = storyteller_shape(kind)
    write_head(path, shape, random_weights(shape, seed), FACTS, read_header(target), matrices)
    return path


def read_weights(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read all tensors of a file by name, F32 but for ids."""
    weights: dict[str, NDArray[np.generic]] = {}
    for tensor in read_gguf(path).tensors:
        is_ids = tensor.tensor_type == gguf.GGMLQuantizationType.I64
        weights[tensor.name] = np.array(tensor.data if is_ids else dequantize(tensor.data, tensor.tensor_type))
    return weights


def medusa_rows(path: Path, state: Floats) -> Floats:
    """Return the logits [4, vocab] of a Medusa head's guesses after a state [d] of the target."""
    weights, shape = read_weights(path), storyteller_shape("medusa")
    rows = np.full((shape.guesses, shape.vocab), -np.inf)
    for guess, row in enumerate(rows):
        turned = np.asarray(weights["fc.weight"], float)[:, guess * shape.d : (guess + 1) * shape.d] @ state
        moved = state + turned / (1 + np.exp(-turned))
        normed = moved / np.sqrt((moved**2).mean() + shape.eps) * weights["output_norm.weight"]
        row[np.asarray(weights["d2t"], int)] = weights["output.weight"] @ normed
    return rows


class Reference:
    """A head that remembers the rows it was fed, in the order in which they came.

    A row is a token with the vector beside it: g of the features, or the vector that its parent passed on. It sees its
    ancestors and itself. `first` is the position of a row without a parent.
    """

    def __init__(self, shape: HeadShape, weights: Weights, first: int = 0) -> None:
        self.shape, self.first = shape, first
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items() if name != "d2t"}
        self.d2t = np.asarray(weights["d2t"], int) if "d2t" in weights else np.arange(shape.vocab)
        self.weights.setdefault("output.weight", self.weights["token_embd.weight"])
        self.truncate(0)

    def truncate(self, n: int) -> None:
        """Forget all rows but the first `n`."""
        if not n:
            self.ancestors: list[list[int]] = []
            self.keys = self.values = np.zeros((0, self.shape.kv_heads, self.shape.head_width))
        self.ancestors, self.keys, self.values = self.ancestors[:n], self.keys[:n], self.values[:n]

    def encode(self, features: Floats) -> Floats:
        """Map features [n, feature width] to vectors g [n, d]."""
        if self.shape.kind == "mtp":
            return features
        if self.shape.kind == "eagle1":  # its state before two of zeros
            features = np.pad(features, ((0, 0), (0, 2 * self.shape.target_width)))
        if self.shape.norm_before_fc:
            features = self._norm(features, "enc.output_norm.weight")
        return features @ self.weights["fc.weight"].T

    def feed(self, tokens: Sequence[int], vectors: Floats, parents: Sequence[int]) -> tuple[Floats, Floats]:
        """Return logits [n, vocab], -inf for what cannot be drafted, and the vectors [n, d] passed on.

        `parents` are rows of all that were fed, -1 for none; a parent comes before its children.
        """
        start = len(self.ancestors)
        for row, parent in enumerate(parents, start):
            self.ancestors.append([*(self.ancestors[parent] if parent >= 0 else []), row])
        new = self.ancestors[start:]
        embedded = self.weights["token_embd.weight"][np.asarray(tokens)]
        positions = np.array([self.first + len(seen) - 1 for seen in new])
        is_seen = np.array([np.isin(np.arange(len(self.ancestors)), seen) for seen in new])
        if self.shape.has_encoder:
            pair = (self._norm(embedded, "blk.0.attn_norm.weight"), self._norm(vectors, "blk.0.attn_norm_2.weight"))
            state = self._block(np.concatenate(pair, -1), vectors, positions, is_seen)
            passed, normed = state, self._norm(state, "output_norm.weight")
        else:
            names = ("blk.0.nextn.enorm.weight", "blk.0.nextn.hnorm.weight")
            pair = (self._norm(embedded, names[0]), self._norm(vectors, names[1]))
            mixed = np.concatenate(pair, -1) @ self.weights["blk.0.nextn.eh_proj.weight"].T
            state = self._block(self._norm(mixed, "blk.0.attn_norm.weight"), mixed, positions, is_seen)
            passed = normed = self._norm(state, "blk.0.nextn.shared_head_norm.weight")
        logits = np.full((len(tokens), self.shape.vocab), -np.inf)
        logits[:, self.d2t] = normed @ self.weights["output.weight"].T
        return logits, passed

    def _block(
        self, normed: Floats, residual: Floats, positions: NDArray[np.intp], is_seen: NDArray[np.bool_]
    ) -> Floats:
        """Return attention and feed-forward, each added to the residual."""
        shape, n = self.shape, len(normed)
        query = self._heads(normed, "q", shape.heads, positions)
        self.keys = np.concatenate([self.keys, self._heads(normed, "k", shape.kv_heads, positions)])
        values = normed @ self.weights["blk.0.attn_v.weight"].T
        self.values = np.concatenate([self.values, values.reshape(n, shape.kv_heads, shape.head_width)])
        shared = shape.heads // shape.kv_heads
        scores = np.einsum("nhd,mhd->hnm", query, np.repeat(self.keys, shared, 1)) / np.sqrt(shape.head_width)
        scores = np.where(is_seen, scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        heard = np.einsum("hnm,mhd->nhd", share, np.repeat(self.values, shared, 1)).reshape(n, -1)
        state = residual + heard @ self.weights["blk.0.attn_output.weight"].T
        inner = self._norm(state, "blk.0.ffn_norm.weight")
        gate = inner @ self.weights["blk.0.ffn_gate.weight"].T
        up = inner @ self.weights["blk.0.ffn_up.weight"].T
        return state + (gate / (1 + np.exp(-gate)) * up) @ self.weights["blk.0.ffn_down.weight"].T

    def _heads(self, normed: Floats, which: str, heads: int, positions: NDArray[np.intp]) -> Floats:
        """Return queries or keys [n, heads, width], turned by their positions."""
        split = (normed @ self.weights[f"blk.0.attn_{which}.weight"].T).reshape(len(normed), heads, -1)
        if self.shape.kind == "mtp":
            split = self._norm(split, f"blk.0.attn_{which}_norm.weight")
        width = self.shape.head_width
        angle = positions[:, None, None] * self.shape.rope_base ** (-np.arange(0, width, 2) / width)
        cos, sin = np.cos(angle), np.sin(angle)
        if self.shape.has_encoder:  # adjacent pairs
            one, two = split[..., 0::2], split[..., 1::2]
            return np.stack([one * cos - two * sin, one * sin + two * cos], -1).reshape(split.shape)
        one, two = split[..., : width // 2], split[..., width // 2 :]  # halves
        return np.concatenate([one * cos - two * sin, one * sin + two * cos], -1)

    def _norm(self, x: Floats, name: str) -> Floats:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.shape.eps) * self.weights[name]
