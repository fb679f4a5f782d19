"""Training data: the target's own text on given prompts, with the hidden states that its head reads.

Several texts are written at once, as the branches of one tree. The result depends on the prompts and the seed alone, so
that a run that was ended goes on with the text after the last shard. Every eighth prompt is held out: its text is in a
shard of its own, at temperature 0.
"""

import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.tap import StateListener, States, Tap
from localspec.engine.events import Returning
from localspec.engine.protocols import Logits
from localspec.errors import ResourceError, UsageError
from localspec.heads.text_shards import Text, read_shards, shards, write_shard
from localspec.sanitize import shown

SHARD = 8192  # tokens of a shard, at least
HELD_OUT = 8  # of so many prompts one is held out
TEMPERATURE = 0.8  # of texts to train with, but for the first of every second prompt
ROWS = 64  # of a pass, each with its logits
WRITERS = 16  # texts at once: 16 rows in a pass were 2.4 times as quick as one (Qwen 0.5B, 2 cores)
LARGEST = 65504.0  # that float16 holds


@dataclass(frozen=True)
class Collected:
    """How far the collection is: tokens so far, and seconds left."""

    tokens: int
    seconds_left: float


@dataclass
class OpenText:
    """A text that is being written behind a prompt, whose tokens `tokens` begins with.

    `node` is that of its last token in the tree, and `drawn` the token that follows all of `tokens`.
    """

    tokens: list[int]
    temperature: float
    rng: np.random.Generator
    states: list[States] = field(default_factory=list)
    node: int = -1
    drawn: int = -1

    def __post_init__(self) -> None:
        self.n_prompt = len(self.tokens)


class TextSource:
    """A target that writes texts, and the hidden states of their tokens.

    `backend` decodes at most `ROWS` rows in a pass and holds `WRITERS` leaves. `layers` are those whose inputs the head
    reads, if any.
    """

    def __init__(self, backend: LlamaBackend, layers: Sequence[int], n_embd: int) -> None:
        self._model, self._backend, self._width = backend.model, backend, n_embd
        self._n_nodes = 0
        self._listener = StateListener(Tap(n_embd, tuple(layers), has_both=True), lambda _start, _states: None)
        backend.listen(self._listener)

    def texts(self, texts: Sequence[OpenText], most: int) -> Generator[int, None, list[Text]]:
        """Continue at most `WRITERS` prompts by at most `most` tokens; return prompts with answers.

        It yields how many tokens each pass evaluates.
        """
        self._backend.truncate(0)
        self._n_nodes = 0
        waiting = [(text, token) for text in texts for token in text.tokens]
        for start in range(0, len(waiting), ROWS):
            yield self._pass(waiting[start : start + ROWS])
        going = list(texts)
        while going:
            for text in going:
                text.tokens.append(text.drawn)
                if self._model.is_eog(text.drawn):  # it is not evaluated, and its states are not used
                    text.states.append(np.zeros_like(text.states[0]))
            going = [text for text in going if len(text.states) < len(text.tokens)]
            if going:
                yield self._pass([(text, text.drawn) for text in going])
            going = [text for text in going if len(text.tokens) < text.n_prompt + most]
        return [self._text(text) for text in texts]

    def _pass(self, entries: Sequence[tuple[OpenText, int]]) -> int:
        """Evaluate tokens, each below the one before it in its text, and draw the next token of texts that end here."""
        first, parents = self._n_nodes, []
        for node, (text, _) in enumerate(entries, first):
            parents.append(text.node)
            text.node = node
        tokens = np.array([token for _, token in entries])
        rows = self._backend.extend(tokens, np.array(parents))
        self._n_nodes += len(entries)
        states = self._listener.last(len(entries))
        for node, (text, _) in enumerate(entries, first):
            text.states.append(states[node - first])
            if len(text.states) == len(text.tokens):
                text.drawn = drawn(rows.logits(node), text.temperature, text.rng, self._model.suppressed)
        return len(entries)

    def _text(self, text: OpenText) -> Text:
        states = np.clip(np.stack(text.states), -LARGEST, LARGEST).astype(np.float16)
        inputs = states.shape[1] - self._width
        own = np.arange(len(states)) >= text.n_prompt
        ids = np.array(text.tokens, np.int32)
        return Text(ids, states[:, :inputs], states[:, inputs:], own) if inputs else Text(ids, states, None, own)


def drawn(row: Logits, temperature: float, rng: np.random.Generator, never: Sequence[int] = ()) -> int:
    """Draw a token of the softmax of `row` [V], none of `never`; at temperature 0 return the most probable."""
    row = row.copy()
    row[list(never)] = -np.inf
    best = int(row.argmax())
    if not temperature:
        return best
    sums = np.exp((row - row[best]) / temperature).cumsum(dtype=np.float64)
    return int(sums.searchsorted(rng.random() * sums[-1], side="right"))


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
    """Write shards to `folder` until they hold `tokens`, and report after each pass. Shards that are there count.

    The first text of every second prompt is at temperature 0. Held-out prompts have one text, at temperature 0. Raises
    ResourceError where a shard cannot be written.
    """
    known = shards(folder)
    n_texts = len(read_shards(known))
    number, written = len(known), sum(map(len, read_shards(known)))
    began, before, done = time.monotonic(), written, written
    waiting: list[Text] = []
    while done < tokens and (n_texts < len(prompts) or not is_held):
        end = min(n_texts + WRITERS, len(prompts)) if is_held else n_texts + WRITERS
        begun = [_begun(prompts, text, seed, is_held=is_held) for text in range(n_texts, end)]
        writing = Returning(source.texts(begun, most))
        for n in writing:
            done += n
            yield Collected(done, (time.monotonic() - began) / (done - before) * max(0, tokens - done))
        waiting += writing.result
        n_texts, done = end, written + sum(map(len, waiting))
        is_last = done >= tokens or (is_held and n_texts == len(prompts))
        if is_last or done - written >= SHARD:
            _written(folder / f"{number:05}", waiting)
            waiting, number, written = [], number + 1, done


def _begun(prompts: Sequence[Sequence[int]], number: int, seed: int, *, is_held: bool) -> OpenText:
    is_cold = is_held or (number < len(prompts) and number % 2 == 0)
    rng = np.random.default_rng([seed, number])
    return OpenText(list(prompts[number % len(prompts)]), 0.0 if is_cold else TEMPERATURE, rng)


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
