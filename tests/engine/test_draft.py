"""Drafts as trees: their shape, what counts as acceptable, and what a pass tells of itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw, Nodes, Source, Step, Times
from localspec.engine.protocols import Plan

TREE = Draft.of([7, 1, 2, 3, 1, 5], [-1, 0, 0, 1, 2, 4])


@st.composite
def parents(draw) -> list[int]:
    size = draw(st.integers(0, 9))
    return [-1, *(draw(st.integers(0, node)) for node in range(size))]


@given(parents())
def test_shape_agrees_with_the_parents(parents: list[int]) -> None:
    draft = Draft.of(list(range(len(parents))), parents)
    for node in range(len(parents)):
        assert draft.children[node] == tuple(child for child, parent in enumerate(parents) if parent == node)
        path = draft.path(node)
        assert path == sorted(path)
        assert (path[-1:] == [node]) == (node > 0)
        assert all(parents[child] == parent for parent, child in zip([0, *path], path, strict=False))
    assert len(draft) == len(parents) - 1
    assert draft.depth == max(len(draft.path(node)) for node in range(len(parents)))
    assert draft.n_leaves == sum(node not in parents for node in range(len(parents)))
    assert draft.is_chain == all(parents.count(node) <= 1 for node in range(len(parents)))


def test_the_empty_draft() -> None:
    """The pending token alone: plain decoding."""
    draft = Draft.root(7)
    assert (len(draft), draft.depth, draft.n_leaves, draft.is_chain) == (0, 0, 1, True)
    assert draft.children == ((),)


def test_parents_precede_their_children() -> None:
    """A node below a later one is a bug of the drafter."""
    with pytest.raises(AssertionError, match="precedes"):
        Draft.of([7, 1, 2], [-1, 2, 0])


def test_scratch_nodes_may_not_be_accepted() -> None:
    """They take rows and leaves but are no children, no depth, and no draft tokens of the count."""
    scratch = np.array([False, False, True, False, True, True])
    draft = Draft(TREE.tokens, TREE.parents, TREE.dists, TREE.draws, scratch, TREE.outputs)
    assert draft.children == ((1,), (3,), (), (), (), ())
    assert draft.is_chain
    assert (draft.depth, draft.n_leaves) == (2, 2)
    step = Step(draft, draft.verdict(0, 5), (5,), (Source.CORRECTED,), (0,), 3, Times(), Plan())
    assert step.n_drafted == 2


def test_a_point_mass_stands_for_what_was_not_drawn() -> None:
    """`dist` of a node without one is certain of its token."""
    dist = Distribution(np.array([1, 2], np.int32), np.array([0.5, 0.5]))
    draft = Draft.of([7, 1, 2], [-1, 0, 0], [None, dist, None], Draw.IID)
    assert draft.dist(1) is dist
    assert draft.dist(2).prob(2) == 1.0
    assert draft.draws == (Draw.FIXED, Draw.IID, Draw.IID)


@pytest.mark.parametrize(
    ("node", "path", "source"),
    [(0, (), Source.CORRECTED), (2, (2,), Source.CORRECTED), (5, (2, 4, 5), Source.BONUS), (3, (1, 3), Source.BONUS)],
)
def test_verdicts(node: int, path: Nodes, source: Source) -> None:
    """The path leads down to the node; a leaf gives a bonus, an inner node a correction."""
    verdict = TREE.verdict(node, 9)
    assert (verdict.path, verdict.token, verdict.source) == (path, 9, source)


def test_counts_of_a_step() -> None:
    """Accepted are those that were committed, not those the verdict accepted before a cut."""
    step = Step(TREE, TREE.verdict(5, 9), (2, 1), (Source.ACCEPTED,) * 2, (0, 2), 3, Times(0.1, 0.2, 0.3, 0.4), Plan())
    assert (step.n_drafted, step.n_accepted) == (5, 2)
    assert step.times.total == pytest.approx(1.0)


def test_padding_is_evaluated_and_never_accepted() -> None:
    """Its rows are wanted by nobody, and what was drafted stays as it was."""
    draft = Draft.of([5, 6, 7], [-1, 0, 0], draw=Draw.IID, shares=[1.0, 0.5, 0.25])
    padded = draft.padded(6)
    assert padded.tokens.tolist() == [5, 6, 7, 7, 7, 7]
    assert padded.parents.tolist() == [-1, 0, 0, 2, 3, 4]
    assert padded.outputs.tolist() == [True] * 3 + [False] * 3
    assert padded.children[:3] == draft.children
    assert (padded.depth, padded.n_leaves) == (draft.depth, draft.n_leaves)
    assert [padded.share(node) for node in range(3)] == [1.0, 0.5, 0.25]
    assert draft.padded(3) is draft.padded(1) is draft
