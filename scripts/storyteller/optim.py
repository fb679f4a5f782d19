"""Muon for the hidden matrices, AdamW for the rest, one learning-rate schedule, and resumable checkpoints.

A run is a pure function of (start weights, data, settings, seed): the randomness of a step is drawn from
(seed, step) alone, so weights, optimiser state and the step number are all a checkpoint has to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .model import Llama


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by five Newton-Schulz steps (Jordan et al., github.com/KellerJordan/Muon)."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, decay: float = 0.01) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override] - torch also offers a closure
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "m" not in state:
                    state["m"] = torch.zeros_like(p)
                state["m"].lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalise(p.grad.lerp(state["m"], group["momentum"]))
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - group["lr"] * group["decay"]).add_(update, alpha=-group["lr"] * scale)


def orthogonalise(x: Tensor) -> Tensor:
    """Push the singular values of a matrix towards one."""
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


@dataclass(frozen=True)
class Schedule:
    """A step budget: linear warm-up, a flat stretch, then a linear fall to `floor` times the peak."""

    steps: int
    matrix_lr: float
    other_lr: float
    warmup: int = 60
    flat: float = 0.4
    floor: float = 0.03

    def scale(self, step: int) -> float:
        """Return the factor on both peaks at `step`."""
        done = step / self.steps
        fall = 1.0 if done < self.flat else self.floor + (1 - self.floor) * (1 - done) / (1 - self.flat)
        return min(1.0, (step + 1) / self.warmup) * fall


def step_rng(seed: int, step: int) -> np.random.Generator:
    """Return the generator of one step, the same whether or not the run was ever interrupted."""
    return np.random.default_rng([seed, step])


class Trainer:
    """One resumable run: `loss(rng)` is called once a step and its gradient applied."""

    def __init__(self, model: Llama, schedule: Schedule, seed: int, checkpoint: Path) -> None:
        self.model, self.schedule, self.seed, self.checkpoint = model, schedule, seed, checkpoint
        hidden = [p for block in model.blocks for p in block.parameters() if p.dim() == 2]
        known = {id(p) for p in hidden}
        self.rest: list[nn.Parameter] = [p for p in model.parameters() if id(p) not in known]
        self.muon = Muon(hidden, lr=schedule.matrix_lr)
        self.adam = torch.optim.AdamW(self.rest, lr=schedule.other_lr, betas=(0.9, 0.95), weight_decay=0.01)
        self.step = 0

    def resume(self) -> bool:
        """Load the checkpoint if there is one."""
        if not self.checkpoint.exists():
            return False
        saved = torch.load(self.checkpoint, map_location=self.model.embed.weight.device, weights_only=True)
        if saved["seed"] != self.seed or saved["steps"] != self.schedule.steps:
            raise SystemExit(f"{self.checkpoint} belongs to a run with other settings: delete it or use another --work")
        self.model.load_state_dict(saved["model"])
        self.muon.load_state_dict(saved["muon"])
        self.adam.load_state_dict(saved["adam"])
        self.step = saved["step"]
        return True

    def save(self) -> None:
        """Write the checkpoint atomically."""
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        partial = self.checkpoint.with_name(self.checkpoint.name + ".tmp")
        state = {
            "model": self.model.state_dict(),
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "step": self.step,
            "steps": self.schedule.steps,
            "seed": self.seed,
        }
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def advance(self, loss: Callable[[np.random.Generator], Tensor]) -> None:
        """Take one step."""
        scale = self.schedule.scale(self.step)
        self.muon.param_groups[0]["lr"] = self.schedule.matrix_lr * scale
        self.adam.param_groups[0]["lr"] = self.schedule.other_lr * scale
        self.muon.zero_grad(set_to_none=True)
        self.adam.zero_grad(set_to_none=True)
        loss(step_rng(self.seed, self.step)).backward()
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        self.muon.step()
        self.adam.step()
        self.step += 1


class Log:
    """Lines on the terminal and in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, line: str) -> None:
        print(line, flush=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
