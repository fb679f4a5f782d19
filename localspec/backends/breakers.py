"""Texts that break a repetition, as tokens: each way in which a token may hold or begin one, as llama.cpp has them."""

from __future__ import annotations

from functools import lru_cache

from localspec.backends.model import Model

MOST_BYTES, MOST_TOKENS = 40, 20  # of a breaker, and of what follows its first token


@lru_cache(maxsize=4)  # the whole vocabulary is searched, and a chat asks for every answer
def sequence_breakers(model: Model, texts: tuple[str, ...]) -> dict[int, list[tuple[int, ...]]]:
    """Return the breakers by their first token: what must follow it, () where it holds all of the text.

    "none" alone stands for no breaker.
    """
    breakers: dict[int, list[tuple[int, ...]]] = {}
    for text in () if texts == ("none",) else texts:
        mark = text.encode("utf-8", "replace")[:MOST_BYTES]
        tails = {n: tuple(model.tokenize(mark[n:])[:MOST_TOKENS]) for n in range(1, len(mark))}
        for token, word in enumerate(model.words()):
            if mark in word:
                breakers.setdefault(token, []).append(())
                continue
            for n, tail in tails.items():
                if word.endswith(mark[:n]) and tail not in breakers.get(token, ()):
                    breakers.setdefault(token, []).append(tail)
    return breakers
