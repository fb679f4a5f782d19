"""Drafters that read the text itself: they need no second model, and what they propose is never left to chance.

Every node is a point mass, whatever the plan says of draws: that is how the tokens were chosen. Invariant: before a
proposal every committed token has been learned, once, whoever drafted it; a text that goes
back is learned anew. A predicted answer stands in front of the text, as if it had been said before.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Step
from localspec.engine.protocols import DraftState, History, Plan, RandomSource, Rows, Shape, no_stop_rule
from localspec.engine.text import common_prefix
from localspec.methods import DrafterContext, MethodInfo
from localspec.settings.declaration import Value


class LookupDrafter(ABC):
    """Follows the text; what it makes of it is `learn`, `forget` and `grow`."""

    info: ClassVar[MethodInfo]

    def __init__(self, parts: DrafterContext) -> None:
        """Take the defaults of `info` for options that are not given."""
        defaults: dict[str, Value] = {option.name: option.default for option in self.info.options}
        self.options: Mapping[str, Value] = defaults | dict(parts.options)
        self.is_eog = parts.is_eog
        self.prediction = parts.prediction
        self._text: list[int] = []
        self._is_sure = False  # that the text now is `_text` and what follows it

    @classmethod
    def build(cls, parts: DrafterContext) -> Self:
        return cls(parts)

    @classmethod
    def shape(cls, k: int, options: Mapping[str, Value]) -> Shape:
        return Shape(nodes=k, depth=k, leaves=1)

    def begin(self, history: History) -> None:
        self._is_sure = False

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        return self.offer(history, plan)

    def offer(self, history: History, plan: Plan) -> Draft:
        """Return what `propose` would: nothing of it is chance, so it may be looked at first."""
        if plan.max_nodes <= 0 or plan.max_depth <= 0:
            return Draft.root(history.tokens[-1])
        self._read(history.tokens)
        return self.grow(self._text, plan)

    def observe(self, step: Step, rows: Rows) -> None:  # noqa: B027 - a drafter may learn nothing from a pass
        """Nothing to do: the next proposal reads the committed text."""

    @abstractmethod
    def learn(self, text: Sequence[int], start: int) -> None:
        """Learn the tokens of `text` from `start` on, the last of which is pending."""

    @abstractmethod
    def forget(self) -> None:
        """Forget all that was learned: the next text does not go on with the last one."""

    @abstractmethod
    def grow(self, text: Sequence[int], plan: Plan) -> Draft:
        """Propose a draft within `plan`, which has room."""

    def _read(self, tokens: Sequence[int]) -> None:
        if not self._is_sure:
            whole = [*self.prediction, *tokens] if self.prediction else tokens
            if common_prefix(self._text, whole) < len(self._text):
                self._text.clear()
                self.forget()
            self._is_sure = True
        start = len(self._text)
        self._text += self.prediction[start:]
        self._text += tokens[len(self._text) - len(self.prediction) :]
        self.learn(self._text, start)


def chain(
    pending: int, plan: Plan, copied: Callable[[Sequence[int]], int | None], is_eog: Callable[[int], bool]
) -> Draft:
    """Draft what `copied` says after the tokens drafted so far, until it knows nothing or the text ends."""
    tokens: list[int] = []
    while len(tokens) < min(plan.max_nodes, plan.max_depth):
        token = copied(tokens)
        if token is None or not may_go_on(plan, {token: 1}, len(tokens), len(tokens), 1.0):
            break
        tokens.append(token)
        if is_eog(token):
            break
    return Draft.of([pending, *tokens], range(-1, len(tokens)), shares=[1.0] * (1 + len(tokens)))


def may_go_on(plan: Plan, counts: Mapping[int, int], n_nodes: int, depth: int, chance: float) -> bool:
    """Ask the plan's rule, which sees what followed so far as a distribution; without a rule there is no need to make
    one."""
    return plan.go_on is no_stop_rule or plan.go_on(DraftState(frequencies(counts), n_nodes, depth, chance))


def frequencies(counts: Mapping[int, int]) -> Distribution:
    ids = sorted(counts)
    return Distribution.of(np.array(ids, np.int32), np.array([counts[token] for token in ids], np.float64))
