"""Exactness where distributions, lengths and text meet their limits: supports that do not overlap, certain drafts, end
tokens inside a draft, the clamp at the end, adaptive drafting, measuring passes. All by enumeration.
"""

import math
from dataclasses import replace

import pytest

from localspec.control.schedule import Probing
from localspec.engine.draft import Draft, Draw, Source
from localspec.engine.protocols import DraftState
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.testing.contract import random_table
from localspec.trees.static import Static
from localspec.verify.block import BlockVerifier
from localspec.verify.match import MatchVerifier, follow
from localspec.verify.spectr import SpecTrVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from localspec.verify.typical import TypicalVerifier
from tests.exact.harness import (
    EXACT,
    OPEN,
    Setup,
    answers,
    assert_exact,
    first_tokens,
    masked,
    one_hot_table,
    passes,
    target_answers,
)

IID, WOR, FIXED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED
SETUPS = {
    "token": Setup(TokenVerifier()),
    "block": Setup(BlockVerifier()),
    "tree": Setup(TreeVerifier(), Static((2, 1)), 4, 2, WOR),
    "tree-iid": Setup(TreeVerifier(), Static((2,)), 2, 1, IID),
    "traversal": Setup(TraversalVerifier(), Static((2, 1)), 4, 2, WOR),
    "match": Setup(MatchVerifier(), Static((2, 1)), 4, 2, FIXED),
}
CHAINS, TREES = False, True
PROPERTIES = {  # what a rule judges, and whether it keeps the distribution; spelled out, since other tests ask the rule
    "block": (CHAINS, True),
    "coupled": (TREES, True),
    "match": (TREES, True),
    "spectr": (TREES, True),
    "token": (CHAINS, True),
    "traversal": (TREES, True),
    "tree": (TREES, True),
    "typical": (TREES, False),
}
RESIDUAL = [name for name in SETUPS if name != "match"]
all_rules = pytest.mark.parametrize("rule", SETUPS)


@pytest.mark.thinned(2)
@all_rules
@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("target_temperature", [0.0, 1.0])
def test_the_draft_has_its_own_temperature(rule: str, temperature: float, target_temperature: float) -> None:
    """Drafting colder, hotter or greedily changes only how much is accepted, also under a greedy target."""
    sampling = replace(OPEN, temperature=target_temperature)
    setup = replace(SETUPS[rule], sampling=sampling, draft_temperature=temperature, max_tokens=3, seed=3)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.thinned(2)
@all_rules
@pytest.mark.parametrize(
    "draft_sampling",
    [
        replace(OPEN, top_k=2),
        replace(OPEN, top_k=1),
        replace(OPEN, min_p=0.5, temperature=0.7),
        replace(OPEN, typical_p=0.5, repeat_penalty=2.0),
        replace(OPEN, logit_bias=((1, 3.0),)),
    ],
    ids=["top-k 2", "top-k 1", "min-p", "typical-p", "bias"],
)
def test_the_draft_has_its_own_filters(rule: str, draft_sampling: Sampling) -> None:
    """The draft's filters need not be the target's: tokens outside q's support come from the residual."""
    sampling = replace(OPEN, top_p=0.95, presence_penalty=0.5)
    setup = replace(SETUPS[rule], sampling=sampling, draft_sampling=draft_sampling, max_tokens=3, seed=5)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("rule", RESIDUAL)
def test_a_perfect_draft_is_always_accepted(rule: str) -> None:
    """q == p: every pass commits its whole depth and the bonus token."""
    setup = replace(SETUPS[rule], distance=0.0, max_tokens=9)
    steps = passes(setup)
    assert {len(step.tokens) for _, step in steps} == {setup.depth + 1}
    assert {step.sources[-1] for _, step in steps} == {Source.BONUS}
    assert_exact(first_tokens(replace(setup, max_tokens=3), steps), target_answers(replace(setup, max_tokens=3)))


