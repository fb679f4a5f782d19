"""Training text on disk: tokens, and the target's hidden states at each of them.

A shard is a folder of arrays, written whole or not at all:

- `tokens.npy` [n] int32: several texts, one behind the other;
- `starts.npy` [texts] int64: the place in `tokens` where each text begins;
- `features.npy` [n, w] float16: the states that the head reads; w is `HeadShape.feature_width`;
- `states.npy` [n, d] float16: the target's state after the last norm. Only `eagle3` has it beside the features, and may
  do without.
- `own.npy` [n] bool: whether the target wrote the token. Those of a prompt are not its own.

The states of a text's last token are not used.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import IntegrityError
from localspec.sanitize import shown

Halves = NDArray[np.float16]


@dataclass(frozen=True)
class Text:
    """One text: `tokens` [n], `features` [n, w], `states` [n, d] or None, `own` [n] as in a shard, None for all."""

    tokens: NDArray[np.int32]
    features: Halves
    states: Halves | None = None
    own: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, start: int, length: int) -> Text:
        span = slice(start, start + length)
        states = None if self.states is None else self.states[span]
        own = None if self.own is None else self.own[span]
        return Text(self.tokens[span], self.features[span], states, own)


def write_shard(folder: Path, texts: Sequence[Text]) -> None:
    part = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        np.save(part / "starts.npy", np.cumsum([0, *map(len, texts[:-1])], dtype=np.int64))
        np.save(part / "tokens.npy", np.concatenate([text.tokens for text in texts]).astype(np.int32))
        np.save(part / "features.npy", np.concatenate([text.features for text in texts]).astype(np.float16))
        own = [np.ones(len(text), np.bool_) if text.own is None else text.own for text in texts]
        np.save(part / "own.npy", np.concatenate(own))
        states = [text.states for text in texts if text.states is not None]
        if states:
            np.save(part / "states.npy", np.concatenate(states).astype(np.float16))
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_shard(folder: Path) -> list[Text]:
    """Return a shard's texts, mapped from disk. Raises IntegrityError for arrays that are damaged or do not match."""
    try:
        starts, tokens, features, own = (
            np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("starts", "tokens", "features", "own")
        )
        has_states = (folder / "states.npy").exists()
        states = np.load(folder / "states.npy", mmap_mode="r") if has_states else None
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(folder, str(error)) from error
    if {len(array) for array in (features, own, states) if array is not None} != {len(tokens)}:
        raise _damaged(folder, "its arrays have different lengths")
    ends = [*starts[1:], len(tokens)]
    whole = Text(tokens, features, states, own)
    return [whole.part(int(start), int(end - start)) for start, end in zip(starts, ends, strict=True)]


def read_shards(folders: Iterable[Path]) -> list[Text]:
    return [text for folder in folders for text in read_shard(folder)]


def shards(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.suffix != ".tmp")


def windows(texts: Sequence[Text], length: int) -> Iterator[Text]:
    """Cut texts into windows of at most `length` tokens, one behind the other; a rest of one token is dropped."""
    for text in texts:
        for start in range(0, len(text) - 1, length):
            if len(text) - start > 1:
                yield text.part(start, length)


def frequent_tokens(texts: Iterable[Text], n: int, vocab: int, always: Sequence[int]) -> NDArray[np.int64]:
    """Return the ids of the `n` most frequent tokens and of those in `always`, ascending; ties go to the lower id."""
    counts = np.zeros(vocab, np.int64)
    for text in texts:
        counts += np.bincount(text.tokens, minlength=vocab)
    order = np.argsort(-counts, kind="stable")
    return np.union1d(order[:n], np.asarray(always, np.int64)).astype(np.int64)


def _damaged(folder: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"the training data in {shown(folder)} cannot be read: {why}",
        hint="Remove that folder; the next run makes it again.",
    )
