"""Negative controls: every wrong rule is caught by the comparison that the right ones pass.

`at_least` is the total variation between the rule's distribution of three tokens and the target's that the worst of the
pairs must show: about two thirds of what was measured, far above 1e-6 and far above the 1e-9 that right rules keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import Rows
from localspec.engine.sampling import Sampler, TargetDistributions
from localspec.trees.static import Static
from localspec.verify.block import BlockVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact import wrong
from tests.exact.harness import (
    EXACT,
    OPEN,
    Setup,
    answers,
    first_tokens,
    passes,
    target_answers,
    total_variation,
    worst,
)

SEEDS = range(5)
IID, WOR, FIXED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED


@dataclass(frozen=True)
class Control:
    """A wrong rule in the setup that shows it, and the right one that differs from it in that rule only."""

    name: str
    setup: Setup
    right: Setup
    at_least: float


def rejection(name: str, rule: wrong.Rejection, at_least: float) -> Control:
    return Control(name, Setup(rule), Setup(TokenVerifier()), at_least)


def policy(name: str, right: Setup, spoil, at_least: float) -> Control:
    return Control(name, replace(right, policy=wrong.Policy(right.policy, spoil)), right, at_least)


SIBLINGS = Setup(TreeVerifier(), Static((2,)), 2, 1, WOR, distance=2.0)
CONTROLS = [
    policy("argmax draft scored with softmax q", Setup(TokenVerifier(), draw=FIXED), wrong.softmax_of_an_argmax, 0.22),
    policy(
        "argmax draft scored with softmax q, block",
        Setup(BlockVerifier(), draw=FIXED),
        wrong.softmax_of_an_argmax,
        0.25,
    ),
    rejection("residual abs(p - q)", wrong.Rejection(correct=wrong.absolute_residual), 0.24),
    Control(
        "resampling after a mismatch", Setup(wrong.Resampling(), draw=FIXED), Setup(TokenVerifier(), draw=FIXED), 0.18
    ),
    policy("p_min drop", Setup(TokenVerifier()), wrong.unlikely_dropped, 0.13),
    policy("post-hoc pruning", Setup(TokenVerifier()), wrong.pruned_afterwards, 0.12),
    policy("post-hoc pruning, block", Setup(BlockVerifier()), wrong.pruned_afterwards, 0.14),
    rejection("shortcut: correction from p", wrong.Rejection(correct=wrong.the_target), 0.10),
    rejection("accept iff p/q >= 1", wrong.Rejection(accept=wrong.only_if_likelier, correct=wrong.the_target), 0.09),
    rejection("scalar residual", wrong.Rejection(correct=wrong.scalar_residual), 0.09),
    policy("siblings' q not renormalised", SIBLINGS, wrong.not_renormalised, 0.32),
    policy("siblings' q not renormalised, near pair", replace(SIBLINGS, distance=0.1), wrong.not_renormalised, 0.0005),
    policy("siblings reported as independent", SIBLINGS, wrong.as_if_replaced, 0.32),
    policy("siblings tried best first", SIBLINGS, wrong.best_first, 0.04),
    policy("q before its filters", Setup(TokenVerifier()), wrong.flattened, 0.08),
    rejection("ratio inverted", wrong.Rejection(accept=wrong.inverted), 0.49),
    rejection("typical acceptance", wrong.Rejection(accept=wrong.typical), 0.49),
    rejection("confident tokens unverified", wrong.Rejection(accept=wrong.confident_draft), 0.49),
    rejection("one uniform for draw and coin", wrong.Rejection(accept=wrong.one_uniform_for_both), 0.13),
    rejection("bonus row off by one", wrong.Rejection(bonus_row=1), 0.33),
    Control("block that stops at the first failure", Setup(wrong.LastSuccess()), Setup(BlockVerifier()), 0.07),
]


def dists(setup: Setup, seed: int) -> tuple[dict, dict]:
    """Return the distribution of three tokens under `setup`, and the target's."""
    setup = replace(setup, seed=seed, max_tokens=3)
    return first_tokens(setup, passes(setup)), target_answers(setup)


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_a_wrong_rule_is_flagged(control: Control) -> None:
    """The same enumeration that proves the right rules shows the bias, and the right rule in its place shows none."""
    bias = max(total_variation(*dists(control.setup, seed)) for seed in SEEDS)
    print(f"{control.name}: total variation {bias:.4f}")
    assert bias > control.at_least > 1e-6
    assert max(worst(*dists(control.right, seed)) for seed in SEEDS) < EXACT


def test_penalties_must_see_the_drafted_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributions with the committed text as every node's history are flagged: each node needs its own path."""

    class Forgetful(TargetDistributions):
        def __init__(self, sampler: Sampler, rows: Rows, draft: Draft, tokens: Sequence[int]) -> None:
            super().__init__(sampler, rows, draft, tokens)
            self._committed = tokens
            self._shared = (sampler, rows)

        def __getitem__(self, node: int) -> Distribution:
            sampler, rows = self._shared
            return sampler.dist(rows.logits(node), self._committed)

    setup = Setup(BlockVerifier(), sampling=replace(OPEN, repeat_penalty=1.5, presence_penalty=0.5), max_tokens=3)
    assert worst(answers(setup), target_answers(setup)) < EXACT
    monkeypatch.setattr("localspec.engine.judge.TargetDistributions", Forgetful)
    assert total_variation(answers(setup), target_answers(setup)) > 0.01
