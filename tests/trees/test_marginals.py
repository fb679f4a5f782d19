"""Trees on guesses that depend on their depth alone: each policy grows, and dyspec grows the best tree there is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import Path, Plan
from localspec.engine.randomness import SeededRandom
from localspec.trees.dyspec import DySpec
from tests.trees.test_trees import POLICIES

N_VOCAB, DEPTH = 6, 4


@dataclass
class Marginals:
    """A distribution for each depth, all of them known."""

    dists: Sequence[Distribution]
    is_free: bool = True

    @staticmethod
    def drawn(seed: int) -> Marginals:
        rng = np.random.default_rng(seed)
        weights = np.exp(1.5 * rng.normal(size=(DEPTH, N_VOCAB)))
        return Marginals([Distribution.of(np.arange(N_VOCAB, dtype=np.int32), row) for row in weights])

    @property
    def rows_left(self) -> int:
        return sys.maxsize

    def dist(self, path: Path) -> Distribution:
        return self.dists[len(path)]

    def expand(self, paths: Sequence[Path]) -> None:
        pass

    def chance(self, path: Path) -> float:
        return prod(dist.prob(token) for dist, token in zip(self.dists, path, strict=False))


def grown(name_or_policy: str | DySpec, source: Marginals, nodes: int, draw: Draw = Draw.FIXED) -> Draft:
    policy = POLICIES[name_or_policy] if isinstance(name_or_policy, str) else name_or_policy
    return policy.grow(3, 50, source, Plan("it", nodes, DEPTH, draw), SeededRandom(1))


def chances(draft: Draft, source: Marginals) -> list[float]:
    return sorted((source.chance(tuple(draft.path(node))) for node in range(1, len(draft.tokens))), reverse=True)


def best(source: Marginals, nodes: int) -> list[float]:
    paths = (path for depth in range(1, DEPTH + 1) for path in product(range(N_VOCAB), repeat=depth))
    return sorted((source.chance(path) for path in paths), reverse=True)[:nodes]


@pytest.mark.parametrize("nodes", [1, 5, 16, 30])
@pytest.mark.parametrize("seed", range(6))
def test_dyspec_takes_the_most_probable_paths(seed: int, nodes: int) -> None:
    """That is DDTree's tree. Each has its parent among the others, as a product falls along a path."""
    source = Marginals.drawn(seed)
    assert chances(grown(DySpec(), source, nodes), source) == pytest.approx(best(source, nodes))


def test_where_a_level_takes_a_pass_dyspec_does_not_know_what_follows() -> None:
    sources = [Marginals.drawn(seed) for seed in range(6)]
    priced = [Marginals(source.dists, is_free=False) for source in sources]
    sums = [[sum(chances(grown(DySpec(), one, 16), one)) for one in some] for some in (sources, priced)]
    assert all(free >= lazy for free, lazy in zip(*sums, strict=True))
    assert sums[0] != sums[1]


@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("draw", [Draw.FIXED, Draw.COUPLED, Draw.WITHOUT_REPLACEMENT])
def test_each_policy_grows(name: str, draw: Draw) -> None:
    source = Marginals.drawn(1)
    draft = grown(name, source, 16, draw)
    assert 0 < len(draft) <= 16
    assert draft.depth <= DEPTH
