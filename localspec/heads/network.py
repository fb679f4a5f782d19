"""The heads in PyTorch, with the arithmetic that llama.cpp has for their files.

A window of n tokens gives n - 1 pairs. Pair i joins the token i + 1 with the features of the token i, and predicts the
token i + 2. Only differences of positions count, so that pair i has the position i here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from localspec.heads.head_file import HeadShape
from localspec.heads.target_file import EMBEDDING, OUTPUT, OUTPUT_NORM

Cache = tuple[Tensor, Tensor]  # keys and values of one step, [batch, heads, n, head width]


class Network:
    """The weights of a head, by the names of its file, and what it computes of a batch of windows.

    The embedding is the target's and stays as it is. So do, for `mtp`, the output matrix and the output norm.
    """

    def __init__(self, shape: HeadShape, weights: Mapping[str, NDArray[np.generic]], device: str = "cpu") -> None:
        self.shape = shape
        self.weights: dict[str, Tensor] = {name: torch.tensor(array, device=device) for name, array in weights.items()}
        fixed = {EMBEDDING, "d2t"} | ({OUTPUT, OUTPUT_NORM} if shape.kind == "mtp" else set())
        self.trained = {name: weight for name, weight in self.weights.items() if name not in fixed}
        for weight in self.trained.values():
            weight.requires_grad_(True)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return {name: weight.detach().float().cpu().numpy() for name, weight in self.trained.items()}

    def encode(self, features: Tensor) -> Tensor:
        """Map features [batch, n, w] to the vectors [batch, n, d] that go beside the tokens."""
        if self.shape.kind == "mtp":
            return features
        if self.shape.kind == "eagle1":  # its state before two of zeros
            features = F.pad(features, (0, 2 * self.shape.target_width))
        if self.shape.norm_before_fc:
            features = self._norm(features, "enc.output_norm.weight")
        return F.linear(features, self.weights["fc.weight"])

    def unroll(self, tokens: Tensor, features: Tensor, steps: int) -> list[tuple[Tensor, Tensor]]:
        """Return for each step the normed states and the vectors passed on, both [batch, n, d].

        `tokens` [batch, n] are the tokens of n pairs, `features` [batch, n, w] their features. Step 0 reads the
        target's features. Step j reads, at pair i, the vector that step j - 1 passed on at pair i - 1, as in drafting
        (training-time test, arXiv 2503.01840); its first j pairs mean nothing.
        """
        if self.shape.kind == "medusa":
            return [self._guess(features, step) for step in range(steps)]
        embedded = F.embedding(tokens, self.weights[EMBEDDING]).float()
        vectors = self.encode(features)
        past: list[Cache] = []
        states = []
        for _ in range(steps):
            normed, passed = self._step(embedded, vectors, past)
            states.append((normed, passed))
            vectors = F.pad(passed[:, :-1], (0, 0, 1, 0))
        return states

    def logits(self, normed: Tensor) -> Tensor:
        """Map normed states [..., d] to logits [..., rows of the output matrix]."""
        return F.linear(normed, self.weights[OUTPUT])

    def _guess(self, features: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Compute a Medusa head: pair i reads the state of the pair `step` places before it. Nothing is passed on."""
        d = self.shape.d
        state = F.pad(features, (0, 0, step, 0))[:, : features.shape[1]]
        matrix = self.weights["fc.weight"][:, step * d : (step + 1) * d]
        normed = self._norm(state + F.silu(F.linear(state, matrix)), OUTPUT_NORM)
        return normed, normed

    def _step(self, embedded: Tensor, vectors: Tensor, past: list[Cache]) -> tuple[Tensor, Tensor]:
        """Compute one step of all pairs; append its keys and values to `past`."""
        if self.shape.has_encoder:
            pair = self._block_norm(embedded, "attn_norm"), self._block_norm(vectors, "attn_norm_2")
            state = self._block(torch.cat(pair, -1), vectors, past)
            return self._norm(state, OUTPUT_NORM), state
        pair = self._block_norm(embedded, "nextn.enorm"), self._block_norm(vectors, "nextn.hnorm")
        mixed = self._linear(torch.cat(pair, -1), "nextn.eh_proj")
        state = self._block(self._block_norm(mixed, "attn_norm"), mixed, past)
        normed = self._block_norm(state, "nextn.shared_head_norm")
        return normed, normed

    def _block(self, normed: Tensor, residual: Tensor, past: list[Cache]) -> Tensor:
        """Return attention and feed-forward, each added to the residual."""
        query, key = self._heads(normed, "q", self.shape.heads), self._heads(normed, "k", self.shape.kv_heads)
        value = self._split(self._linear(normed, "attn_v"), self.shape.kv_heads)
        shared = self.shape.heads // self.shape.kv_heads
        past.append((key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)))
        heard = _attend(query, past).transpose(1, 2).flatten(2)
        state = residual + self._linear(heard, "attn_output")
        inner = self._block_norm(state, "ffn_norm")
        return state + self._linear(F.silu(self._linear(inner, "ffn_gate")) * self._linear(inner, "ffn_up"), "ffn_down")

    def _heads(self, normed: Tensor, which: str, heads: int) -> Tensor:
        """Return queries or keys [batch, heads, n, width], turned by their positions."""
        split = self._split(self._linear(normed, f"attn_{which}"), heads)
        if self.shape.kind == "mtp":
            split = self._block_norm(split, f"attn_{which}_norm")
        width, n = self.shape.head_width, split.shape[2]
        frequencies = self.shape.rope_base ** (-torch.arange(0, width, 2, device=split.device) / width)
        angle = torch.outer(torch.arange(n, device=split.device), frequencies)  # [n, width / 2]
        cos, sin = angle.cos(), angle.sin()
        if self.shape.has_encoder:  # adjacent pairs
            one, two = split[..., 0::2], split[..., 1::2]
            return torch.stack((one * cos - two * sin, one * sin + two * cos), -1).flatten(-2)
        one, two = split.chunk(2, -1)  # halves
        return torch.cat((one * cos - two * sin, one * sin + two * cos), -1)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.shape.head_width)).transpose(1, 2)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"blk.0.{name}.weight"])

    def _block_norm(self, x: Tensor, name: str) -> Tensor:
        return self._norm(x, f"blk.0.{name}.weight")

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weights[name], self.shape.eps)


