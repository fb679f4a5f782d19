"""Texts of other files to copy from: their tokens, sorted by what stands before each of them.

A `CorpusSegment` holds the tokens of some files and a suffix array of the reversed text, cut at DEPTH tokens. So the
places whose passage is most like the end of a text stand side by side, and are found by two binary searches. A segment
is one array of numbers, which may lie in a mapped file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

BETWEEN = -1  # the token that stands between two files: nothing is copied beyond it
KEY = 3  # tokens of a passage, at least: shorter ones stand in every text
DEPTH = 3 * KEY  # tokens by which places are sorted
PLACES = 16  # that are compared
_BITS = 21  # of a token in a key of 64 bits


class CorpusSegment:
    """The tokens [n] of some files, and the places [m] in them with their keys [m], which ascend."""

    def __init__(self, numbers: NDArray[np.uint32]) -> None:
        """Take what `numbers` of another segment was; raises ValueError for anything else."""
        m = int(numbers[-1]) if len(numbers) else 0
        n = len(numbers) - 1 - 3 * m
        if not len(numbers) or n < m:
            raise ValueError("not a segment of a corpus")
        self.numbers = numbers
        self._keys = numbers[: 2 * m].view(np.uint64)
        self._places = numbers[2 * m : 3 * m]
        self.tokens = numbers[3 * m : -1].view(np.int32)
        if m and int(self._places.max()) >= n:
            raise ValueError("not a segment of a corpus")

    @property
    def n_files(self) -> int:
        return int((self.tokens == BETWEEN).sum())

    @staticmethod
    def of(files: Sequence[Sequence[int]]) -> CorpusSegment:
        """Sort the tokens of files."""
        parts = [part for tokens in files for part in (np.array(tokens, np.int32), np.array([BETWEEN], np.int32))]
        tokens = np.concatenate(parts) if parts else np.empty(0, np.int32)
        shifted = np.concatenate([np.zeros(DEPTH, np.uint64), (tokens + 1).astype(np.uint64)])
        keys = [_packed(shifted, start, len(tokens)) for start in range(1, DEPTH, KEY)]
        before = np.stack([shifted[DEPTH - by : DEPTH - by + len(tokens)] for by in range(1, KEY + 1)])
        places = np.flatnonzero((tokens != BETWEEN) & (before > 0).all(axis=0))
        order = places[np.lexsort([key[places] for key in reversed(keys)])]
        sorted_keys = keys[0][order].view(np.uint32)
        count = np.array([len(order)], np.uint32)
        return CorpusSegment(np.concatenate([sorted_keys, order.astype(np.uint32), tokens.view(np.uint32), count]))

    def places(self, text: Sequence[int], end: int) -> Iterator[int]:
        """Yield at most PLACES places whose passage is most like the one before `text[:end]`, KEY tokens at least."""
        if end < KEY:
            return
        key = np.uint64(_key(text[end - KEY : end]))
        low, high = (int(np.searchsorted(self._keys, key, side)) for side in ("left", "right"))
        if high - low > PLACES:
            wanted = self._passage(text, end)
            at = bisect_left(range(low, high), wanted, key=lambda i: self._passage(self.tokens, int(self._places[i])))
            low, high = max(low, low + at - PLACES // 2), min(high, low + at + PLACES // 2)
        yield from map(int, self._places[low:high])

    @staticmethod
    def _passage(tokens: Sequence[int] | NDArray[np.int32], at: int) -> list[int]:
        """Return the tokens before `at` that it is sorted by, the nearest first; the first KEY are known."""
        return [int(token) for token in tokens[max(0, at - DEPTH) : at - KEY][::-1]]


def _packed(shifted: NDArray[np.uint64], start: int, n: int) -> NDArray[np.uint64]:
    """Return the tokens [n] that stand `start` and two more before each place, as one number."""
    packed = np.zeros(n, np.uint64)
    for by in range(start, start + KEY):
        packed = (packed << np.uint64(_BITS)) | shifted[DEPTH - by : DEPTH - by + n]
    return packed


def _key(passage: Sequence[int]) -> int:
    """Return the key of the place behind a passage of KEY tokens."""
    packed = 0
    for token in reversed(passage):
        packed = packed << _BITS | (int(token) + 1)
    return packed


@dataclass(slots=True)
class Corpus:
    """The segments that are ready, by name; another thread may add and drop some."""

    _segments: dict[str, CorpusSegment] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self._segments

    @property
    def n_files(self) -> int:
        return sum(segment.n_files for segment in self._segments.values())

    @property
    def n_tokens(self) -> int:
        return sum(len(segment.tokens) - segment.n_files for segment in self._segments.values())

    def add(self, name: str, segment: CorpusSegment) -> None:
        self._segments = {**self._segments, name: segment}

    def keep(self, names: Collection[str]) -> None:
        self._segments = {name: segment for name, segment in self._segments.items() if name in names}

    def places(self, text: Sequence[int], end: int) -> Iterator[tuple[NDArray[np.int32], int]]:
        for segment in self._segments.values():
            for at in segment.places(text, end):
                yield segment.tokens, at
