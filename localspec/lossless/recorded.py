"""Rows of real models, recorded once, so that a rule can draw from them ten thousand times without a model.

What is recorded is the tree of the draft's likeliest continuations of a text: at every path of it the target's
distribution, whole, and the draft's, cut to the tokens that the tree follows. Any draft distribution is exact, so the
cut costs no rigour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft
from localspec.engine.protocols import Backend, Cancel, Path, Rows
from localspec.engine.sampling import Sampler

WIDTH, DEPTH = 3, 3  # tokens of a path's distribution that are followed, levels that are evaluated: 39 rows


@dataclass(frozen=True)
class Recording:
    """Distributions of target and draft by path below `tokens`; `target[path]` is there for every path of the tree."""

    tokens: tuple[int, ...]
    target: dict[Path, Distribution]
    draft: dict[Path, Distribution]
    depth: int

    @property
    def position(self) -> int:
        """Absolute position of the first token below."""
        return len(self.tokens)

    @cached_property
    def follows(self) -> dict[Path, tuple[int, ...]]:
        """The tokens that are told apart after each path."""
        return {path: tuple(int(token) for token in dist.ids) for path, dist in self.draft.items()}


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """The recorded draft distributions as what a tree policy grows from."""

    recording: Recording

    def dist(self, path: Path) -> Distribution:
        """Return the draft distribution after `path`."""
        return self.recording.draft[path]

    @property
    def is_free(self) -> bool:
        """The tree grows as it did when each path had its price."""
        return False

    @property
    def rows_left(self) -> int:
        """As many as were recorded."""
        return len(self.recording.draft)

    def expand(self, paths: Sequence[Path]) -> None:
        """Everything is evaluated."""


@dataclass(frozen=True, slots=True)
class RecordedDistributions:
    """The recorded target distributions of a draft's nodes, below `start`."""

    recording: Recording
    draft: Draft
    start: Path = ()

    def __getitem__(self, node: int) -> Distribution:
        """Return the distribution after a node."""
        return self.recording.target[(*self.start, *self.draft.path(node))]


@dataclass(frozen=True, slots=True)
class ModelDistributions:
    """One model's rows under its sampler; `n_vocab` cuts a draft's padding tokens off."""

    backend: Backend
    sampler: Sampler
    n_vocab: int

    def of(self, rows: Rows, node: int, history: Sequence[int]) -> Distribution:
        """Return the distribution of a row."""
        return self.sampler.dist(rows.logits(node)[: self.n_vocab], history)


def record(
    tokens: Sequence[int],
    target: ModelDistributions,
    draft: ModelDistributions,
    *,
    width: int = WIDTH,
    depth: int = DEPTH,
    cancel: Cancel = lambda: False,
) -> Recording:
    """Evaluate the draft's `width` likeliest continuations of `tokens`, `depth` levels deep, with both models.

    Both may be one backend. Caches are left holding `tokens`. Raises Cancelled while it reads these.
    """
    models = [target] if draft.backend is target.backend else [target, draft]
    found: list[dict[Path, Distribution]] = [{}, {}]
    rows = [model.backend.prefill(tokens, cancel) for model in models]
    level: list[Path] = [()]
    nodes: dict[Path, int] = {}
    for _ in range(depth + 1):
        for path in level:
            node = nodes.get(path, 0)
            found[0][path] = target.of(rows[0], node, (*tokens, *path))
            found[1][path] = cut(draft.of(rows[-1], node, (*tokens, *path)), width)
        level = [(*path, int(token)) for path in level for token in found[1][path].ids]
        if len(level[0]) > depth:
            break
        ends, parents = [path[-1] for path in level], [nodes.get(path[:-1], -1) for path in level]
        rows = [model.backend.extend(ends, parents) for model in models]
        nodes |= {path: len(nodes) + i for i, path in enumerate(level)}
    for model in models:
        model.backend.keep(())
    return Recording(tuple(tokens), found[0], found[1], depth)


def cut(dist: Distribution, width: int) -> Distribution:
    """Return the distribution on its `width` likeliest tokens."""
    if dist.ids.size <= width:
        return dist
    kept = np.sort(np.argsort(-dist.probs, kind="stable")[:width])
    return Distribution.of(dist.ids[kept], dist.probs[kept])
