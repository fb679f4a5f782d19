"""Distil the draft: first the teacher's whole distribution, then the acceptance rate itself.

Speculative sampling accepts a drafted token with probability sum_x min(p(x), q(x)) (arXiv 2211.17192), so after a
stretch of forward KL, which gets q roughly right everywhere, the loss is one minus that sum (the total variation
of DistillSpec, arXiv 2310.08461), with a little KL left in to keep the gradient alive where q is far off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .evaluate import acceptance
from .features import Shard
from .model import Llama, save_model
from .optim import Log, Trainer


@dataclass(frozen=True)
class Recipe:
    """What a step of distillation looks at."""

    rows: int = 8
    length: int = 256
    kl_share: float = 0.5  # the part of the steps that is KL alone
    kl_kept: float = 0.1  # its weight afterwards
    cool_weight: float = 0.0  # weight of the same loss at temperature 0.8


def start_from_teacher(draft: Llama, teacher: Llama) -> None:
    """Set the tied embedding to the teacher's head in its leading principal directions.

    Scaled down to 0.3, for at the start the stream is the token's own embedding and would only predict itself.
    """
    assert teacher.head is not None
    head = teacher.head.weight.detach() * teacher.norm.weight.detach()
    _, _, axes = torch.linalg.svd(head, full_matrices=False)
    with torch.no_grad():
        draft.embed.weight.copy_(0.3 * head @ axes[: draft.shape.d].T)


def divergence(p_logits: Tensor, q_logits: Tensor, kl_weight: float, overlap_weight: float) -> Tensor:
    """Return kl_weight * KL(p, q) + overlap_weight * (1 - sum min(p, q)), the mean over rows [N, V]."""
    log_q = F.log_softmax(q_logits, -1)
    log_p = F.log_softmax(p_logits, -1)
    p = log_p.exp()
    loss = torch.zeros((), device=p.device)
    if kl_weight:
        loss = loss + kl_weight * (p * (log_p - log_q)).sum(-1).mean()
    if overlap_weight:
        loss = loss + overlap_weight * (1 - torch.minimum(p, log_q.exp()).sum(-1).mean())
    return loss


class Distiller:
    """Draws windows from shards and scores a draft on them."""

    def __init__(self, draft: Llama, teacher: Llama, shards: Sequence[Shard], recipe: Recipe, bf16: bool) -> None:
        self.draft, self.shards, self.recipe, self.bf16 = draft, shards, recipe, bf16
        self.device = draft.embed.weight.device
        assert teacher.head is not None
        self.head = teacher.head.weight.detach().to(self.device)
        sizes = np.array([s.tokens.size for s in shards], dtype=np.float64)
        self.share = sizes / sizes.sum()

    def window(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens [rows, length] and the teacher's states for them."""
        shard = self.shards[int(rng.choice(len(self.shards), p=self.share))]
        rows = rng.integers(0, len(shard.tokens), self.recipe.rows)
        length = min(self.recipe.length * int(rng.choice((1, 1, 2))), shard.tokens.shape[1])
        rows = rows[: max(1, self.recipe.rows * self.recipe.length // length)]
        tokens = np.stack([shard.tokens[r, :length] for r in rows]).astype(np.int64)
        hidden = np.stack([shard.hidden[r, :length] for r in rows])
        return torch.from_numpy(tokens).to(self.device), torch.from_numpy(hidden).to(self.device)

    def loss(self, rng: np.random.Generator, progress: float) -> Tensor:
        """Score the draft on one window; `progress` in 0..1 picks the loss."""
        tokens, hidden = self.window(rng)
        hidden = hidden.to(torch.bfloat16 if self.bf16 else torch.float32)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            q = self.draft.logits(self.draft.hidden(tokens)).flatten(0, 1).float()
            with torch.no_grad():
                p = F.linear(hidden, self.head).flatten(0, 1).float()
        late = progress >= self.recipe.kl_share
        kl, overlap = (self.recipe.kl_kept, 1.0) if late else (1.0, 0.0)
        loss = divergence(p, q, kl, overlap)
        if self.recipe.cool_weight and late:
            loss = loss + self.recipe.cool_weight * divergence(p / 0.8, q / 0.8, 0.0, overlap)
        return loss


def train_draft(distiller: Distiller, trainer: Trainer, teacher: Llama, held: Shard, *, out: Path, log: Log) -> None:
    """Run `trainer` to the end of its budget, then write the draft to `out`."""
    name = out.name
    if trainer.resume():
        log(f"{name}: continued at step {trainer.step}")
    steps, mean, began, first = trainer.schedule.steps, math.nan, time.time(), trainer.step
    size = distiller.recipe.rows * distiller.recipe.length

    def loss(rng: np.random.Generator) -> Tensor:
        nonlocal mean
        value = distiller.loss(rng, trainer.step / steps)
        mean = value.item() if math.isnan(mean) else 0.97 * mean + 0.03 * value.item()
        return value

    while trainer.step < steps:
        trainer.advance(loss)
        if trainer.step % 50 == 0:
            rate = (trainer.step - first) * size / (time.time() - began)
            log(f"{name}: step {trainer.step}/{steps} loss {mean:.3f} {rate:.0f} tokens/s")
            trainer.save()
        if trainer.step % 250 == 0:
            log(f"{name}: step {trainer.step} acceptance {acceptance(distiller.draft, teacher, held, 1.0).overlap:.4f}")
    trainer.save()
    save_model(distiller.draft, out)
    log(f"{name}: done, acceptance {acceptance(distiller.draft, teacher, held, 1.0).overlap:.4f}")