@all_rules
def test_disjoint_supports_accept_nothing(rule: str) -> None:
    """The target can say 0 and 1, the draft 2 and 3: every pass commits the target's own token, drawn from p."""
    table = random_table(4, 11)
    setup = replace(SETUPS[rule], n_vocab=4, target=masked(table, [2, 3]), draft=masked(table, [0, 1]), max_tokens=3)
    assert {len(step.tokens) for _, step in passes(setup)} == {1}
    assert_exact(answers(setup), target_answers(setup))


@all_rules
def test_children_the_target_never_says(rule: str) -> None:
    """Some children have p = 0: they are rejected with certainty, and what follows them is never accepted."""
    table = random_table(4, 12)
    setup = replace(SETUPS[rule], n_vocab=4, target=masked(table, [3]), draft=table, max_tokens=3)
    dist = answers(setup)
    assert all(3 not in answer for answer in dist)
    assert_exact(dist, target_answers(setup))


@all_rules
@pytest.mark.parametrize("token", [0, 2])
def test_a_certain_draft(rule: str, token: int) -> None:
    """q one-hot, so that siblings repeat one token or run out: the point mass is tried, the rest comes from p."""
    setup = replace(SETUPS[rule], draft=one_hot_table(3, lambda text: token), max_tokens=3, seed=6)
    assert_exact(answers(setup), target_answers(setup))


@all_rules
def test_a_certain_target(rule: str) -> None:
    """p one-hot and q soft: the text is the target's one text."""
    setup = replace(SETUPS[rule], target=one_hot_table(3, lambda text: sum(text) % 3), draft=random_table(3, 8))
    assert len(target_answers(setup)) == 1
    assert_exact(answers(setup), target_answers(setup))


@all_rules
@pytest.mark.parametrize("eog", [0, 1, 2])
def test_end_tokens_inside_a_draft(rule: str, eog: int) -> None:
    """The text ends at the first end token of an accepted run; what was accepted after it never was."""
    setup = replace(SETUPS[rule], eog=frozenset({eog}), max_tokens=4, seed=9)
    dist = answers(setup)
    assert all(eog not in answer[:-1] for answer in dist)
    assert any(len(answer) < 4 for answer in dist)
    assert_exact(dist, target_answers(setup))


@all_rules
def test_the_cut_falls_inside_accepted_runs(rule: str) -> None:
    """With an end token and a good draft some branch is cut inside its accepted run: the case is really met."""
    setup = replace(SETUPS[rule], eog=frozenset({1}), distance=0.1, max_tokens=4)
    assert any(len(step.tokens) <= len(step.verdict.path) for _, step in passes(setup))


@all_rules
@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4])
def test_the_clamp_at_the_end(rule: str, max_tokens: int) -> None:
    """n = 1, 2, K + 1 and more: drafts shorten near the end, exactly max_tokens come out, exactly distributed."""
    setup = replace(SETUPS[rule], max_tokens=max_tokens, seed=10)
    dist = answers(setup)
    assert {len(answer) for answer in dist} == {max_tokens}
    assert_exact(dist, target_answers(setup))


@all_rules
def test_the_end_of_the_context(rule: str) -> None:
    """A context of five tokens ends the answer by itself: four after a prompt of two, the last one uncached."""
    setup = replace(SETUPS[rule], n_ctx=5, max_tokens=99, seed=10)
    dist = answers(setup)
    assert {len(answer) for answer in dist} == {4}
    assert_exact(dist, target_answers(replace(setup, max_tokens=4)))


def stops_when_unsure(state: DraftState) -> bool:
    """Draft on only where the draft is fairly sure: known before the draw, so legal."""
    return state.dist.top > 0.5


