"""The window of Lookahead decoding: guesses for the tokens ahead, improved by one Jacobi iteration a pass.

`levels[j][i]` is a guess for the token i + j places after the pending one. A higher level is a later iterate: it was
predicted from the level below. In a draft, level 0 is a chain below the pending token, which stands in for its first
cell, and column i hangs below the i-th of that chain:

    pending ── 0,1 ── 0,2 ── ...      a cell sees the text, level 0 up to its column, and its own column
       │        │      │
      1,0      1,1    1,2
       │        │      │
      2,0      2,1    2,2              the tips: their rows predict the next level

After a run of several tokens the window lags behind the text. It is left so, as in the authors' code: dropping the
columns that the text has passed costs a fifth of the tokens per pass (measured: 2.0 against 2.5), because the cells
that come in their place are not guesses yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice


@dataclass(slots=True)
class Window:
    """`levels` of equally many guesses."""

    levels: list[list[int]]

    @classmethod
    def of(cls, width: int, n_levels: int, guesses: Iterator[int]) -> Window:
        return cls([list(islice(guesses, width)) for _ in range(n_levels)])

    @staticmethod
    def size(width: int, n_levels: int) -> int:
        return n_levels * width - 1

    def add_to(self, add: Callable[[int, int, bool], int]) -> list[int]:
        """Add every cell with `add(token, parent, is_tip) -> node`; return the tips, one a column."""
        last = len(self.levels) - 1
        tips = [0]  # column 0 hangs below the pending token
        for token in self.levels[0][1:]:
            tips.append(add(token, tips[-1], last == 0))
        for level, tokens in enumerate(self.levels[1:], start=1):
            tips = [add(token, tip, level == last) for token, tip in zip(tokens, tips, strict=True)]
        return tips

    def advance(self, predicted: Sequence[int]) -> None:
        """Drop level 0 and put the tips' predictions on top: each guess is now for one place nearer."""
        self.levels = [*self.levels[1:], list(predicted)]
