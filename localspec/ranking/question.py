"""What is asked when items are ranked, and the answer as a JSON object."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from localspec.engine.protocols import Backend, Cancel
from localspec.errors import UsageError
from localspec.ranking.items import kept_trie, read_items
from localspec.ranking.search import rank
from localspec.settings.folders import cache_folder
from localspec.settings.jobs import RankQuestion


class Words(Protocol):
    """The vocabulary of a model."""

    n_vocab: int

    def tokenize(self, text: str) -> list[int]: ...

    def is_eog(self, token: int) -> bool: ...


def ranked(
    question: RankQuestion, words: Words, fingerprint: str, backend: Backend, prompt: Sequence[int], cancel: Cancel
) -> dict[str, Any]:
    """Return the ranking as a JSON object; `fingerprint` tells the file of the vocabulary `words`. Times are seconds.

    A `share` is the item's part of the probability of all items: the least and the most that it can be.
    """
    began = time.perf_counter()
    items = read_items(Path(question.items))
    trie, was_kept = kept_trie(items, words.tokenize, fingerprint, cache_folder("items"))
    built = time.perf_counter()
    ends = None
    if question.is_whole:
        ends = np.array([token for token in range(words.n_vocab) if words.is_eog(token)], np.int32)
        if not ends.size:
            raise UsageError("this model has no token that ends a text", hint="leave out --whole")
    found = rank(trie, backend, prompt, question.top, cancel=cancel, ends=ends)
    ended = time.perf_counter()
    told = []
    for one in found.found:
        p = math.exp(one.logprob)
        share = [p / found.most if found.most else 0.0, p / found.known if found.known else 0.0]
        told.append({"item": items.texts[one.item], "logprob": one.logprob, "p": p, "share": share})
    return {
        "ranking": told,
        "n_items": len(items.texts),
        "n_double": items.n_double,
        "n_nodes": len(trie),
        "scored": found.scored,
        "passes": found.passes,
        "rows": found.rows,
        "prompt_n": len(prompt),
        "trie_s": built - began,
        "trie_was_kept": was_kept,
        "search_s": ended - built,
    }
