"""What passes teach of acceptance: only children that verification reached count, and they outweigh the prior."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.acceptance import RANKS, Acceptance, prior
from localspec.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.protocols import Plan

# Two children of the pending token, two of the first of them, one of the second: shares as told.
TREE = Draft.of([9, 1, 2, 3, 4, 5], [-1, 0, 0, 1, 1, 2], shares=[1.0, 0.5, 0.4, 0.9, 0.3, 0.8])


def step(path: tuple[int, ...], draft: Draft = TREE) -> Step:
    verdict = Verdict(path, 7, Source.CORRECTED)
    return Step(draft, verdict, (7,), (Source.CORRECTED,), (0, *path), 1, Times(), Plan())


def learned(*paths: tuple[int, ...], times: int = 1000) -> Acceptance:
    acceptance = Acceptance(Draw.WITHOUT_REPLACEMENT)
    for _ in range(times):
        for path in paths:
            acceptance.observe(step(path))
    return acceptance


@pytest.mark.parametrize("draw", Draw)
def test_nothing_learned_is_the_prior(draw: Draw) -> None:
    acceptance = Acceptance(draw)
    for share in np.linspace(0.0, 1.0, 11):
        for rank in range(6):
            assert acceptance.chance(share, rank) == pytest.approx(prior(draw, share, rank))
            assert 0.0 <= acceptance.chance(share, rank) <= 1.0
    acceptance.observe(step((), Draft.root(9)))  # a plain pass teaches nothing
    assert acceptance.n_passes == 0


def test_a_path_teaches_of_itself_and_of_its_elder_siblings() -> None:
    """Accepted: 2, the second child, then 5. Child 1 was refused; what is below it was not reached."""
    acceptance = learned((2, 5))
    assert acceptance.chance(0.5, 0) < 0.02
    assert acceptance.chance(0.4, 1) > 0.98
    assert acceptance.chance(0.8, 0) > 0.98
    assert acceptance.chance(0.9, 0) == prior(Draw.WITHOUT_REPLACEMENT, 0.9, 0)
    assert acceptance.chance(0.3, 1) == prior(Draw.WITHOUT_REPLACEMENT, 0.3, 1)


def test_an_accepted_child_says_nothing_of_its_younger_siblings() -> None:
    acceptance = learned((1,))
    assert acceptance.chance(0.5, 0) > 0.98
    assert acceptance.chance(0.4, 1) == prior(Draw.WITHOUT_REPLACEMENT, 0.4, 1)
    assert acceptance.chance(0.9, 0) < 0.02  # refused below the accepted one


def test_the_estimate_converges_to_the_frequency() -> None:
    acceptance = Acceptance(Draw.IID)
    rng = np.random.default_rng(0)
    draft = Draft.of([9, 1], [-1, 0], shares=[1.0, 0.25])
    for _ in range(4000):
        acceptance.observe(step((1,) if rng.random() < 0.3 else (), draft))
    assert acceptance.chance(0.25, 0) == pytest.approx(0.3, abs=0.07)


def test_later_ranks_share_one_row() -> None:
    tokens = list(range(9))
    draft = Draft.of(tokens, [-1] + [0] * 8, shares=[1.0] + [0.5] * 8)
    acceptance = Acceptance(Draw.WITHOUT_REPLACEMENT)
    for _ in range(2000):
        acceptance.observe(step((8,), draft))
    assert acceptance.chance(0.5, RANKS - 1) == pytest.approx(acceptance.chance(0.5, 7), abs=0.01)
    assert acceptance.chance(0.5, 7) == pytest.approx(1 / (9 - RANKS), abs=0.02)  # refused at ranks 3 to 6, taken at 7


def test_the_vector_is_a_law_that_follows_now_and_then() -> None:
    """The first child always: its chance nears one, and all together never exceed it."""
    acceptance = Acceptance(Draw.IID)
    vectors = set()
    for _ in range(200):
        acceptance.observe(step((1, 3)))
        vectors.add(acceptance.vector)
    assert len(vectors) == 4  # the usual one, and those after 16, 48 and 112 passes
    assert all(0.0 < sum(vector) <= 1.01 and min(vector) >= 0.0 for vector in vectors)
    assert acceptance.vector[0] > 0.95
