"""Training a head from shards, with checkpoints.

Each step of the training-time test (arXiv 2503.01840) is compared with the target's distribution, where its states are
at hand, else with the token that follows. For `mtp` the states count too, as in EAGLE-1 (arXiv 2401.15077). The steps
of `medusa` are its heads, weighed as in arXiv 2401.10774. A run is a pure function of weights, data and recipe: the
windows of an update are drawn from the seed and its number alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from localspec.errors import IntegrityError, ResourceError, UsageError
from localspec.heads.network import Network
from localspec.heads.text_shards import Text, windows
from localspec.sanitize import shown

UNROLLED = 3  # steps, usually
_LATER = 0.8  # the weight of each unrolled step relative to the one before it
_FLOOR = 0.03  # the last rate relative to the highest
_DRAFTS = 4  # the drafts whose acceptance is measured
_TRIALS = 5  # of a product of matrices


@dataclass(frozen=True)
class TrainingRecipe:
    """How to train.

    `updates` of `batch` windows of `pairs` tokens each, `unrolled` steps of the training-time test. The rate rises
    linearly for a share `warmup` of the updates and then falls linearly. Gradients longer than `clip` are shortened.
    `token_weight` is the weight of the cross entropy beside that of the states, which only `mtp` has. `bf16`: matrices
    are multiplied in that type; weights, norms and sums stay in F32.
    """

    updates: int
    batch: int = 4
    pairs: int = 256
    unrolled: int = UNROLLED
    rate: float = 1e-3
    warmup: float = 0.05
    clip: float = 1.0
    token_weight: float = 0.1
    seed: int = 0
    bf16: bool = False


@dataclass(frozen=True)
class Progress:
    """The state of a run: updates done, seconds left, the mean loss since the last report, None without updates.

    `accepted[k - 1]` is the share of held-out positions where the first k drafts are the target's; () if not measured.
    """

    updates: int
    seconds_left: float
    loss: float | None
    accepted: tuple[float, ...] = ()


@dataclass(frozen=True)
class WindowBatch:
    """Windows, zeros behind the shorter ones.

    `tokens` [batch, pairs + 2]; `features` [batch, pairs, w]; `states` [batch, pairs, d] of each next token, or None;
    `is_text` and `is_own` [batch, pairs]: whether there is a token to predict, and whether the target wrote it.
    """

    tokens: Tensor
    features: Tensor
    states: Tensor | None
    is_text: Tensor
    is_own: Tensor


def use(device: str, threads: int | None) -> None:
    """Let PyTorch compute on a device, with so many threads (None: as it likes). Raises UsageError without a GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("PyTorch finds no CUDA device here", hint="--device cpu")
    if threads is not None:
        torch.set_num_threads(threads)


def bf16_is_quicker(device: str) -> bool:
    """Return whether a device multiplies matrices of bfloat16 in less time than those of float32, by a trial."""
    seconds = {}
    for kind in (torch.float32, torch.bfloat16):
        ones = torch.ones(1024, 1024, dtype=kind, device=device)
        times = []
        for _ in range(_TRIALS):
            began = time.perf_counter()
            float((ones @ ones)[0, 0])  # a GPU has computed when the number is here
            times.append(time.perf_counter() - began)
        seconds[kind] = min(times)
    return seconds[torch.bfloat16] < seconds[torch.float32]


