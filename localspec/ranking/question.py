"""What is asked when items are ranked, and the answer as a JSON object."""

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from localspec.engine.protocols import Backend, Cancel
from localspec.errors import UsageError
from localspec.ranking.best_first import rank
from localspec.ranking.items import kept_trie, read_items
from localspec.settings.folders import cache_folder
from localspec.settings.jobs import RankQuestion

JOIN = 16  # tokens of the prompt's end that are read together with an item


class Words(Protocol):
    """The vocabulary of a model."""

    n_vocab: int

    def tokenize(self, text: str | bytes) -> list[int]: ...
    def piece(self, token: int) -> bytes: ...
    def is_eog(self, token: int) -> bool: ...
    def is_parsed(self, token: int) -> bool: ...


def continuing(words: Words, text: str) -> list[int]:
    """Return the tokens that write `text` behind another: some vocabularies put a space before a text by itself."""
    line = words.tokenize("\n")
    both = words.tokenize("\n" + text)
    return both[len(line) :] if both[: len(line)] == line else words.tokenize(text)


def is_joined(words: Words, prompt: Sequence[int], text: str) -> bool:
    """Whether the tokenizer joins the end of a prompt and the beginning of `text` to tokens that neither has alone."""
    end = list(prompt[-JOIN:])
    for at in range(len(end) - 1, -1, -1):
        if words.is_parsed(end[at]):
            end = end[at + 1 :]
            break
    before = b"".join(map(words.piece, end))
    both = words.tokenize(before + text.encode())
    alone = words.tokenize(before)
    return bool(end) and both != [*alone, *continuing(words, text)]


def ranked(
    question: RankQuestion, words: Words, fingerprint: str, backend: Backend, prompt: Sequence[int], cancel: Cancel
) -> dict[str, Any]:
    """Return the ranking as a JSON object; `fingerprint` tells the file of the vocabulary `words`. Times are seconds.

    A `share` is the item's part of the probability of all items: the least and the most that it can be. `n_joined` of
    the ranked items would have other tokens, were they read together with the prompt.
    """
    began = time.perf_counter()
    items = read_items(question.items)
    is_raw = not question.request.messages
    tokenize = partial(continuing, words) if is_raw else words.tokenize
    trie, was_kept = kept_trie(items, tokenize, f"{fingerprint} {is_raw}", cache_folder("items"))
    built = time.perf_counter()
    ends = None
    if question.is_whole or question.seed is not None:
        ends = np.array([token for token in range(words.n_vocab) if words.is_eog(token)], np.int32)
        if not ends.size:
            raise UsageError("this model has no token that ends a text", hint="leave out --whole and --draw")
    ranking = rank(trie, backend, prompt, question.top, cancel=cancel, ends=ends, seed=question.seed)
    ended = time.perf_counter()
    ranked = []
    for item in ranking.found:
        p = math.exp(item.logprob)
        share = [p / ranking.most if ranking.most else 0.0, p / ranking.known if ranking.known else 0.0]
        ranked.append({"item": items.texts[item.item], "logprob": item.logprob, "p": p, "share": share})
    return {
        "ranking": ranked,
        "n_items": len(items.texts),
        "n_double": items.n_double,
        "n_joined": sum(is_joined(words, prompt, items.texts[item.item]) for item in ranking.found) if is_raw else 0,
        "n_nodes": len(trie),
        "scored": ranking.scored,
        "passes": ranking.passes,
        "rows": ranking.rows,
        "prompt_n": len(prompt),
        "trie_s": built - began,
        "trie_was_kept": was_kept,
        "search_s": ended - built,
    }
