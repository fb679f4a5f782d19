"""A running text in a model's own tokens, for timing passes.

What a pass costs can depend on its tokens: a mixture of experts reads all experts that some row chose, and rows of a
text choose more alike than rows of tokens drawn at random. So widths are timed on a text.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from localspec.backends.tokenizer import Tokenizer

STRIDE = 7919  # a prime: tokens that differ, where a vocabulary cannot write the text
FEWEST = 16  # tokens of the text: with fewer the same ones would come again and again

_tokens: WeakKeyDictionary[Tokenizer, NDArray[np.int32]] = WeakKeyDictionary()  # passes are short, and timed


def sample_tokens(model: Tokenizer, start: int, n: int) -> NDArray[np.int32]:
    """Return `n` tokens [n] of the text from its token `start` on. It begins anew behind its end."""
    text = _tokens.get(model)
    if text is None:
        text = _tokens[model] = np.array(model.tokenize(_text()), np.int32)
    at = np.arange(start, start + n)
    return text[at % len(text)] if len(text) >= FEWEST else (at * STRIDE % model.n_vocab).astype(np.int32)


@cache
def _text() -> bytes:
    """Return the shipped texts of trials, whose headings are part of it."""
    return files("localspec.session").joinpath("trial.txt").read_bytes()
