"""Draft-length rules keep the target's distribution: what decides whether a token is drawn never depends on it.

Each rule runs in the shipped loop over whole generations, so that its memory of past passes matters; the answers'
distribution equals the target's to 1e-9. The same threshold applied *after* the draw is the control that must be
caught.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from localspec.engine.draft import Draft, Draw, Step
from localspec.engine.protocols import (
    Controller,
    DistributionSource,
    DraftBudget,
    History,
    Plan,
    RandomSource,
    Shape,
    TreePolicy,
    Verifier,
)
from localspec.speculation import registered
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact import wrong
from tests.exact.harness import (
    FILTERS,
    OPEN,
    Setup,
    answers,
    assert_exact,
    passes,
    target_answers,
    total_variation,
)

IID, WOR = Draw.IID, Draw.WITHOUT_REPLACEMENT
# Limits that close the gate at some nodes and leave it open at others, whatever the temperature.
SPELLINGS = ("confidence:0.6", "adaptive:0.7")
FORMS: dict[str, tuple[Verifier, TreePolicy, Shape, Draw]] = {
    "token": (TokenVerifier(), Chain(), Shape(2, 2, 1), IID),
    "block": (BlockVerifier(), Chain(), Shape(2, 2, 1), IID),
    "tree": (TreeVerifier(), Static((2, 1)), Shape(4, 2, 2), WOR),
    "traversal": (TraversalVerifier(), Static((2, 1)), Shape(4, 2, 2), WOR),
}


def ruled(form: str, build: Callable[[Shape, Draw], Controller]) -> Setup:
    """Return the setup of `form` whose plans come from the rule that `build` makes."""
    verifier, policy, shape, draw = FORMS[form]
    return Setup(
        verifier, policy, shape.nodes, shape.depth, draw, controller=lambda inner: build(shape, draw), max_tokens=4
    )


def spelled(spelling: str) -> Callable[[Shape, Draw], Controller]:
    """Return what builds the rule that `--length spelling` stands for."""
    name, _, argument = spelling.partition(":")
    return lambda shape, draw: registered("length")[name].build(argument, "d", shape, draw)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("filters", FILTERS)
def test_whole_generations(form: str, spelling: str, temperature: float, filters: str) -> None:
    """Every rule, verifier, temperature and filter; temperature 0 is exactly the argmax text."""
    sampling = replace(FILTERS[filters], temperature=temperature)
    setup = replace(ruled(form, spelled(spelling)), sampling=sampling, seed=7, max_tokens=3)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_longer_generations(form: str, spelling: str) -> None:
    """Four tokens: passes follow one another, and what a rule learned in one decides the next."""
    setup = replace(ruled(form, spelled(spelling)), sampling=replace(OPEN, top_k=2), seed=2)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("draft_temperature", [0.0, 0.3, 2.0])
def test_drafts_of_another_temperature(form: str, spelling: str, draft_temperature: float) -> None:
    """The rules ask for a distribution that nothing is drawn from: point masses, sharpened and flattened drafts stay
    exact.
    """
    setup = replace(ruled(form, spelled(spelling)), draft_temperature=draft_temperature, seed=5, max_tokens=3)
    assert_exact(answers(setup), target_answers(setup))


def sizes(form: str, spelling: str, temperature: float) -> list[tuple[int, ...]]:
    """Return which sizes of drafts come up, seed by seed."""
    sampling = replace(OPEN, temperature=temperature)
    setups = (replace(ruled(form, spelled(spelling)), sampling=sampling, seed=seed) for seed in range(8))
    return [tuple(sorted({len(step.draft) for _, step in passes(setup)})) for setup in setups]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_the_limits_matter(spelling: str, temperature: float) -> None:
    """The gates of this file are neither always open nor always closed, at temperature 0 either."""
    for form in FORMS:
        assert len({size for found in sizes(form, spelling, temperature) for size in found}) > 1


def test_a_gate_means_the_same_at_every_temperature() -> None:
    """Whether the first token is drafted depends on the pair's distributions at temperature 1 and on nothing else."""
    opened = [
        [min(each) > 0 for each in sizes("token", "confidence:0.6", temperature)]
        for temperature in (0.0, 0.3, 1.0, 2.0)
    ]
    assert opened[0] == opened[1] == opened[2] == opened[3]
    assert set(opened[0]) == {True, False}


@pytest.mark.parametrize("form", FORMS)
def test_dropping_after_the_draw_is_caught(form: str) -> None:
    """The same limit, asked of the drawn token, which is then dropped: biased by percents."""

    def dropped(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
        keep = [0]
        for node in range(1, len(draft) + 1):
            if draft.parents[node] in keep and draft.dist(node).prob(int(draft.tokens[node])) >= 0.4:
                keep.append(node)
        parents = [keep.index(int(draft.parents[node])) if node else -1 for node in keep]
        return Draft.of([int(draft.tokens[node]) for node in keep], parents, [draft.dists[node] for node in keep], IID)

    verifier, policy, shape, draw = FORMS[form]
    right = Setup(verifier, policy, shape.nodes, shape.depth, draw, max_tokens=3)
    setup = replace(right, policy=wrong.Policy(policy, dropped))
    bias = max(
        total_variation(answers(replace(setup, seed=seed)), target_answers(replace(setup, seed=seed)))
        for seed in range(3)
    )
    print(f"{form}: total variation {bias:.4f}")
    assert bias > 0.02
    assert_exact(answers(right), target_answers(right))


class Padded:
    """Another controller's plans, every pass of which has four rows at the least."""

    def __init__(self, inner: Controller) -> None:
        self._inner = inner

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        return replace(self._inner.plan(history, budget), widths=(1, 4, 4, 4, 5))

    def observe(self, step: Step, seconds: float) -> None:
        assert len(step.draft) in (0, 3, 4)
        self._inner.observe(step, seconds)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("filters", FILTERS)
def test_padding(form: str, filters: str) -> None:
    """Rows that are evaluated for nothing change nothing."""
    verifier, policy, shape, draw = FORMS[form]
    setup = Setup(
        verifier, policy, shape.nodes, shape.depth, draw, FILTERS[filters], seed=3, controller=Padded, max_tokens=3
    )
    assert_exact(answers(setup), target_answers(setup))
