"""Draft heads for the target, trained as `localspec heads train` does: on its own text, from llama.cpp's states."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from localspec.heads.make_head import train
from localspec.settings.lone_jobs import EPOCHS, OUTPUTS, TrainOptions
from localspec.settings.sizes import size

from .chat import ChatCutter
from .optim import Log

# By kind: tokens that the target writes, tokens that can be drafted, and how often updates see the text.
KINDS = {"eagle3": (400_000, OUTPUTS, EPOCHS), "eagle1": (400_000, OUTPUTS, EPOCHS), "medusa": (400_000, 3072, 4)}
N_PROMPTS = 1000  # requests, and as many passages to continue
WORDS = (8, 60)  # of a passage


def train_heads(target: Path, out: Path, work: Path, chats: ChatCutter, log: Log, seed: int) -> None:
    """Train a head of each kind that is not there yet; write them to `out`."""
    rng = np.random.default_rng([seed, 36])
    requests = [_request(chats, rng) for _ in range(N_PROMPTS)]
    passages = [_passage(chats.books[int(rng.integers(len(chats.books)))], rng) for _ in range(N_PROMPTS)]
    for kind, sizes in KINDS.items():
        path = out / f"{kind}-q8_0.gguf"
        if path.exists():
            continue
        options = TrainOptions(str(target), str(path), str(work), requests, passages, kind, *sizes, seed=seed)
        for event in train(options):
            if event.get("accepted"):
                shares = ", ".join(f"{share:.3f}" for share in event["accepted"])
                log(f"heads: {kind}, {event.get('updates', 'all')} updates, first guesses right {shares}")
        log(f"heads: {path.name} has {size(path.stat().st_size)}")


def _request(chats: ChatCutter, rng: np.random.Generator) -> str:
    """Return the first message of a user."""
    return next(turn.content for turn in chats.conversation(rng) if turn.role == "user")


def _passage(book: str, rng: np.random.Generator) -> str:
    """Return some words from the start of a paragraph."""
    at = book.find("\n\n", int(rng.integers(max(1, len(book) - 2000)))) + 2
    return " ".join(book[at : at + 600].split(" ")[: int(rng.integers(*WORDS))])
