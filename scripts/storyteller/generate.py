"""Let the target write: the text a draft should learn is the text the target itself produces.

Rows advance together, one position a pass, over a key-value cache. A row's prompt is fed through the same passes, so
rows with prompts of different lengths need no padding. When a chat row ends its turn it is asked to go on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .chat import FOLLOW_UPS, ChatCutter, Turn, encode_turn
from .data import END, START, Split, book_row
from .features import Shard
from .model import Cache, Llama
from .optim import step_rng


@dataclass(frozen=True)
class Manner:
    """How a shard is written: its size, the share of chats, and temperatures with their shares."""

    rows: int = 128
    length: int = 512
    chat: float = 0.4
    temperatures: tuple[float, ...] = (1.0, 0.8, 0.0)
    shares: tuple[float, ...] = (0.8, 0.15, 0.05)


class Writer:
    """One row: its pending forced tokens, and what to force when a turn ends."""

    def __init__(self, prompt: list[int], is_chat: bool, chats: ChatCutter, rng: np.random.Generator) -> None:
        self.forced = deque(prompt)
        self.is_chat, self.chats, self.rng = is_chat, chats, rng

    def ended(self) -> None:
        """Queue the next request after the assistant's <|im_end|>."""
        encode = self.chats.tokenizer.encode
        request = FOLLOW_UPS[int(self.rng.integers(len(FOLLOW_UPS)))]
        self.forced.extend(encode("\n").ids)
        self.forced.extend(encode_turn(self.chats.tokenizer, Turn("user", request)))
        self.forced.extend([START, *encode("assistant\n").ids])


def draw(logits: Tensor, temperature: Tensor, uniform: Tensor) -> Tensor:
    """Draw one token per row by inverting the distribution function; temperature 0 takes the largest logit."""
    warm = logits / temperature.clamp_min(1e-3)[:, None]
    cumulative = torch.softmax(warm, -1).cumsum(-1)
    drawn = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:]).squeeze(1)
    drawn = drawn.clamp_max(logits.shape[-1] - 1)
    return torch.where(temperature > 0, drawn, logits.argmax(-1))


def prompts(split: Split, chats: ChatCutter, manner: Manner, rng: np.random.Generator) -> list[Writer]:
    """Start every row: a few tokens of a book, or a chat request."""
    writers = []
    for _ in range(manner.rows):
        if rng.random() < manner.chat:
            writers.append(Writer(chats.prompt(rng), True, chats, rng))
        else:
            writers.append(Writer(book_row(split, int(rng.integers(2, 48)), rng).tolist(), False, chats, rng))
    return writers


@torch.no_grad()
def write_shard(model: Llama, split: Split, chats: ChatCutter, manner: Manner, rng: np.random.Generator) -> Shard:
    """Write `manner.rows` rows and keep the states that the draft will be taught from."""
    device = model.embed.weight.device
    rows, length = manner.rows, manner.length
    writers = prompts(split, chats, manner, rng)
    warmth = rng.choice(manner.temperatures, rows, p=manner.shares).astype(np.float32)
    temperature = torch.from_numpy(warmth).to(device)
    tokens = np.zeros((rows, length), dtype=np.uint16)
    own = np.zeros((rows, length), dtype=bool)
    hidden = np.zeros((rows, length, model.shape.d), dtype=np.float16)
    cache = Cache(model.shape, rows, length, device)
    drawn = np.zeros(rows, dtype=np.int64)
    for at in range(length):
        for i, writer in enumerate(writers):
            own[i, at] = not writer.forced
            tokens[i, at] = writer.forced.popleft() if writer.forced else drawn[i]
            if own[i, at] and writer.is_chat and tokens[i, at] == END:
                writer.ended()
        state = model.step(torch.from_numpy(tokens[:, at].astype(np.int64)).to(device), cache, at)
        hidden[:, at] = state.half().cpu().numpy()
        uniform = torch.from_numpy(rng.random(rows, dtype=np.float32)).to(device)
        drawn = draw(model.logits(state).float(), temperature, uniform).cpu().numpy()
    return Shard(tokens, hidden, own, warmth)


def shard_rng(seed: int, index: int) -> np.random.Generator:
    """Return the generator of shard number `index`."""
    return step_rng(seed + 1_000_003, index)
