"""A pool of n-grams by their first token, each token's latest first: what Lookahead proposes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class NgramPool:
    """N-grams of `n` tokens. Of those that begin with one token the `width` last seen are kept."""

    def __init__(self, n: int, width: int) -> None:
        self._n = n
        self._width = width
        self._rests: dict[int, dict[tuple[int, ...], None]] = {}  # the newest last

    def add(self, ngram: Sequence[int]) -> None:
        """Take in one n-gram; one that is known becomes the newest."""
        assert len(ngram) == self._n
        rests = self._rests.setdefault(ngram[0], {})
        rest = tuple(ngram[1:])
        rests.pop(rest, None)
        rests[rest] = None
        if len(rests) > self._width:
            del rests[next(iter(rests))]

    def read(self, text: Sequence[int]) -> None:
        """Take in every n-gram of `text`."""
        for end in range(self._n, len(text) + 1):
            self.add(text[end - self._n : end])

    def after(self, token: int) -> Iterator[tuple[int, ...]]:
        """Yield the n - 1 tokens that followed `token`, the newest first."""
        yield from reversed(self._rests.get(token, {}))

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Yield every n-gram, first token included."""
        for token, rests in self._rests.items():
            for rest in rests:
                yield (token, *rest)