class Trainer:
    """One run, which goes on at its checkpoint.

    `rows` [n_out] are the token ids of the head's output, `teacher` [n_out, width] the same rows of the target's own
    output matrix. Raises IntegrityError for a checkpoint that cannot be read, UsageError for that of another run.
    """

    def __init__(
        self,
        network: Network,
        rows: NDArray[np.int64],
        teacher: NDArray[np.float32],
        texts: Sequence[Text],
        recipe: TrainingRecipe,
        checkpoint: Path,
        device: str = "cpu",
    ) -> None:
        self.network, self.recipe, self.checkpoint, self.device = network, recipe, checkpoint, device
        self.texts = [text for text in texts if len(text) > 2]
        sizes = np.array([len(text) for text in self.texts], float)
        self._chances = sizes / sizes.sum()
        self._rows = torch.as_tensor(rows, device=device)
        self._teacher = torch.as_tensor(teacher, device=device)
        self._places = torch.full((network.shape.vocab,), -100, device=device)  # where a token is in the output
        self._places[self._rows] = torch.arange(len(rows), device=device)
        self._optimiser = torch.optim.AdamW(network.trained.values(), lr=recipe.rate, betas=(0.9, 0.95))
        self.done = 0
        self._resume()

    def run(
        self, held: Sequence[Text], *, save_seconds: float = 300.0, report_every: int = 5, measure_every: int = 200
    ) -> Iterator[Progress]:
        """Train to the last update and report the progress; the last report is measured on the texts `held`.

        A checkpoint is written every `save_seconds` and at the end. Raises ResourceError where it cannot be.
        """
        began, first, saved = time.monotonic(), self.done, time.monotonic()
        losses: list[float] = []
        while self.done < self.recipe.updates:
            losses.append(self.update())
            is_measured = self.done % measure_every == 0
            if (is_measured or self.done % report_every == 0) and self.done < self.recipe.updates:
                pace = (time.monotonic() - began) / (self.done - first)
                left = pace * (self.recipe.updates - self.done)
                yield Progress(self.done, left, float(np.mean(losses)), self.accepted(held) if is_measured else ())
                losses.clear()
            if time.monotonic() - saved > save_seconds:
                self.save()
                saved = time.monotonic()
        self.save()
        yield Progress(self.done, 0.0, float(np.mean(losses)) if losses else None, self.accepted(held))

    def update(self) -> float:
        batch = self._drawn()
        for group in self._optimiser.param_groups:
            group["lr"] = self.recipe.rate * self._rate()
        with self._precision():
            loss = self._loss(batch)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.trained.values(), self.recipe.clip)
        self._optimiser.step()
        self.done += 1
        return float(loss.detach())

    def accepted(self, held: Sequence[Text]) -> tuple[float, ...]:
        """Return for k = 1 to 4 the share of positions of these texts where the first k drafts are the target's tokens.

        That is the chance of acceptance at temperature 0 where the target wrote the texts at that temperature.
        """
        cut = [window for window in windows(held, self.recipe.pairs + 2) if len(window) > _DRAFTS + 2]
        right, n = np.zeros(_DRAFTS), 0
        with torch.no_grad(), self._precision():
            for start in range(0, len(cut), self.recipe.batch):
                batch = self._joined(cut[start : start + self.recipe.batch])
                counts, hits = self._hits(batch)
                right += hits.sum((1, 2)).cpu().numpy()
                n += int(counts.sum())
        return tuple(float(share) for share in right / max(1, n))

    def save(self) -> None:
        part = self.checkpoint.with_name(f"{self.checkpoint.name}.tmp")
        state = {
            "run": self._identity(),
            "done": self.done,
            "weights": {name: weight.detach() for name, weight in self.network.trained.items()},
            "optimiser": self._optimiser.state_dict(),
        }
        try:
            torch.save(state, part)
            part.replace(self.checkpoint)
        except (OSError, RuntimeError) as error:  # PyTorch reports a full disk as RuntimeError
            raise ResourceError(
                f"the checkpoint cannot be written to {shown(self.checkpoint)}: {error}",
                hint="free some space and repeat the command: it goes on at the last checkpoint",
            ) from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _resume(self) -> None:
        if not self.checkpoint.exists():
            return
        again = f"Remove {shown(self.checkpoint)} to begin anew."
        try:
            state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
            is_ours = state["run"] == self._identity()
            if is_ours:
                with torch.no_grad():
                    for name, weight in self.network.trained.items():
                        weight.copy_(state["weights"][name])
                self._optimiser.load_state_dict(state["optimiser"])
                self.done = int(state["done"])
        except Exception as error:  # PyTorch reads a damaged pickle to where it makes no sense
            raise IntegrityError(f"the checkpoint {shown(self.checkpoint)} is damaged", hint=again) from error
        if not is_ours:
            raise UsageError(f"the checkpoint {shown(self.checkpoint)} belongs to a run with other options", hint=again)

    def _identity(self) -> dict[str, Any]:
        shape = {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self.network.shape).items()
        }
        return {"shape": shape, "recipe": asdict(self.recipe), "tokens": sum(map(len, self.texts))}

    def _rate(self) -> float:
        share = self.done / self.recipe.updates
        fall = (1 - share) / (1 - self.recipe.warmup)
        return min((self.done + 1) / (self.recipe.warmup * self.recipe.updates + 1), max(_FLOOR, fall))

    def _precision(self) -> Any:
        return torch.autocast(self.device, torch.bfloat16, enabled=self.recipe.bf16)

    def _drawn(self) -> WindowBatch:
        """Draw windows: a text by its length, then a place in it."""
        rng = np.random.default_rng([self.recipe.seed, self.done])
        length = self.recipe.pairs + 2
        picked = []
        for index in rng.choice(len(self.texts), self.recipe.batch, p=self._chances):
            text = self.texts[index]
            picked.append(text.part(int(rng.integers(max(1, len(text) - length + 1))), length))
        return self._joined(picked)

    def _joined(self, parts: Sequence[Text]) -> WindowBatch:
        pairs = max(map(len, parts)) - 2
        tokens = np.zeros((len(parts), pairs + 2), np.int64)
        features = np.zeros((len(parts), pairs, self.network.shape.feature_width), np.float32)
        is_text, is_own = np.zeros((2, len(parts), pairs), np.bool_)
        has_states = self.network.shape.kind != "eagle3" or parts[0].states is not None
        states = np.zeros((len(parts), pairs, self._teacher.shape[1]), np.float32)
        for row, part in enumerate(parts):
            n = len(part) - 2
            tokens[row, : n + 2], features[row, :n], is_text[row, :n] = part.tokens, part.features[:n], True
            is_own[row, :n] = True if part.own is None else part.own[2:]
            if has_states:
                source = part.features if part.states is None else part.states
                states[row, :n] = source[1 : n + 1]
        arrays = (tokens, features, states, is_text, is_own)
        tokens_, features_, states_, *masks = (torch.as_tensor(array, device=self.device) for array in arrays)
        return WindowBatch(tokens_, features_, states_ if has_states else None, *masks)

    def _loss(self, batch: WindowBatch) -> Tensor:
        steps = self.network.unroll(batch.tokens[:, 1:-1], batch.features, self.recipe.unrolled)
        taught = None if batch.states is None else F.linear(batch.states, self._teacher).softmax(-1)
        wanted = self._places[batch.tokens[:, 2:]]
        total, weights = torch.zeros((), device=self.device), 0.0
        for step, (normed, _) in enumerate(steps):
            counts = batch.is_text[:, step:]
            logits = self.network.logits(normed[:, step:][counts]).float()
            target = wanted[:, step:][counts] if taught is None else taught[:, step:][counts]
            loss = F.cross_entropy(logits, target)
            if self.network.shape.kind == "mtp" and batch.states is not None:
                near = F.smooth_l1_loss(normed[:, step:][counts].float(), batch.states[:, step:][counts])
                loss = self.recipe.token_weight * loss + near
            total, weights = total + _LATER**step * loss, weights + _LATER**step
        return total / weights

    def _hits(self, batch: WindowBatch) -> tuple[Tensor, Tensor]:
        """Return which pairs count [batch, pairs - 3], and whether the first k drafts from there on are right [k, ...].

        A pair counts if the target wrote the tokens that follow.
        """
        steps = self.network.unroll(batch.tokens[:, 1:-1], batch.features, _DRAFTS)
        n = batch.is_text.shape[1] - _DRAFTS + 1
        counts = is_right = batch.is_text[:, _DRAFTS - 1 :] & batch.is_own[:, :n]
        hits = []
        for step, (normed, _) in enumerate(steps):
            drafted = self._rows[self.network.logits(normed).argmax(-1)]
            is_right = is_right & (drafted == batch.tokens[:, 2:])[:, step : step + n]
            hits.append(is_right)
        return counts, torch.stack(hits)
