"""Lookahead decoding (Fu et al. arXiv 2402.02057): the target guesses its own n-grams while it verifies older ones.

One pass holds two things in one tree. The *verification branch* is a trie of the n-grams that have followed the
pending token before. The *window* is a Jacobi iteration on the tokens ahead: its cells are scratch nodes, which may not
be accepted, and the argmax of its tips' rows completes one n-gram a column. Both are guesses, point masses for the
verifier, so the rule that judges them makes the method exact at any temperature.

The n-gram of a column is the end of what its tip saw, with the prediction: its key can only be the column's own first
token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import ClassVar

import numpy as np

from localspec.engine.draft import Draft, Draw, Step
from localspec.engine.protocols import History, Path, Plan, RandomSource, Rows, Shape
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._window import Window
from localspec.settings.declaration import Option, Value

RECENT = 64  # tokens of the text that fill cells for which nothing has been predicted


class Lookahead:
    """Drafts with the target alone."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="lookahead",
        summary="the target guesses n-grams ahead in the same pass that verifies earlier ones",
        needs="nothing",
        paper="2402.02057",
        is_lossless=True,
        default_k=2,
        options=(
            Option("W", 4, "columns of the window: n-grams guessed in each pass", 1, 16),
            Option("N", 3, "tokens of an n-gram: the window has N-1 levels, up to N-1 tokens are drafted", 2, 8),
            Option("G", 4, "n-grams verified in each pass", 1, 16),
            Option("prompt", True, "take the n-grams of the prompt, too"),
        ),
        has_own_shape=True,
        unbranched="-o W=1 -o N=2 -o G=1",
        reads_rows=True,
    )

    def __init__(self, parts: DrafterContext) -> None:
        options = {option.name: option.default for option in self.info.options} | dict(parts.options)
        self._w, self._n, self._g = (int(options[name]) for name in "WNG")
        self._reads_prompt = bool(options["prompt"])
        self._is_eog = parts.is_eog
        self._pool = NgramPool(self._n, self._g)
        self._window: Window | None = None
        self._spare: Iterator[int] = iter(())
        self._plan: Plan | None = None  # of the draft under way
        self._tips: list[int] = []

    @classmethod
    def build(cls, parts: DrafterContext) -> Lookahead:
        return cls(parts)

    @classmethod
    def shape(cls, k: int, options: Mapping[str, Value]) -> Shape:
        """Return the size of window and trie; `k` plays no part."""
        w, n, g = (int(options[name]) for name in "WNG")
        columns = w if n > 2 else min(w - 1, 1)  # without further levels the window is the chain of level 0
        return Shape(nodes=Window.size(w, n - 1) + g * (n - 1), depth=n - 1, leaves=columns + g)

    def begin(self, history: History) -> None:
        self._pool = NgramPool(self._n, self._g)
        self._window = None
        if self._reads_prompt:
            self._pool.read(history.tokens)

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        tree = _PointMassTree(history.tokens[-1])
        self._tips, self._plan = [], plan
        if plan.max_nodes > 0 and plan.max_depth > 0:
            # The window goes first: without it the pool dries up. Near the end of the context it no longer fits.
            left = plan.max_nodes - Window.size(self._w, self._n - 1)
            tree.add_paths(self._pool.after(history.tokens[-1]), plan.max_depth, left if left >= 0 else plan.max_nodes)
            if left >= 0:
                self._tips = self._open_window(history).add_to(partial(tree.add, is_scratch=True))
        return tree.draft()

    def observe(self, step: Step, rows: Rows) -> None:
        if step.plan is not self._plan or not self._tips:
            return
        assert self._window is not None
        tips = [step.draft.forced + tip for tip in self._tips]
        predicted = [int(rows.logits(tip).argmax()) for tip in tips]
        pending = int(step.draft.tokens[0])
        for tip, token in zip(tips, predicted, strict=True):
            self._pool.add([pending, *step.draft.path(tip), token][-self._n :])
        # What follows an end token is nothing that the text could go on with: the window goes on without it.
        self._window.advance([next(self._spare) if self._is_eog(token) else token for token in predicted])

    def _open_window(self, history: History) -> Window:
        if self._window is None:
            recent = [token for token in history.tokens[-RECENT:] if not self._is_eog(token)]
            self._spare = cycle(recent or history.tokens[-1:])
            self._window = Window.of(self._w, self._n - 1, self._spare)
        return self._window


class _PointMassTree:
    def __init__(self, pending: int) -> None:
        self._nodes = [(pending, -1, True, False)]  # token, parent, whether its row is wanted, whether it is scratch

    def add_paths(self, paths: Iterable[Path], depth: int, n_nodes: int) -> None:
        nodes: dict[Path, int] = {(): 0}
        for path in paths:
            for end in range(1, min(len(path), depth) + 1):
                if path[:end] in nodes:
                    continue
                if len(nodes) > n_nodes:
                    return
                nodes[path[:end]] = self.add(path[end - 1], nodes[path[: end - 1]])

    def add(self, token: int, parent: int, is_wanted: bool = True, is_scratch: bool = False) -> int:
        self._nodes.append((token, parent, is_wanted, is_scratch))
        return len(self._nodes) - 1

    def draft(self) -> Draft:
        n, (tokens, parents, wanted, scratch) = len(self._nodes), map(list, zip(*self._nodes, strict=True))
        ids, above = np.array(tokens, np.int32), np.array(parents, np.int32)
        return Draft(ids, above, (None,) * n, (Draw.FIXED,) * n, np.array(scratch), np.array(wanted))


class NgramPool:
    """N-grams of `n` tokens. Of those that begin with one token the `width` last seen are kept."""

    def __init__(self, n: int, width: int) -> None:
        self._n = n
        self._width = width
        self._rests: dict[int, dict[tuple[int, ...], None]] = {}  # the newest last

    def add(self, ngram: Sequence[int]) -> None:
        assert len(ngram) == self._n
        rests = self._rests.setdefault(ngram[0], {})
        rest = tuple(ngram[1:])
        rests.pop(rest, None)
        rests[rest] = None
        if len(rests) > self._width:
            del rests[next(iter(rests))]

    def read(self, text: Sequence[int]) -> None:
        for end in range(self._n, len(text) + 1):
            self.add(text[end - self._n : end])

    def after(self, token: int) -> Iterator[tuple[int, ...]]:
        yield from reversed(self._rests.get(token, {}))

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        for token, rests in self._rests.items():
            for rest in rests:
                yield (token, *rest)
