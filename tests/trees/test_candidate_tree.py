"""Wide candidate trees: no more sequences than there are, and all of them where they are wanted."""

import pytest

from localspec.engine.draft import Draw
from localspec.engine.protocols import Plan
from localspec.engine.randomness import SeededRandom
from localspec.trees.budget import MAX_LEAVES
from localspec.trees.eagle2 import CandidateTree
from tests.trees.test_trees import RandomDistributions


@pytest.mark.parametrize("seed", range(5))
def test_a_level_of_more_candidates_than_sequences_takes_them_all_and_no_more(seed: int) -> None:
    source = RandomDistributions(seed, n_vocab=200, sharpness=0.01)
    plan = Plan("it", 120, 4, Draw.FIXED)
    tree = CandidateTree(3, 50, source, plan, SeededRandom(seed))
    first = tree.grow([0], MAX_LEAVES + 1)
    assert len(first) == MAX_LEAVES + 1
    second = tree.grow(first, 2)
    assert source.n_leaves == MAX_LEAVES
    assert len(second) == 2 * MAX_LEAVES
    draft = tree.draft(120)
    assert draft.n_leaves == MAX_LEAVES
    tree.grow(second, 1)
    assert source.n_leaves == MAX_LEAVES