def fresh_weights(
    shape: HeadShape, output: NDArray[np.float32], output_norm: NDArray[np.float32], seed: int
) -> dict[str, NDArray[np.generic]]:
    """Draw the weights to begin with, without embedding and `d2t`.

    The output matrix [n_out, d] and the norm before it [d] are the target's. The block adds nothing at first.
    """
    rng = np.random.default_rng([seed, 0])
    weights: dict[str, NDArray[np.generic]] = {}
    for name, size in shape.tensors().items():
        if name in (EMBEDDING, "d2t"):
            continue
        if name == OUTPUT:
            weights[name] = output
        elif shape.kind == "medusa":  # a state has been through the target's norm, which it keeps on the whole
            scale = np.sqrt((output_norm**2).mean())
            weights[name] = np.full(size, scale if name == OUTPUT_NORM else 0.0, np.float32)
        elif name in (OUTPUT_NORM, "blk.0.nextn.shared_head_norm.weight"):
            weights[name] = output_norm
        elif len(size) == 1:
            weights[name] = np.ones(size, np.float32)
        elif name in ("blk.0.attn_output.weight", "blk.0.ffn_down.weight"):
            weights[name] = np.zeros(size, np.float32)
        else:
            weights[name] = (rng.standard_normal(size) / np.sqrt(size[1])).astype(np.float32)
    return weights


def _attend(query: Tensor, past: list[Cache]) -> Tensor:
    """Attend from the pairs of the last step: to step 0 up to where their drafts begin, then to one pair of each step.

    Pair i of step j stands behind the true pairs 0 to i - j, and behind pair i - j + t of each step t from 1 to j.
    """
    step, n = len(past) - 1, query.shape[2]
    place = torch.arange(n, device=query.device)
    is_seen = place[None] <= place[:, None] - step
    key, value = past[0]
    scores = [(query @ key.transpose(-1, -2)).masked_fill(~is_seen, -torch.inf)]
    drafted = [(_shift(k, step - t), _shift(v, step - t)) for t, (k, v) in enumerate(past[1:], 1)]
    scores += [(query * k).sum(-1, keepdim=True) for k, _ in drafted]
    share = (torch.cat(scores, -1) / query.shape[-1] ** 0.5).softmax(-1)
    heard = share[..., :n] @ value
    for t, (_, v) in enumerate(drafted):
        heard = heard + share[..., n + t, None] * v
    return heard


def _shift(x: Tensor, by: int) -> Tensor:
    """Move rows [..., n, width] `by` places on; zeros come in."""
    return F.pad(x[..., : x.shape[-2] - by, :], (0, 0, by, 0))
