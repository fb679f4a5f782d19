"""Every mode gives the target's distribution through real messages, by enumeration; forms that would not are caught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.engine.draft import Draw
from localspec.testing.enumeration import enumerate_branches
from localspec.trees.sequoia import Sequoia
from localspec.trees.specinfer import SpecInfer
from localspec.trees.static import Chain
from localspec.verify.block import BlockVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.spectr import SpecTrVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import (
    FILTERS,
    Answer,
    Setup,
    assert_exact,
    target_answers,
)
from tests.remote.edges import Remote, run

IID, WOR, FIXED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED
CHAIN, TREE, DRAFTS = Chain(), Sequoia(accept="0.5/0.3/0.1"), SpecInfer((2, 1))
CASES = {
    "ids chain": (MatchVerifier(), "ids", CHAIN, IID),
    "ids fixed": (MatchVerifier(), "ids", CHAIN, FIXED),
    "ids tree": (MatchVerifier(), "ids", DRAFTS, IID),
    "scalar-q": (TokenVerifier(), "scalar-q", CHAIN, IID),
    "scalar-q fixed": (TokenVerifier(), "scalar-q", CHAIN, FIXED),
    "sparse-q token": (TokenVerifier(), "sparse-q", CHAIN, IID),
    "sparse-q block": (BlockVerifier(), "sparse-q", CHAIN, IID),
    "sparse-q traversal": (TraversalVerifier(), "sparse-q", DRAFTS, IID),
    "sparse-q traversal, without replacement": (TraversalVerifier(), "sparse-q", TREE, WOR),
    "sparse-q tree": (TreeVerifier(), "sparse-q", DRAFTS, IID),
    "sparse-q tree, without replacement": (TreeVerifier(), "sparse-q", TREE, WOR),
    "sparse-q fixed": (TokenVerifier(), "sparse-q", CHAIN, FIXED),
    "laws token": (TokenVerifier(), "laws", CHAIN, IID),
    "laws block": (BlockVerifier(), "laws", CHAIN, IID),
    "laws match": (MatchVerifier(), "laws", DRAFTS, IID),
    "laws tree": (TreeVerifier(), "laws", TREE, WOR),
    "laws traversal": (TraversalVerifier(), "laws", DRAFTS, IID),
    "laws spectr": (SpecTrVerifier(), "laws", DRAFTS, IID),
}


def remote(case: str, **changes) -> Remote:
    rule, mode, policy, draw = CASES[case]
    n = 2 if policy is CHAIN else 3
    setup = Setup(rule, policy, n, n if policy is CHAIN else 2, draw, max_tokens=4)
    return Remote(replace(setup, **changes), mode)


def answers(one: Remote) -> dict[Answer, float]:
    """Return the distribution of the answer over every branch of chance on both sides."""
    target, draft = one.setup.tables()
    found: dict[Answer, float] = {}
    for weight, answer in enumerate_branches(lambda rng: tuple(run(one, target, draft, rng)[0])):
        found[answer] = found.get(answer, 0.0) + weight
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sampling", FILTERS)
def test_each_mode_has_the_target_distribution(case: str, sampling: str) -> None:
    """Whole answers of three tokens: the prompt's own, then rounds of drafts, with penalties and filters far away."""
    one = remote(case, sampling=FILTERS[sampling], max_tokens=3, seed=3)
    assert_exact(answers(one), target_answers(one.setup))
