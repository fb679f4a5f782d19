"""N-gram cache: count what follows each n-gram, draft the most frequent continuation (arXiv 2404.08698, NASD).

The next token is the argmax of the counts of the longest context of n, n-1, .. 1 tokens that is known; a draft is such
look-ups one after another on text and draft. The counts outlive the text they come from: a regenerated answer finds
what the last one said, and with `file` so does the next run.

The file holds the tokens of earlier answers, not their counts: a header, then int32 tokens in the order they were
committed, -1 before each text. A pass appends its few tokens, so nothing has to be saved at the end and a killed run
loses nothing; a torn last token is dropped. Creating the file, and shortening it once it is twice as long as what is
kept, writes another file and renames it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from localspec.engine.draft import Draft, Step
from localspec.engine.protocols import History, Plan, Rows
from localspec.errors import IncompatibleError, IntegrityError, UsageError
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._lookup import Guess, LookupDrafter, chain
from localspec.settings.declaration import Option
from localspec.settings.folders import replacing, typed_path

MAGIC = b"localspec ngram-cache 1\n"
HEADER = len(MAGIC) + 4  # then the vocabulary's size, and the tokens
START = -1
KEPT = 32_768  # tokens: read in a tenth of a second


class NgramCache(LookupDrafter):
    """Counts continuations of n-grams."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="ngram-cache",
        summary="drafts the tokens that most often followed the last ones, in prompt, answers and earlier runs",
        needs="nothing",
        paper="2404.08698",
        is_lossless=True,
        default_k=4,
        options=(
            Option("n", 3, "tokens of the longest context that is counted", low=1, high=8),
            Option("stop_if_unknown", True, "end the draft at an unknown context; else guess the most frequent token"),
            Option("file", "", "keep generated text in this file, for later runs; bench and race ignore it"),
        ),
        has_own_shape=True,
    )

    def __init__(self, parts: DrafterContext) -> None:
        """Open the file, if one is named; raises LocalspecError where it cannot be used."""
        super().__init__(parts)
        self._sizes = range(1 if self.options["stop_if_unknown"] else 0, int(self.options["n"]) + 1)
        self._after: dict[tuple[int, ...], _Counts] = {}
        path = str(self.options["file"])
        self._file = NgramFile(typed_path(path), parts.n_vocab) if path else None
        self._has_read = False  # what the file holds

    def begin(self, history: History) -> None:
        """Also note the first token of the answer, which no pass commits."""
        super().begin(history)
        if self._file is not None:
            self._file.begin(history.tokens[-1])

    def observe(self, step: Step, rows: Rows) -> None:
        """Also keep what was committed."""
        if self._file is not None:
            self._file.append(step.tokens)

    def learn(self, text: Sequence[int], start: int) -> None:
        """Count what follows every context; first, once, in the texts of earlier runs."""
        if self._file is not None and not self._has_read:
            for earlier in self._file.texts:
                self._count(earlier, 0)
        self._has_read = True
        self._count(text, start)

    def forget(self, length: int) -> int:
        """Forget nothing: the counts are of all that was said."""
        return length

    def grow(self, text: Sequence[int], plan: Plan) -> Draft:
        """Look up one token after another, each after those before it."""
        tail = text[-self._sizes[-1] :]

        def looked_up(tokens: Sequence[int]) -> Guess | None:
            found = self._find([*tail, *tokens])
            return None if found is None else Guess(found.best, found.counts)

        return chain(text[-1], plan, looked_up, self.is_eog)

    def _count(self, text: Sequence[int], start: int) -> None:
        after = self._after
        for at in range(max(start, 1), len(text)):
            token = text[at]
            for n in self._sizes:
                if n > at:
                    break
                context = tuple(text[at - n : at])
                counts = after.get(context)
                if counts is None:
                    counts = after[context] = _Counts(token)
                counts.add(token)

    def _find(self, context: Sequence[int]) -> _Counts | None:
        """Return the counts of the longest suffix of `context` that was followed by something."""
        for n in reversed(self._sizes):
            counts = self._after.get(tuple(context[len(context) - n :])) if n <= len(context) else None
            if counts is not None:
                return counts
        return None


class _Counts:
    """How often each token followed one context; `best` is the most frequent, the latest of equals."""

    __slots__ = ("best", "counts")

    def __init__(self, first: int) -> None:
        self.best = first
        self.counts: dict[int, int] = {first: 0}

    def add(self, token: int) -> None:
        count = self.counts[token] = self.counts.get(token, 0) + 1
        if count >= self.counts[self.best]:
            self.best = token


class NgramFile:
    """One open cache; `texts` are those of earlier runs. Raises LocalspecError for a file that it cannot be."""

    def __init__(self, path: Path, n_vocab: int) -> None:
        self._path = path
        self._n_vocab = n_vocab
        self._can_write = True
        try:
            tokens = self._read() if path.exists() else self._write(np.zeros(0, np.int32))
            if path.stat().st_size != HEADER + 4 * tokens.size:  # torn at the end, or longer than what is kept
                self._write(tokens)
        except OSError as error:
            raise UsageError(
                f"-o file={path} cannot be used: {error.strerror}", hint="-o file=FILE in a folder that can be written"
            ) from error
        self.texts = _split(tokens)

    def begin(self, token: int) -> None:
        """Append the first token of a new text."""
        self.append((START, token))

    def append(self, tokens: Sequence[int]) -> None:
        """Append tokens. Where that fails the file stays as it is from then on: a cache is not worth an answer."""
        if not self._can_write:
            return
        try:
            with open(self._path, "ab", opener=_existing) as file:
                file.write(np.array(tokens, "<i4").tobytes())
        except OSError:
            self._can_write = False

    def _read(self) -> NDArray[np.int32]:
        """Return the tokens on disk."""
        if not self._path.is_file():
            raise self._broken("is not a file")
        with self._path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise self._broken("is not an n-gram cache of localspec")
            size = int.from_bytes(file.read(4), "little")
            if size != self._n_vocab:
                raise IncompatibleError(
                    f"{self._path} was learned from a model with {size} tokens, and this one has {self._n_vocab}",
                    hint="-o file=FILE with one file for each model",
                )
            n_tokens = (self._path.stat().st_size - HEADER) // 4  # a killed run may leave a torn one after them
            n_tokens, first = (n_tokens, 0) if n_tokens <= 2 * KEPT else (KEPT, n_tokens - KEPT)
            file.seek(HEADER + 4 * first)
            tokens = np.frombuffer(file.read(4 * n_tokens), "<i4").astype(np.int32)
        if tokens.size and (tokens.min() < START or tokens.max() >= self._n_vocab):
            raise self._broken("is damaged: it holds tokens that do not exist")
        return tokens

    def _write(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """Make the file hold `tokens`, which are returned; whatever happens, it is whole: the old one or the new."""
        with replacing(self._path) as file:
            file.write(MAGIC + self._n_vocab.to_bytes(4, "little") + tokens.astype("<i4").tobytes())
        return tokens

    def _broken(self, what: str) -> IntegrityError:
        return IntegrityError(f"-o file={self._path} {what}", hint="-o file=ANOTHER_FILE")


def _existing(path: str, flags: int) -> int:
    """Open without creating: a file that was removed meanwhile would come back without its header."""
    return os.open(path, flags & ~os.O_CREAT)


def _split(tokens: NDArray[np.int32]) -> list[list[int]]:
    """Return the texts between the marks."""
    cuts = [-1, *np.flatnonzero(tokens == START).tolist(), tokens.size]
    return [tokens[a + 1 : b].tolist() for a, b in pairwise(cuts) if b > a + 1]
