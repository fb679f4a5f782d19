"""The figures of the model card: bits per byte, agreement of early exits, acceptance of the draft, sample text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from .chat import Turn, encode_turn
from .data import BOS, END, START, Split
from .features import Shard
from .generate import draw
from .model import Cache, Llama


@dataclass(frozen=True)
class Acceptance:
    """How well a draft's distribution fits the target's, averaged over `positions`."""

    overlap: float  # sum_x min(p(x), q(x)): the chance that a drawn draft token is accepted
    agreement: float  # how often both have the same likeliest token
    positions: int


def dist(logits: Tensor, temperature: float) -> Tensor:
    """Return the distribution at a temperature, [N, V]; 0 puts all on the likeliest token."""
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    return torch.softmax(logits / temperature, -1)


def compare(pairs: Iterator[tuple[Tensor, Tensor]], temperature: float) -> Acceptance:
    """Average over pairs of logits (target's, draft's), each [N, V]."""
    overlap = agreement = 0.0
    count = 0
    for p, q in pairs:
        overlap += torch.minimum(dist(p, temperature), dist(q, temperature)).sum().item()
        agreement += (p.argmax(-1) == q.argmax(-1)).sum().item()
        count += len(p)
    return Acceptance(overlap / count, agreement / count, count)


def own_positions(shard: Shard, at: int, rows: int) -> Tensor:
    """Mark the positions whose next token the target drew itself, [rows, length] bool."""
    own = torch.from_numpy(np.array(shard.own[at : at + rows]))
    following = torch.zeros_like(own)
    following[:, :-1] = own[:, 1:]
    return following


def logit_pairs(draft: Llama, teacher: Llama, shard: Shard, rows: int = 8) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits of target and draft where the target's own tokens were drawn."""
    device = draft.embed.weight.device
    for at in range(0, len(shard.tokens), rows):
        chosen = own_positions(shard, at, rows).to(device)
        tokens = torch.from_numpy(shard.tokens[at : at + rows].astype(np.int64)).to(device)
        hidden = torch.from_numpy(shard.hidden[at : at + rows].astype(np.float32)).to(device)
        yield teacher.logits(hidden[chosen]), draft.logits(draft.hidden(tokens)[chosen])


@torch.no_grad()
def acceptance(draft: Llama, teacher: Llama, shard: Shard, temperature: float) -> Acceptance:
    """Compare the draft with the target on text that the target wrote."""
    return compare(logit_pairs(draft, teacher, shard), temperature)


@torch.no_grad()
def exit_acceptance(model: Llama, shard: Shard, layer: int, temperature: float, rows: int = 8) -> Acceptance:
    """Compare the model's early exit after `layer` blocks with its last layer."""

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for at in range(0, len(shard.tokens), rows):
            chosen = own_positions(shard, at, rows)
            tokens = torch.from_numpy(shard.tokens[at : at + rows].astype(np.int64))
            states = model.layers(tokens.to(model.embed.weight.device))
            last, early = states[-1][chosen], states[layer - 1][chosen]
            yield model.logits(model.norm(last)), model.logits(model.norm(early))

    return compare(pairs(), temperature)


@torch.no_grad()
def bits_per_byte(model: Llama, valid: Split, windows: int = 64, length: int = 512, skip: int = 128) -> float:
    """Score evenly spaced windows of the held-out books, each past its first `skip` tokens."""
    tokens, device = valid.tokens, model.embed.weight.device
    starts = np.linspace(0, len(tokens) - length - 2, windows).astype(int)
    total = 0.0
    for at in range(0, windows, 8):
        rows = np.stack([tokens[s : s + length + 1] for s in starts[at : at + 8]]).astype(np.int64)
        x = torch.from_numpy(rows).to(device)
        logits = model.logits(model.hidden(x[:, :-1]))[:, skip:]
        total += F.cross_entropy(logits.flatten(0, 1), x[:, skip + 1 :].flatten()).item() * len(x)
    return total / windows / math.log(2) * len(tokens) / valid.n_bytes


PROMPTS = ("Once upon a time", "Tell me a story about a fox and a king.", "Tell me a story about Alice and the sea.")


def samples(model: Llama, tokenizer: Tokenizer, temperature: float, seed: int, length: int = 256) -> str:
    """Answer a few chat requests; return requests and answers as text, unedited."""
    parts = []
    for index, prompt in enumerate(PROMPTS):
        rng = np.random.default_rng([seed, index])
        ids = [BOS, *encode_turn(tokenizer, Turn("user", prompt)), START, *tokenizer.encode("assistant\n").ids]
        answer = write_row(model, ids, temperature, length, rng)
        parts.append(f"> {prompt}\n\n{tokenizer.decode(answer)}\n")
    return "\n".join(parts)


@torch.no_grad()
def write_row(model: Llama, ids: list[int], temperature: float, length: int, rng: np.random.Generator) -> list[int]:
    """Continue `ids` by up to `length` tokens or to the end of the turn."""
    device = model.embed.weight.device
    cache = Cache(model.shape, 1, len(ids) + length, device)
    answer: list[int] = []
    warmth = torch.tensor([temperature], device=device)
    for at in range(len(ids) + length - 1):
        token = ids[at] if at < len(ids) else answer[-1]
        state = model.step(torch.tensor([token], device=device), cache, at)
        if at + 1 < len(ids):
            continue
        uniform = torch.tensor([rng.random()], dtype=torch.float32, device=device)
        drawn = int(draw(model.logits(state), warmth, uniform))
        if drawn in (BOS, END):
            break
        answer.append(drawn)
    return answer
