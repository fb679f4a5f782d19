"""A head's guesses depend on the target's own hidden states, and the text still has the target's distribution."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from localspec.engine.draft import Draw
from localspec.engine.protocols import Drafter, Nodes, TreePolicy, Verifier
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import Eagle3, Medusa
from localspec.testing.contract import TableBackend
from localspec.trees.dyspec import DySpec
from localspec.trees.eagle2 import Eagle2
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import OPEN, Setup, Table, answers, assert_exact, target_answers

N_VOCAB = 3


class ToyHead(TableBackend):
    """A head on tables. Its state is the target's row before the pending token; what follows turns it.

    Like a real head it forgets accepted nodes, and is told the text again with the target's states.
    """

    def __init__(self, target: Table) -> None:
        super().__init__(self._row, N_VOCAB)
        self._target = target

    def keep(self, nodes: Nodes) -> None:
        self.truncate(self.length)

    def _row(self, tokens: tuple[int, ...]) -> np.ndarray:
        known = tokens[: self.length - 1]
        turned = np.random.default_rng([7, *tokens[len(known) :]]).normal(size=N_VOCAB)
        return (self._target(known) + turned).astype(np.float32)


class ToyMarginals(ToyHead):
    """A head whose guesses depend on that state and their depth alone, such as Medusa's."""

    def __init__(self, target: Table) -> None:
        super().__init__(target)
        self.capabilities = replace(self.capabilities, n_guesses=2)

    def _row(self, tokens: tuple[int, ...]) -> np.ndarray:
        turned = np.random.default_rng([7, len(tokens) - self.length]).normal(size=N_VOCAB)
        return (self._target(tokens[: self.length - 1]) + turned).astype(np.float32)


def medusa(policy: TreePolicy, target: Table) -> Medusa:
    return Medusa(ToyMarginals(target), Sampler(OPEN), policy, lambda: False)


def head(policy: TreePolicy, target: Table) -> Eagle3:
    return Eagle3(ToyHead(target), Sampler(OPEN), policy, lambda: False)


@pytest.mark.parametrize("drafter", [head, medusa])
@pytest.mark.parametrize(
    ("policy", "nodes", "draw", "rule"),
    [
        (Chain(), 2, Draw.IID, TokenVerifier()),
        (Chain(), 2, Draw.IID, BlockVerifier()),
        (Static((2, 1)), 4, Draw.WITHOUT_REPLACEMENT, TreeVerifier()),
        (Static((2, 1)), 4, Draw.WITHOUT_REPLACEMENT, TraversalVerifier()),
        (Eagle2(4), 4, Draw.FIXED, MatchVerifier()),
        (DySpec(4), 4, Draw.FIXED, MatchVerifier()),
        (DySpec(4), 4, Draw.WITHOUT_REPLACEMENT, TraversalVerifier()),
    ],
    ids=["token", "block", "tree", "traversal", "eagle2", "dyspec", "dyspec-drawn"],
)
def test_text_has_the_targets_distribution(
    policy: TreePolicy, nodes: int, draw: Draw, rule: Verifier, drafter: Callable[[TreePolicy, Table], Drafter]
) -> None:
    max_tokens = 3 if nodes > 2 else 4
    setup = Setup(
        rule, policy, nodes, 2, draw, n_vocab=N_VOCAB, max_tokens=max_tokens, drafter=partial(drafter, policy)
    )
    assert_exact(answers(setup), target_answers(setup))
