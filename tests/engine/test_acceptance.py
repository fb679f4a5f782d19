"""What passes teach of acceptance: only children that verification reached count, and they outweigh the prior.

Of copies every token of an answer tells, by the kind of the source and the length of the passage.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.acceptance import (
    BINS,
    COPIED,
    FIRST_LOOK,
    LEVELS,
    RANKS,
    Acceptance,
    CopyAcceptance,
    CopyKind,
    level,
    prior,
)
from localspec.engine.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.engine.protocols import Plan

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


def test_the_vector_is_a_dist_that_follows_now_and_then() -> None:
    """The first child always: its chance nears one, and all together never exceed it."""
    acceptance = Acceptance(Draw.IID)
    vectors = set()
    for _ in range(200):
        acceptance.observe(step((1, 3)))
        vectors.add(acceptance.vector)
    assert len(vectors) == 4  # the usual one, and those after 16, 48 and 112 passes
    assert all(0.0 < sum(vector) <= 1.01 and min(vector) >= 0.0 for vector in vectors)
    assert acceptance.vector[0] > 0.95


def test_a_copy_is_as_likely_as_was_fitted_until_something_is_learned() -> None:
    """Longer passages promise more, and one of several continuations less than the only one."""
    known = CopyAcceptance()
    for kind in CopyKind:
        found = [known.chance(kind, length) for length in range(300)]
        assert found == [COPIED[kind.value][level(length)] for length in range(300)]
    assert known.chance(CopyKind.DIVIDED, 20) < known.chance(CopyKind.ONLY, 20)


@pytest.mark.parametrize("kind", CopyKind)
def test_what_copies_come_to_outweighs_what_was_fitted(kind: CopyKind) -> None:
    """Of its own kind and length alone; lengths of one level are one."""
    known, fitted = CopyAcceptance(), CopyAcceptance()
    rng = np.random.default_rng(0)
    for _ in range(3000):
        known.observe(kind, 9, bool(rng.random() < 0.3))
    assert known.chance(kind, 9) == pytest.approx(0.3, abs=0.07)
    assert known.chance(kind, 15) == known.chance(kind, 9)
    others = [(one, length) for one in CopyKind for length in (0, 7, 9, 16, 500) if (one, length) != (kind, 9)]
    assert [known.chance(*one) for one in others] == [fitted.chance(*one) for one in others]


def test_a_few_copies_teach_little() -> None:
    known, fitted = CopyAcceptance(), CopyAcceptance().chance(CopyKind.ONLY, 9)
    known.observe(CopyKind.ONLY, 9, is_right=False)
    assert 0.9 * fitted < known.chance(CopyKind.ONLY, 9) < fitted


@pytest.mark.parametrize("kind", CopyKind)
@pytest.mark.parametrize("length", [0, 1, 6, 250, 700])
def test_the_chances_of_a_copy_are_those_of_its_tokens(kind: CopyKind, length: int) -> None:
    """A passage grows with every token that is right; after the first, one continuation was chosen."""
    known = CopyAcceptance()
    rng = np.random.default_rng(1)
    for _ in range(500):
        known.observe(CopyKind(int(rng.integers(3))), int(rng.integers(300)), bool(rng.random() < 0.7))
    later = CopyKind.ONLY if kind is CopyKind.DIVIDED else kind
    one_by_one = [known.chance(later if n else kind, length + n) for n in range(20)]
    assert known.chances(kind, length, 20).tolist() == one_by_one
    assert known.chances(kind, length, 0).tolist() == []


def test_what_copies_taught_travels() -> None:
    known = CopyAcceptance()
    rng = np.random.default_rng(2)
    for _ in range(500):
        known.observe(CopyKind(int(rng.integers(3))), int(rng.integers(300)), bool(rng.random() < 0.7))
    again = CopyAcceptance.from_wire(json.loads(json.dumps(known.to_wire())))
    for kind in CopyKind:
        assert again.chances(kind, 0, 300).tolist() == pytest.approx(known.chances(kind, 0, 300).tolist())
    again.observe(CopyKind.ONLY, 9, is_right=False)
    known.observe(CopyKind.ONLY, 9, is_right=False)
    assert again.chance(CopyKind.ONLY, 9) == pytest.approx(known.chance(CopyKind.ONLY, 9))


EMPTY = [[0.0] * LEVELS] * len(CopyKind)
FULL = [[1.0] * LEVELS] * len(CopyKind)


def test_a_profile_from_before_there_were_files_is_read() -> None:
    known = CopyAcceptance.from_wire({"seen": FULL[:3], "right": EMPTY[:3]})
    assert known.chance(CopyKind.ONLY, 8) < CopyAcceptance().chance(CopyKind.ONLY, 8)
    assert known.chance(CopyKind.FILE, 8) == CopyAcceptance().chance(CopyKind.FILE, 8)


@pytest.mark.parametrize(
    "damaged",
    [
        {"seen": EMPTY},
        {"seen": EMPTY, "right": FULL},
        {"seen": FULL, "right": [[-1.0] * LEVELS] * len(CopyKind)},
        {"seen": FULL[2:], "right": EMPTY[2:]},
        {"seen": FULL, "right": [[float("nan")] * LEVELS] * len(CopyKind)},
        {"seen": [[float("inf")] * LEVELS] * len(CopyKind), "right": EMPTY},
        {"seen": [["many"] * LEVELS] * len(CopyKind), "right": EMPTY},
        {"seen": [[1.0], [1.0, 2.0]], "right": EMPTY},
        {"seen": None, "right": None},
    ],
    ids=str,
)
def test_damaged_knowledge_of_copies_is_refused(damaged: dict[str, object]) -> None:
    CopyAcceptance.from_wire({"seen": FULL, "right": EMPTY})
    with pytest.raises((KeyError, TypeError, ValueError)):
        CopyAcceptance.from_wire(damaged)


def test_a_plan_expects_what_was_learned_and_else_the_prior() -> None:
    known, other = learned((2, 5)), Plan("draft-model", 2, 2, Draw.COUPLED)
    assert replace(other, learned=known).acceptance is known
    assert other.acceptance.mean == Acceptance(Draw.COUPLED).mean != known.mean


@pytest.mark.parametrize(("n", "is_learned"), [(FIRST_LOOK - 1, False), (FIRST_LOOK, True), (2 * FIRST_LOOK, True)])
def test_chances_of_an_earlier_run_are_used_as_soon_as_there_are_enough(n: int, is_learned: bool) -> None:
    """A run that begins with them need not wait for sixteen passes of its own."""
    nothing = [[0.0] * BINS for _ in range(RANKS)]
    reached = [[float(n), *[0.0] * (BINS - 1)], *nothing[1:]]
    wire = {"draw": "iid", "reached": reached, "accepted": nothing, "waited": None}
    assert (Acceptance.from_wire(wire).vector[0] < Acceptance(Draw.IID).vector[0]) == is_learned


@pytest.mark.parametrize("draw", [Draw.IID, Draw.COUPLED, Draw.WITHOUT_REPLACEMENT])
def test_before_anything_is_known_younger_siblings_are_less_likely(draw: Draw) -> None:
    chances = [Acceptance(draw).chance(0.5, rank) for rank in range(6)]
    assert chances == [prior(draw, 0.5, rank) for rank in range(6)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > chances[-1]
