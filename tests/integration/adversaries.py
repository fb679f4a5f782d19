"""Drafters that a verifier must survive: one that knows the answer, one that guesses, one always wrong, one that quits.

They propose chains or bushy trees of fixed tokens, and never look at the models.
"""

import random
from collections.abc import Sequence

from localspec.engine.draft import Draft, Step
from localspec.engine.protocols import History, Plan, RandomSource, Rows


class Adversary:
    """Proposes what `guess(position)` says; with `width` 2 each node also gets a wrong sibling, drawn first."""

    def __init__(self, width: int = 1) -> None:
        self._width = width

    def begin(self, history: History) -> None:
        """Nothing to prepare."""

    def observe(self, step: Step, rows: Rows) -> None:
        """Nothing to learn."""

    def guess(self, position: int) -> int:
        """Return the token to propose for an absolute position."""
        raise AssertionError("each adversary has its own")

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        tokens, parents, tip = [history.tokens[-1]], [-1], 0
        for depth in range(plan.max_depth):
            guess = self.guess(history.position + depth)
            for sibling in range(self._width):
                if len(tokens) <= plan.max_nodes:
                    tokens.append(guess if sibling == self._width - 1 else (guess + 7) % 4096)
                    parents.append(tip)
            tip = len(tokens) - 1
        return Draft.of(tokens, parents)


class Oracle(Adversary):
    """Knows the text of plain decoding, and tells it with probability 0.7."""

    def __init__(self, truth: Sequence[int], start: int, width: int = 1) -> None:
        super().__init__(width)
        self._truth = truth
        self._start = start
        self._random = random.Random(1)

    def guess(self, position: int) -> int:
        at = position - self._start
        known = self._truth[at] if at < len(self._truth) else 5
        return known if self._random.random() < 0.7 else self._random.randrange(4096)


class Guesser(Adversary):
    """Draws tokens out of the air."""

    def __init__(self, width: int = 1) -> None:
        super().__init__(width)
        self._random = random.Random(2)

    def guess(self, position: int) -> int:
        return self._random.randrange(4096)


class AlwaysWrong(Oracle):
    """Knows the text and says something else."""

    def guess(self, position: int) -> int:
        at = position - self._start
        return (self._truth[at] + 1) % 4096 if at < len(self._truth) else 5


class AlwaysEnd(Adversary):
    """Proposes the end-of-text token everywhere."""

    def guess(self, position: int) -> int:
        return 0