def one_child_when_sure(state: DraftState) -> bool:
    """A second child only where the first is doubtful, deeper levels only while the tree is small."""
    return state.dist.top < 0.6 or state.n_nodes % 2 == 0


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", [*SETUPS])
@pytest.mark.parametrize("go_on", [stops_when_unsure, one_child_when_sure], ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_adaptive_drafting(rule: str, go_on, seed: int) -> None:
    """A rule that looks at the distribution at hand before each draw leaves the output distribution alone, and does
    change shapes.
    """
    setup = replace(SETUPS[rule], go_on=go_on, seed=seed, max_tokens=3)
    steps = passes(replace(setup, max_tokens=9))
    assert_exact(answers(setup), target_answers(setup))
    assert_exact(first_tokens(setup, steps), target_answers(setup))


def deep_if_both_branches_grew(state: DraftState) -> bool:
    """The second branch grows where the draft is sure there; the first goes deeper only if the second has grown."""
    if state.depth == 1:
        return state.n_nodes == 2 or state.dist.top > 0.6
    return state.depth == 0 or state.n_nodes == 4


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "rule", [TreeVerifier(), TraversalVerifier(), MatchVerifier()], ids=lambda rule: type(rule).__name__
)
@pytest.mark.parametrize("draw", [WOR, IID])
@pytest.mark.parametrize("seed", [2, 12, 25])  # pairs on which the rule does vary the shape
def test_a_branch_may_grow_by_what_another_drew(rule, draw: Draw, seed: int) -> None:
    """How deep one branch is may depend on the token of a sibling that is verified after it: a subtree is accepted
    with the same probability whatever hangs below what was drawn so far."""
    setup = Setup(rule, Static((2, 1, 1)), 6, 3, draw, seed=seed, max_tokens=4, go_on=deep_if_both_branches_grew)
    steps = passes(setup)
    assert len({len(step.draft) for _, step in steps}) > 1
    assert_exact(first_tokens(setup, steps), target_answers(setup))


def test_adaptive_rules_vary_the_shape() -> None:
    """The rules above are not idle: over the seeds, drafts of different size come out."""
    for go_on in (stops_when_unsure, one_child_when_sure):
        sizes = {
            len(step.draft)
            for seed in range(3)
            for _, step in passes(replace(SETUPS["tree"], go_on=go_on, seed=seed, max_tokens=9))
        }
        assert len(sizes) > 1


@all_rules
def test_measuring_passes(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probing controller's plain passes never change the distribution. One of them follows a draft here."""
    monkeypatch.setattr("localspec.control.schedule.AGAIN", 1)
    probes = 0

    class Counting(Probing):
        def observe(self, step, seconds) -> None:
            nonlocal probes
            probes += step.plan.why.startswith("measures")
            super().observe(step, seconds)

    setup = replace(SETUPS[rule], controller=lambda inner: Counting(inner, is_known=True), max_tokens=4, seed=13)
    dist = answers(setup)
    assert probes > 0
    assert_exact(dist, target_answers(setup))


def test_the_first_token_is_plain() -> None:
    """The first token comes straight from the prompt's last row, before anything is drafted."""
    setup = replace(SETUPS["token"], max_tokens=1)
    dist = answers(setup)
    assert len(dist) == 3
    assert_exact(dist, target_answers(setup))
    assert abs(sum(dist.values()) - 1.0) < EXACT


def test_a_walk_down_a_tree_asks_for_a_draw_at_each_place_of_its_way() -> None:
    """Its depth tells which position's noise a draw has."""
    draft = Draft.of([9, 5, 6, 5], [-1, 0, 0, 2])
    asked: list[tuple[int, int]] = []

    def draw(node: int, depth: int) -> int:
        asked.append((node, depth))
        return (6, 5, 7)[depth]

    assert follow(draft, draw) == draft.verdict(3, 7)
    assert asked == [(0, 0), (2, 1), (3, 2)]


def test_what_each_rule_says_of_itself() -> None:
    rules = registered("verify")
    assert {name: (rule.trees, rule.is_lossless) for name, rule in rules.items()} == PROPERTIES


def test_the_defaults_that_options_of_rules_name_are_those_of_the_rules() -> None:
    for verifier in (TypicalVerifier, SpecTrVerifier):
        made = verifier()
        assert [each.default for each in verifier.options] == [
            getattr(made, f"_{each.name}") for each in verifier.options
        ]


def test_what_the_options_of_rules_may_be() -> None:
    found = {
        (name, each.name): (each.default, each.low, each.high)
        for name, rule in registered("verify").items()
        for each in getattr(rule, "options", ())
    }
    assert found == {
        ("spectr", "rho"): (1.0, 1.0, math.inf),
        ("typical", "epsilon"): (0.09, 0.0, 1.0),
        ("typical", "delta"): (0.3, 0.0, 1.0),
    }
