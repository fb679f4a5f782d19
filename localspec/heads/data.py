"""Training data: the target's own text on given prompts, with the hidden states that its head reads.

What is generated depends on the prompts and the seed alone, text by text, so that a run that was ended goes on with the
text after the last shard. Every eighth prompt is held out: its text is in a shard of its own, at temperature 0.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localspec.backends import ext
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.reading import not_cancelled
from localspec.backends.tap import Listening, States, Tap
from localspec.engine.protocols import Logits
from localspec.errors import ResourceError, UsageError
from localspec.heads.shards import Text, read_shards, shards, write_shard
from localspec.sanitize import shown

SHARD = 8192  # tokens of a shard, at least
HELD_OUT = 8  # of so many prompts one is held out
TEMPERATURE = 0.8  # of texts to train with, after the first of each prompt
ROWS = 64  # of a pass, each with its logits
LARGEST = 65504.0  # that float16 holds


@dataclass(frozen=True)
class Collected:
    """How far the collection is: tokens so far, and seconds left."""

    tokens: int
    seconds_left: float


class StateTap(Tap):
    """The inputs of some layers, and behind them the state after the last norm.

    Each row of a pass has logits, of a whole prompt too, so that the passes must be short.
    """

    @property
    def width(self) -> int:
        """Return the numbers in a row of states."""
        return self.n_embd * (len(self.layers) + 1)

    @property
    def takes_logits(self) -> bool:
        """Return False: a whole prompt is read in passes that are short enough for its logits."""
        return False

    def install(self, context: Any) -> None:
        """Let the passes of a context keep these states."""
        for layer in self.layers:
            ext.tap_layer(context, layer)
        ext.keep_states(context, True)

    def rows(self, context: Any, n: int) -> States:
        """Return a copy [n, width] of the states of the last pass."""
        inputs = [ext.layer_inputs(context, layer, n, self.n_embd) for layer in self.layers]
        return np.concatenate([*inputs, ext.states(context, n, self.n_embd)], axis=1)


class TextSource:
    """A target that writes texts, and the hidden states of their tokens.

    `backend` decodes at most `ROWS` rows in a pass. `layers` are those whose inputs the head reads, if any.
    """

    def __init__(self, model: Model, backend: LlamaBackend, layers: Sequence[int], n_embd: int) -> None:
        self._model, self._backend, self._width = model, backend, n_embd
        self._rows: list[States] = []
        backend.listen(Listening(StateTap(n_embd, tuple(layers)), self._hear))

    def text(self, prompt: Sequence[int], most: int, temperature: float, seed: Sequence[int]) -> Text:
        """Continue a prompt by at most `most` tokens; return prompt and answer."""
        rng = np.random.default_rng(list(seed))
        tokens = list(prompt)
        self._backend.truncate(0)
        self._rows = []
        row = self._backend.prefill(tokens, not_cancelled).logits(0)
        while len(tokens) < len(prompt) + most:
            token = drawn(row, temperature, rng, self._model.suppressed)
            tokens.append(token)
            if self._model.is_eog(token):  # it is not evaluated, and its states are not used
                self._rows.append(np.zeros_like(self._rows[0][:1]))
                break
            row = self._backend.extend(np.array([token]), np.array([-1])).logits(0)
            self._backend.keep((0,))
        states = np.clip(np.concatenate(self._rows), -LARGEST, LARGEST).astype(np.float16)
        assert len(states) == len(tokens), "each token has its states"
        inputs = states.shape[1] - self._width
        own = np.arange(len(tokens)) >= len(prompt)
        ids = np.array(tokens, np.int32)
        return Text(ids, states[:, :inputs], states[:, inputs:], own) if inputs else Text(ids, states, None, own)

    def _hear(self, _start: int, states: States) -> None:
        self._rows.append(states)


def drawn(row: Logits, temperature: float, rng: np.random.Generator, never: Sequence[int] = ()) -> int:
    """Draw a token of the softmax of `row` [V], none of `never`; at temperature 0 return the most probable."""
    noisy = row / temperature + rng.gumbel(size=len(row)) if temperature else row.copy()
    noisy[list(never)] = -np.inf
    return int(noisy.argmax())


def split(prompts: Sequence[Sequence[int]]) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """Return the prompts to train with and those that are held out. Raises UsageError for fewer than two."""
    if len(prompts) < 2:
        raise UsageError("training needs two prompts at least, one of them to measure with", hint="--prompts FILE")
    held = [prompt for index, prompt in enumerate(prompts) if index % HELD_OUT == 1]
    return [prompt for index, prompt in enumerate(prompts) if index % HELD_OUT != 1], held


def collect(
    folder: Path,
    source: TextSource,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    *,
    most: int,
    seed: int,
    is_held: bool = False,
) -> Iterator[Collected]:
    """Write shards to `folder` until they hold `tokens`, and report after each text. Shards that are there count.

    The first text of each prompt is at temperature 0; held-out prompts have one text only. Raises ResourceError where a
    shard cannot be written.
    """
    known = shards(folder)
    texts = read_shards(known)
    n_texts, n_known, number = len(texts), sum(map(len, texts)), len(known)
    done, began = n_known, time.monotonic()
    waiting: list[Text] = []
    while done < tokens and (n_texts < len(prompts) or not is_held):
        temperature = 0.0 if n_texts < len(prompts) else TEMPERATURE
        text = source.text(prompts[n_texts % len(prompts)], most, temperature, [seed, n_texts])
        waiting.append(text)
        n_texts, done = n_texts + 1, done + len(text)
        is_last = done >= tokens or (is_held and n_texts == len(prompts))
        if is_last or sum(map(len, waiting)) >= SHARD:
            _written(folder / f"{number:05}", waiting)
            waiting, number = [], number + 1
        pace = (time.monotonic() - began) / (done - n_known)
        yield Collected(done, pace * max(0, tokens - done))


def _written(folder: Path, texts: Sequence[Text]) -> None:
    try:
        write_shard(folder, texts)
    except OSError as error:
        free = shutil.disk_usage(folder.parent).free if folder.parent.exists() else 0
        raise ResourceError(
            f"the training data cannot be kept in {shown(folder.parent)}: {error.strerror or error}",
            hint="free some space and repeat the command, or keep it elsewhere with LOCALSPEC_HOME=FOLDER",
            detail={"free_bytes": free},
        ) from error
