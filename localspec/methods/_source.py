"""What a model drafts from: its distributions by path, and what its cache holds of the draft under way.

Between passes the cache may hold more than the text: tokens that were read while a target elsewhere judged, as if the
whole draft stood. Where it does not, they are forgotten. A distribution is that of its path whenever it was computed,
so the next draft has the tokens and the chances that it would have had, only sooner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw, Step
from localspec.engine.protocols import Backend, Path, Plan, RandomSource, Rows
from localspec.engine.sampling import Sampler
from localspec.engine.text import common_prefix
from localspec.engine.translation import Translation

FEW = 2  # tokens of a pass that is begun while a verdict is under way


@dataclass(slots=True)
class ModelSource:
    """The source of the tree under way: distributions by path, and which paths the draft's cache holds. Paths and
    `committed` are tokens of the target; `n_read` counts the draft's own tokens of the committed text. `held` is the
    path that the cache holds as if it were committed, and `cells` are the nodes below it."""

    backend: Backend
    sampler: Sampler
    translation: Translation
    committed: Sequence[int]  # the live text: longer once the pass is over
    n_read: int
    is_gated: bool
    dists: dict[Path, Distribution]
    plan: Plan
    cells: dict[Path, int] = field(default_factory=dict)  # path -> node id in the backend's open tree
    held: Path = ()
    n_ready: int = 0  # tokens that could be drafted without a pass when the pass before was over
    has_read_on: bool = False
    n_text: int = 0  # tokens of `committed` before the draft

    def __post_init__(self) -> None:
        self.n_text = len(self.committed)

    @property
    def is_free(self) -> bool:
        return False

    @property
    def can_read_on(self) -> bool:
        """Whether tokens beyond the text can be taken back one by one; a state cannot."""
        return self.backend.capabilities.max_leaves > 1 and not self.translation.respells

    def dist(self, path: Path) -> Distribution:
        return self.dists[path]

    @property
    def rows_left(self) -> int:
        return self.backend.capabilities.n_ctx - self.n_read - len(self.held) - len(self.cells)

    def expand(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._let_go(path)
        reached = chain.from_iterable((path[:n] for n in range(len(self.held) + 1, len(path) + 1)) for path in paths)
        new = [path for path in dict.fromkeys(reached) if path not in self.cells]  # siblings may hold equal tokens
        if not new:
            return
        tokens = [self.translation.token(path[-1]) for path in new]
        for path in new:
            self.cells[path] = len(self.cells)
        rows = self.backend.extend(tokens, [self.cells.get(path[:-1], -1) for path in new])
        for path in new:
            self.dists[path] = self._dist(rows, self.cells[path], path)

    def read_on(self, draft: Draft, rng: RandomSource, goes_on: Callable[[], bool]) -> int:
        """Read the rest of a chain, the token that may follow it, and the next draft; return the passes that it took.
        Each token is the one that the next draft will have if it comes there: what `rng` would draw is foreseen by its
        copy. The token in between is the target's, and the draft's likeliest; of a race it is the winner."""
        node = 0
        while draft.children[node]:
            node = draft.children[node][0]
        path = tuple(draft.path(node)[draft.forced :])
        if len(path) > FEW and path[:-FEW] not in self.dists:
            return 0  # another's draft, such as a copy: a pass of all its tokens may last beyond the verdict
        if self.plan.draw not in (Draw.FIXED, Draw.COUPLED):
            self._forget(len(path) + 1)
        last, passes, foreseen = len(path) + self.plan.max_depth, 0, rng.copy()
        how = Draw.COUPLED if self.plan.draw is Draw.COUPLED else Draw.FIXED
        while len(path) <= last:
            if path not in self.dists:
                if self.rows_left <= 0 or not goes_on():
                    break
                self.expand([path])
                passes += 1
            path = (*path, _likely(self.dists[path], how, self.n_text + len(path), foreseen))
            how = self.plan.draw
        self.has_read_on = passes > 0 or self.has_read_on
        return passes

    def settle(self, step: Step) -> ModelSource | None:
        """Keep what was accepted; return the source of the next draft if its pending token was read already."""
        run = step.tokens[max(self.n_text - step.position, 0) :]
        if run and (self.has_read_on or self.n_ready) and (run == self.held[: len(run)] or run in self.cells):
            return self._behind(run)
        self._keep(run[:-1])
        return None

    def _behind(self, run: Path) -> ModelSource:
        n = len(run)
        longest = max((path for path in (self.held, *self.cells) if path[:n] == run), key=len)
        self._keep(longest)
        return replace(
            self,
            committed=[*self.committed[: self.n_text], *run],
            n_read=self.n_read + n,
            dists={path[n:]: dist for path, dist in self.dists.items() if path[:n] == run},
            cells={},
            held=longest[n:],
            n_ready=1 + len(longest) - n,
            has_read_on=False,
        )

    def _keep(self, path: Path) -> None:
        n = common_prefix(self.held, path)
        if n < len(self.held):
            self.backend.truncate(self.n_read + n)
        else:
            prefixes = (path[:m] for m in range(n + 1, len(path) + 1))
            self.backend.keep(tuple(self.cells[prefix] for prefix in prefixes if prefix in self.cells))

    def _forget(self, n: int) -> None:
        """Forget what was read behind `n` tokens for draws that did not come."""
        if n < len(self.held):
            self.backend.truncate(self.n_read + n)
            self.held = self.held[:n]
            self.cells.clear()
        self.dists = {path: dist for path, dist in self.dists.items() if len(path) <= n or path in self.cells}

    def _let_go(self, path: Path) -> None:
        n = common_prefix(self.held, path)
        if n < min(len(self.held), len(path)):
            self.backend.truncate(self.n_read + n)
            self.held = self.held[:n]
            self.cells.clear()

    def _dist(self, rows: Rows, node: int, path: Path) -> Distribution:
        history = [*self.committed[: self.n_text], *path] if self.sampler.needs_history else ()
        return self.sampler.dist(self.translation.row(rows.logits(node)), history, with_belief=self.is_gated)


def _likely(dist: Distribution, how: Draw, position: int, foreseen: RandomSource) -> int:
    if dist.ids.size > 1 and how is Draw.COUPLED:
        return foreseen.gumbel_top_k(position, dist)[0]
    if dist.ids.size > 1 and how is not Draw.FIXED:
        return foreseen.categorical(dist)
    return int(dist.ids[dist.probs.argmax()])


class Marginals:
    """A source whose distributions are all known from the start, since each token is guessed by itself."""

    __slots__ = ()

    @property
    def is_free(self) -> bool:
        return True

    @property
    def rows_left(self) -> int:
        return sys.maxsize

    def expand(self, paths: Sequence[Path]) -> None:
        """Nothing is evaluated."""


@dataclass(slots=True)
class MarginalSource(Marginals, ModelSource):
    """The source of a head that guesses each token by itself: a distribution for each depth, whatever the path."""

    rows: Rows | None = None

    @property
    def can_read_on(self) -> bool:
        """A head reads states of the target, and there are none of what is judged."""
        return False

    def dist(self, path: Path) -> Distribution:
        key = path if self.sampler.needs_history else (0,) * len(path)
        if key not in self.dists:
            if self.rows is None:
                n = self.backend.capabilities.n_guesses - 1
                self.rows = self.backend.extend([0] * n, range(-1, n - 1))
            self.dists[key] = self._dist(self.rows, len(path) - 1, path)
        return self.dists[key]

    def settle(self, step: Step) -> None:
        self.backend.keep(())
