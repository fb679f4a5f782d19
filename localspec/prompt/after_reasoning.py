"""A constraint that begins where the reasoning of an answer ends.

Until then any text is allowed, but for its end. A model that may reason, and need not, either begins with the mark of
its reasoning or with what the constraint allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.engine.constraint import NOTHING, Matched
from localspec.engine.distribution import Ids
from localspec.engine.text import Marks


@dataclass
class AfterReasoning:
    """`inner` from the end of the reasoning on; the answer follows the first `begin` tokens of a text. `tokenize` reads
    a mark as tokens, `piece` writes a token. `free` are the tokens that do not end a text."""

    inner: Matched
    begin: int
    marks: Marks
    tokenize: Callable[[str], list[int]]
    piece: Callable[[int], bytes]
    free: Ids

    def __post_init__(self) -> None:
        marks = self.marks.start, self.marks.skip
        self._start, self._skip = ([] if not text else self.tokenize(text) for text in marks)
        self._thought: list[int] = []  # the longest beginning of an answer that was seen to be reasoning

    def allowed(self, text: Sequence[int]) -> Ids:
        answer = list(text[self.begin :])
        n_open = len(self._start)
        if self.marks.is_open or (n_open and answer[:n_open] == self._start):
            end = self._end(answer, 0 if self.marks.is_open else n_open)
            return self.free if end is None else self._after(text, end)
        n_skip = len(self._skip)
        if n_skip and answer[:n_skip] == self._skip:
            return self._after(text, n_skip)
        opening = [mark[len(answer)] for mark in (self._start, self._skip) if mark[: len(answer)] == answer and mark]
        after = NOTHING if n_skip else self._after(text, 0)
        return np.union1d(after, np.array(opening, np.int32)) if opening else after

    def _after(self, text: Sequence[int], n: int) -> Ids:
        """Return what may follow where the first `n` tokens of the answer are no part of it."""
        self.inner.begin_at(self.begin + n)
        return self.inner.allowed(text)

    def _end(self, answer: list[int], n_open: int) -> int | None:
        """Return how many tokens the reasoning has, None while it lasts."""
        mark = self.marks.end.encode()
        known = max(n_open, len(self._thought) if answer[: len(self._thought)] == self._thought else 0)
        first = max(n_open, known - len(mark))  # the mark may have begun there
        said = b"".join(self.piece(token) for token in answer[first:known])
        for n, token in enumerate(answer[known:], start=known + 1):
            said = said[-len(mark) :] + self.piece(token)
            if mark in said:
                self._thought = answer[: n - 1]
                return n
        self._thought = answer
        return None
