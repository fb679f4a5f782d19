"""Shards of distillation data: tokens, the target's last hidden state at each, and which tokens it drew itself.

A hidden state is 192 half floats where a distribution is 4096 floats; the frozen head turns one into the other, so
keeping states makes the full distribution of the teacher cheap at every step of the draft's training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .chat import ChatCutter
from .data import Split, book_row
from .model import Llama
from .optim import step_rng


@dataclass(frozen=True)
class Shard:
    """Rows of one length. `own[i, t]` tells that token t was drawn by the target at `temperature[i]`."""

    tokens: np.ndarray  # [rows, length] uint16
    hidden: np.ndarray  # [rows, length, d] float16, after the last norm
    own: np.ndarray  # [rows, length] bool
    temperature: np.ndarray  # [rows] float32


FIELDS = ("tokens", "hidden", "own", "temperature")


def save_shard(shard: Shard, folder: Path) -> None:
    """Write a folder of .npy files; it appears under its name only when complete."""
    partial = folder.with_name(folder.name + ".tmp")
    partial.mkdir(parents=True, exist_ok=True)
    for field in FIELDS:
        np.save(partial / f"{field}.npy", getattr(shard, field))
    partial.replace(folder)


def load_shard(folder: Path) -> Shard:
    """Map a shard into memory."""
    return Shard(*(np.load(folder / f"{field}.npy", mmap_mode="r") for field in FIELDS))


@torch.no_grad()
def read_states(model: Llama, tokens: np.ndarray, batch: int = 16) -> np.ndarray:
    """Run `tokens` [rows, length] through the model; return its states as float16."""
    device = model.embed.weight.device
    out = []
    for at in range(0, len(tokens), batch):
        x = torch.from_numpy(tokens[at : at + batch].astype(np.int64)).to(device)
        out.append(model.hidden(x).half().cpu().numpy())
    return np.concatenate(out)


def corpus_shard(model: Llama, tokens: np.ndarray) -> Shard:
    """Make a shard from rows that a person wrote."""
    own = np.zeros(tokens.shape, dtype=bool)
    return Shard(tokens.astype(np.uint16), read_states(model, tokens), own, np.ones(len(tokens), np.float32))


def book_rows(split: Split, rows: int, length: int, seed: int, index: int) -> np.ndarray:
    """Cut `rows` windows for shard number `index`."""
    rng = step_rng(seed, index)
    return np.stack([book_row(split, length, rng) for _ in range(rows)])


def chat_rows(chats: ChatCutter, rows: int, length: int, seed: int, index: int) -> np.ndarray:
    """Cut `rows` rows of conversations for shard number `index`."""
    rng = step_rng(seed, index)
    return np.stack([chats.row(length, rng) for _ in range(rows)])
