"""The llama architecture in plain PyTorch, as llama.cpp's `llama` computes it.

Rope turns adjacent pairs, so rows go to GGUF without a permutation. `tied` leaves the output head out: llama.cpp
then reads the token embedding in its place.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

HEAD = 64  # width of one attention head, fixed for the family


@dataclass(frozen=True)
class Shape:
    """Hyperparameters of one model; the JSON beside its weights."""

    vocab: int = 4096
    d: int = 192
    layers: int = 8
    heads: int = 3
    kv: int = 1
    ff: int = 512
    context: int = 1024
    rope_base: float = 10000.0
    eps: float = 1e-5
    tied: bool = False


TARGET = Shape()
DRAFT = Shape(d=128, layers=4, heads=2, kv=1, ff=256, tied=True)


class RMSNorm(nn.Module):
    """Root mean square norm with a learned gain."""

    def __init__(self, d: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate adjacent pairs of the last axis; `cos` and `sin` are [tokens, HEAD / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Cache:
    """Keys and values of all layers for rows that advance together, one position at a time."""

    def __init__(self, shape: Shape, rows: int, length: int, device: torch.device) -> None:
        size = (shape.layers, rows, shape.kv, length, HEAD)
        self.k = torch.zeros(size, device=device)
        self.v = torch.zeros(size, device=device)


class BlockVerifier(nn.Module):
    """Grouped-query attention and a gated feed-forward, each behind a norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv = shape.heads, shape.kv
        d, wide, narrow = shape.d, shape.heads * HEAD, shape.kv * HEAD
        self.attn_norm = RMSNorm(d, shape.eps)
        self.ffn_norm = RMSNorm(d, shape.eps)
        self.q = nn.Linear(d, wide, bias=False)
        self.k = nn.Linear(d, narrow, bias=False)
        self.v = nn.Linear(d, narrow, bias=False)
        self.o = nn.Linear(wide, d, bias=False)
        self.gate = nn.Linear(d, shape.ff, bias=False)
        self.up = nn.Linear(d, shape.ff, bias=False)
        self.down = nn.Linear(shape.ff, d, bias=False)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        rows, length, _ = x.shape
        return x.view(rows, length, heads, HEAD).transpose(1, 2)

    def _feed(self, x: Tensor) -> Tensor:
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map [rows, length, d] to the same shape, causally."""
        y = self.attn_norm(x)
        q = rope(self._split(self.q(y), self.heads), cos, sin)
        k = rope(self._split(self.k(y), self.kv), cos, sin)
        v = self._split(self.v(y), self.kv)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        return self._feed(x)

    def step(self, x: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, *, at: int) -> Tensor:
        """Advance every row by the one token at position `at`: [rows, 1, d] to the same shape."""
        y = self.attn_norm(x)
        q = rope(self._split(self.q(y), self.heads), cos, sin)
        k_cache[:, :, at : at + 1] = rope(self._split(self.k(y), self.kv), cos, sin)
        v_cache[:, :, at : at + 1] = self._split(self.v(y), self.kv)
        k, v = k_cache[:, :, : at + 1], v_cache[:, :, : at + 1]
        a = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.heads != self.kv)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        return self._feed(x)


class Llama(nn.Module):
    """A decoder whose hidden states (after the last norm) and logits are asked for separately."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.d)
        self.blocks = nn.ModuleList(BlockVerifier(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.d, shape.eps)
        self.head = None if shape.tied else nn.Linear(shape.d, shape.vocab, bias=False)
        inverse = 1 / shape.rope_base ** (torch.arange(0, HEAD, 2).float() / HEAD)
        angle = torch.outer(torch.arange(shape.context).float(), inverse)  # [context, HEAD / 2]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def reset(self, seed: int) -> None:
        """Draw fresh weights; each block starts as the identity."""
        generator = torch.Generator().manual_seed(seed)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02, generator=generator)
        for block in self.blocks:
            nn.init.zeros_(block.o.weight)
            nn.init.zeros_(block.down.weight)

    def logits(self, hidden: Tensor) -> Tensor:
        """Map normed hidden states [..., d] to logits [..., vocab]."""
        return F.linear(hidden, self.embed.weight if self.head is None else self.head.weight)

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the states after the last norm, [rows, length, d]."""
        return self.norm(self.layers(tokens)[-1])

    def layers(self, tokens: Tensor) -> list[Tensor]:
        """Return the residual stream after each block, before any norm."""
        length = tokens.shape[1]
        x = self.embed(tokens)
        states = []
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
            states.append(x)
        return states

    def step(self, tokens: Tensor, cache: Cache, at: int) -> Tensor:
        """Feed one token per row at position `at`; return normed states [rows, d]."""
        x = self.embed(tokens)[:, None]
        cos, sin = self.cos[at : at + 1], self.sin[at : at + 1]
        for i, block in enumerate(self.blocks):
            x = block.step(x, cos, sin, cache.k[i], cache.v[i], at=at)
        return self.norm(x)[:, 0]

    def size(self) -> int:
        """Return the number of parameters, a tied matrix counted once."""
        return sum(p.numel() for p in self.parameters())


def save_model(model: Llama, folder: Path) -> None:
    """Write model.safetensors and config.json, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().float().contiguous().cpu() for name, value in model.state_dict().items()}
    draft = folder / "model.safetensors.tmp"
    save_file(weights, str(draft))
    draft.replace(folder / "model.safetensors")
    draft = folder / "config.json.tmp"
    draft.write_text(json.dumps(asdict(model.shape), indent=1) + "\n")
    draft.replace(folder / "config.json")


def load_model(folder: Path, device: str = "cpu") -> Llama:
    """Read what `save_model` wrote."""
    model = Llama(Shape(**json.loads((folder / "config.json").read_text())))
    model.load_state_dict(load_file(str(folder / "model.safetensors")), strict=True)
    return model.to(device)
