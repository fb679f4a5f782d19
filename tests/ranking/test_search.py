"""The likeliest items are those that scoring every item finds: on toy models, for all N, with ends and without."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.protocols import Cancelled
from localspec.errors import IncompatibleError, UsageError
from localspec.ranking import best_first
from localspec.ranking.best_first import Ranking, log_normaliser, rank
from localspec.ranking.items import build
from localspec.testing.contract import Table, TableBackend, random_table

V, PROMPT = 12, (0, 1)
ENDS = np.array([3, 7], np.int32)


def items(n: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    found = {tuple(rng.randrange(V) for _ in range(rng.choice((1, 2, 3, 3, 4, 8)))) for _ in range(n)}
    return list(map(list, sorted(found)))


def scores(table: Table, paths: list[list[int]], ends: np.ndarray | None) -> list[float]:
    """Return the log-probability of every item, one token after the other."""
    found = []
    for path in paths:
        total = 0.0
        for n, token in enumerate(path):
            row = table((*PROMPT, *path[:n]))
            total += float(row[token]) - log_normaliser(row)
        if ends is not None:
            row = table((*PROMPT, *path))
            total += log_normaliser(row[ends]) - log_normaliser(row)
        found.append(total)
    return found


def ranked(seed: int, paths: list[list[int]], top: int, ends: np.ndarray | None = None, **limits: int) -> Ranking:
    backend = TableBackend(random_table(V, seed), V, 64)
    backend.capabilities = replace(backend.capabilities, **limits)
    found = rank(build(paths), backend, PROMPT, top, cancel=lambda: False, ends=ends)
    assert backend.length == len(PROMPT)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("top", [1, 10, 600])
@pytest.mark.parametrize("is_whole", [False, True])
def test_it_finds_what_scoring_all_finds(seed: int, top: int, is_whole: bool) -> None:
    paths, ends = items(500, seed), ENDS if is_whole else None
    every = scores(random_table(V, seed), paths, ends)
    best = sorted(range(len(paths)), key=lambda item: (-every[item], item))[:top]
    for limits in ({}, {"max_rows": 9}, {"max_leaves": 2}):
        found = ranked(seed, paths, top, ends, **limits)
        assert [one.item for one in found.found] == best
        assert np.allclose([one.logprob for one in found.found], [every[item] for item in best], rtol=0, atol=1e-9)
        total = sum(map(math.exp, every))
        assert found.known <= total + 1e-9
        assert total <= found.most + 1e-9
        if top >= len(paths):
            assert found.scored == len(paths)
            assert abs(found.known - found.most) < 1e-9
        elif top == 1:
            assert found.scored < len(paths)


def test_an_item_that_nothing_else_resembles_takes_one_pass() -> None:
    """What has one child alone is followed in the pass that evaluates it."""
    found = ranked(0, [[1, 2, 3, 4, 5, 6, 7], [2, 2, 3, 4, 5, 6, 7]], 2)
    assert (found.passes, found.scored) == (2, 2)


def test_a_bar_that_is_too_high_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = items(500, 1)
    right = [one.item for one in ranked(1, paths, 10).found]
    bar = best_first._Search._bar
    monkeypatch.setattr(best_first._Search, "_bar", property(lambda self: bar.fget(self) + 1.0))
    assert [one.item for one in ranked(1, paths, 10).found] != right


def test_what_has_no_room_is_refused() -> None:
    with pytest.raises(UsageError, match="item 2 has 70 tokens"):
        ranked(0, [[1], [2] * 70], 1)
    with pytest.raises(IncompatibleError, match="no branches"):
        ranked(0, [[1]], 1, max_leaves=1)


def test_it_stops_when_asked() -> None:
    backend = TableBackend(random_table(V, 0), V, 64)
    with pytest.raises(Cancelled):
        rank(build(items(100, 0)), backend, PROMPT, 50, cancel=lambda: True)


# Draws.


def drawn(seed: int, paths: list[list[int]], top: int, noise: int, **limits: int) -> list[int]:
    backend = TableBackend(random_table(V, seed), V, 64)
    backend.capabilities = replace(backend.capabilities, **limits)
    found = rank(build(paths), backend, PROMPT, top, cancel=lambda: False, ends=ENDS, seed=noise)
    every = scores(random_table(V, seed), paths, ENDS)
    assert np.allclose([one.logprob for one in found.found], [every[one.item] for one in found.found], atol=1e-9)
    return [one.item for one in found.found]


@pytest.mark.parametrize("seed", range(4))
def test_the_first_drawn_are_those_of_drawing_all(seed: int) -> None:
    paths = items(300, seed)
    every = drawn(seed, paths, len(paths), noise=seed)
    assert sorted(every) == list(range(len(paths)))
    for limits in ({}, {"max_rows": 9}, {"max_leaves": 2}):
        assert drawn(seed, paths, 10, noise=seed, **limits) == every[:10]


def test_items_are_drawn_by_their_probabilities_without_replacement() -> None:
    """Pairs of draws have the law p(a) p(b) / (1 - p(a)), over items of different lengths that begin each other."""
    paths = [[1], [1, 2], [1, 2, 4], [5], [6, 5], [6, 8]]
    p = np.exp(scores(random_table(V, 2), paths, ENDS))
    p /= p.sum()
    n, seen = 700, np.zeros((6, 6))
    for noise in range(n):
        first, second = drawn(2, paths, 2, noise)
        seen[first, second] += 1
    law = p[:, None] * p[None, :] / (1.0 - p[:, None])
    np.fill_diagonal(law, 0.0)
    kept = n * law > 3.0
    statistic = float(((seen - n * law)[kept] ** 2 / (n * law[kept])).sum())
    assert statistic < 60.0  # at most 29 degrees of freedom: exceeded once in 1 700 seeds
