"""Train the target: books and chats, with an early-exit loss so that its first layers can draft too.

At each step one random early layer is also scored through the shared norm and head (LayerSkip, arXiv 2404.16710).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .chat import ChatCutter
from .data import Split, book_row
from .evaluate import bits_per_byte
from .model import Llama, save_model
from .optim import Log, Schedule, Trainer


@dataclass(frozen=True)
class Mix:
    """What a step of training reads: `tokens` of rows of one of `lengths`, `chat` of them conversations."""

    tokens: int = 4096
    lengths: tuple[int, ...] = (256, 256, 512, 1024)
    chat: float = 0.35
    exit_weight: float = 0.2
    exits: tuple[int, int] = (2, 5)  # the layers that may be scored early, both included


class TargetTask:
    """The loss of one step."""

    def __init__(self, model: Llama, split: Split, chats: ChatCutter, mix: Mix, bf16: bool) -> None:
        self.model, self.split, self.chats, self.mix, self.bf16 = model, split, chats, mix, bf16
        self.device = model.embed.weight.device
        self.last = math.nan

    def batch(self, rng: np.random.Generator) -> Tensor:
        """Return rows [rows, length + 1]."""
        length = int(rng.choice(self.mix.lengths))
        rows = []
        for _ in range(self.mix.tokens // length):
            if rng.random() < self.mix.chat:
                rows.append(self.chats.row(length + 1, rng))
            else:
                rows.append(book_row(self.split, length + 1, rng))
        return torch.from_numpy(np.stack(rows)).to(self.device)

    def loss(self, rng: np.random.Generator) -> Tensor:
        """Score one batch at the last layer and at one early layer."""
        low, high = self.mix.exits
        exit_layer = int(rng.integers(low, high + 1))
        x = self.batch(rng)
        wanted = x[:, 1:].flatten()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            states = self.model.layers(x[:, :-1])
            last = self.model.logits(self.model.norm(states[-1])).flatten(0, 1)
            early = self.model.logits(self.model.norm(states[exit_layer - 1])).flatten(0, 1)
        loss = F.cross_entropy(last.float(), wanted)
        self.last = loss.item()
        return loss + self.mix.exit_weight * F.cross_entropy(early.float(), wanted)


def train_target(task: TargetTask, trainer: Trainer, valid: Split, out: Path, log: Log) -> None:
    """Run `trainer` to the end of its budget, then write the model to `out`."""
    if trainer.resume():
        log(f"target: continued at step {trainer.step}")
    steps, mean, began, first = trainer.schedule.steps, math.nan, time.time(), trainer.step
    while trainer.step < steps:
        trainer.advance(task.loss)
        mean = task.last if math.isnan(mean) else 0.97 * mean + 0.03 * task.last
        if trainer.step % 50 == 0:
            rate = (trainer.step - first) * task.mix.tokens / (time.time() - began)
            log(f"target: step {trainer.step}/{steps} loss {mean:.3f} {rate:.0f} tokens/s")
            trainer.save()
        if trainer.step % 500 == 0:
            log(f"target: step {trainer.step} bits per byte {bits_per_byte(task.model, valid):.4f}")
    trainer.save()
    save_model(task.model, out)
    log(f"target: done, bits per byte {bits_per_byte(task.model, valid):.4f}")


def target_schedule(steps: int, matrix_lr: float, other_lr: float) -> Schedule:
    """Return the schedule of a run that continues a trained model: short warm-up, long fall."""
    return Schedule(steps, matrix_lr, other_lr, warmup=60, flat=0.34, floor=0.02)
