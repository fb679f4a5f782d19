"""Rows of real models, recorded once, so that a rule can draw from them ten thousand times without a model.

What is recorded is the tree of the draft's likeliest continuations of a text: at every path of it the target's
distribution, whole, and the draft's, cut to the tokens that the tree follows. Any draft distribution is exact, so the
cut costs no rigour. `try_rule` compares many draws with what the rows say, by Pearson's chi-square.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft
from localspec.engine.protocols import Backend, Cancel, Path, Plan, RandomSource, Rows, TreePolicy, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Translation
from localspec.lossless.chi_square import EXPECTED, Cell, Outcome, compare, detectable

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
        return self.recording.draft[path]

    @property
    def is_free(self) -> bool:
        """The tree grows as it did when each path had its price."""
        return False

    @property
    def rows_left(self) -> int:
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
        return self.recording.target[(*self.start, *self.draft.path(node))]


@dataclass(frozen=True, slots=True)
class ModelDistributions:
    """One model's rows under its sampler, by the target's tokens."""

    backend: Backend
    sampler: Sampler
    translation: Translation

    def of(self, rows: Rows, node: int, history: Sequence[int]) -> Distribution:
        return self.sampler.dist(self.translation.row(rows.logits(node)), history)


def record(
    tokens: Sequence[int],
    target: ModelDistributions,
    draft: ModelDistributions,
    *,
    width: int = WIDTH,
    cancel: Cancel = lambda: False,
) -> Recording:
    """Evaluate the draft's `width` likeliest continuations of `tokens`, DEPTH levels deep, with both models.

    Both may be one backend. Caches are left holding `tokens`. Raises Cancelled while it reads these.
    """
    models = [target] if draft.backend is target.backend else [target, draft]
    distributions: list[dict[Path, Distribution]] = [{}, {}]
    rows = [model.backend.prefill(model.translation.text(tokens), cancel) for model in models]
    level: list[Path] = [()]
    nodes: dict[Path, int] = {}
    for _ in range(DEPTH + 1):
        for path in level:
            node = nodes.get(path, 0)
            distributions[0][path] = target.of(rows[0], node, (*tokens, *path))
            distributions[1][path] = cut(draft.of(rows[-1], node, (*tokens, *path)), width)
        level = [(*path, int(token)) for path in level for token in distributions[1][path].ids]
        if len(level[0]) > DEPTH:
            break
        ends, parents = [path[-1] for path in level], [nodes.get(path[:-1], -1) for path in level]
        rows = [model.backend.extend(list(map(model.translation.token, ends)), parents) for model in models]
        nodes |= {path: len(nodes) + i for i, path in enumerate(level)}
    for model in models:
        model.backend.keep(())
    return Recording(tuple(tokens), distributions[0], distributions[1], DEPTH)


def cut(dist: Distribution, width: int) -> Distribution:
    if dist.ids.size <= width:
        return dist
    likeliest = np.sort(np.argsort(-dist.probs, kind="stable")[:width])
    return Distribution.of(dist.ids[likeliest], dist.probs[likeliest])


OTHER = -1  # any token that is neither followed nor likely


@dataclass(frozen=True, slots=True)
class TriedRule:
    """The drafting and the rule under test."""

    policy: TreePolicy
    plan: Plan
    verifier: Verifier


@dataclass(frozen=True, slots=True)
class TextTrial:
    """One recorded text: the outcome, what total variation could not have escaped, and draft tokens accepted a draw."""

    outcome: Outcome
    detectable: float
    accepted: float

    def to_wire(self) -> dict[str, Any]:
        return {**asdict(self.outcome), "detectable": self.detectable, "accepted_per_pass": self.accepted}


def try_rule(
    recording: Recording, rule: TriedRule, *, draws: int, alpha: float, seed: int, cancel: Callable[[], bool]
) -> TextTrial:
    """Draw and compare; fewer draws after a cancel."""
    dist = dict(cells(recording, EXPECTED / draws))
    counts: Counter[Cell] = Counter()
    accepted = 0
    for i in range(draws):
        if cancel():
            break
        text, n_accepted = draw(recording, rule, SeededRandom(seed + i))
        is_rare = text not in dist and recording.target[text[:-1]].prob(text[-1]) > 0.0
        counts[(*text[:-1], OTHER) if is_rare else text] += 1
        accepted += n_accepted
    outcome = compare(counts, dist, alpha)
    n = max(1, outcome.n)
    return TextTrial(outcome, detectable(outcome.df, outcome.n, alpha), accepted / n)


def draw(recording: Recording, rule: TriedRule, rng: RandomSource) -> tuple[Cell, int]:
    """Return a text, up to the first token that is not followed, and how many draft tokens its first pass accepted."""
    draft = rule.policy.grow(recording.tokens[-1], recording.position, RecordedSource(recording), rule.plan, rng)
    verdict = rule.verifier.verify(draft, RecordedDistributions(recording, draft), rng, recording.position)
    run = [int(draft.tokens[node]) for node in verdict.path] + [verdict.token]
    path: Path = ()
    while True:
        for token in run:
            if token not in recording.follows[path]:
                return (*path, token), len(verdict.path)
            path = (*path, token)
            if len(path) > recording.depth:
                return path, len(verdict.path)
        plain = Draft.root(path[-1])
        dists = RecordedDistributions(recording, plain, path)
        run = [rule.verifier.verify(plain, dists, rng, recording.position + len(path)).token]


def cells(recording: Recording, least: float) -> Iterator[tuple[Cell, float]]:
    """Yield every cell with the target's own probability of it; from `least` on any token has one of its own."""
    yield from _below(recording, (), 1.0, least)


def _below(recording: Recording, path: Path, mass: float, least: float) -> Iterator[tuple[Cell, float]]:
    dist, follows = recording.target[path], recording.follows[path]
    is_told = np.isin(dist.ids, follows) | (mass * dist.probs >= least)
    for token, p in zip(dist.ids[is_told].tolist(), dist.probs[is_told].tolist(), strict=True):
        deeper = (*path, token)
        if token in follows and len(deeper) <= recording.depth:
            yield from _below(recording, deeper, mass * p, least)
        else:
            yield deeper, mass * p
    if not is_told.all():
        yield (*path, OTHER), mass * float(dist.probs[~is_told].sum())
