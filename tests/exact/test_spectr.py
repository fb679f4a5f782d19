"""K-SEQ: exact for one to three drafts, the token rule for one, and as good as its formula says (arXiv 2310.15141)."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import RandomSource
from localspec.speculation import registered
from localspec.trees.spectr import SpecTr as Drafts
from localspec.trees.static import Static
from localspec.verify.spectr import SpecTrVerifier, _Choice
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from tests.exact.harness import (
    EXACT,
    OPEN,
    PROMPT,
    Setup,
    answers,
    assert_exact,
    first_tokens,
    passes,
    target_answers,
    total_variation,
)
from tests.exact.reference import reference_dist
from tests.exact.test_expectations import outcomes

SAMPLINGS = {
    "open": OPEN,
    "filtered": replace(OPEN, top_k=2, repeat_penalty=1.25, presence_penalty=0.5),
    "min-p": replace(OPEN, min_p=0.2),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("drafts", "length"), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (4, 1)])
@pytest.mark.parametrize("filters", SAMPLINGS)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_one_pass(drafts: int, length: int, filters: str, temperature: float) -> None:
    """Independent drafts with duplicates among them, kept in the order of drawing."""
    nodes = drafts * length
    sampling = replace(SAMPLINGS[filters], temperature=temperature)
    setup = Setup(
        SpecTrVerifier(), Drafts(drafts=drafts), nodes, length, sampling=sampling, draft_temperature=1.0, seed=3
    )
    setup = replace(setup, max_tokens=length + 1)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize(("drafts", "length"), [(3, 2), (2, 3)])
@pytest.mark.parametrize("seed", range(2))
def test_long_and_many_drafts(drafts: int, length: int, seed: int) -> None:
    """After an accepted token the drafts that agree with it go on, and those are one, two or three."""
    setup = Setup(
        SpecTrVerifier(), Drafts(drafts=drafts), drafts * length, length, sampling=SAMPLINGS["filtered"], seed=seed
    )
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("rho", [1.2, 1.7, 3.0, 40.0])
@pytest.mark.parametrize("filters", SAMPLINGS)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_a_greater_rho(rho: float, filters: str, temperature: float) -> None:
    """Below the least that is exact the option does nothing, above it chances sink and the distribution stays."""
    sampling = replace(SAMPLINGS[filters], temperature=temperature)
    setup = Setup(
        SpecTrVerifier(rho), Drafts(drafts=3), 3, 1, sampling=sampling, draft_temperature=1.0, seed=3, max_tokens=2
    )
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


def test_a_greater_rho_accepts_less() -> None:
    """The default asks for nothing, so it is the rule of the formula."""
    setups = [Setup(SpecTrVerifier(rho), Drafts(drafts=3), 3, 1, seed=3, max_tokens=99) for rho in (1.0, 6.0, 40.0)]
    accepted = [sum(weight * len(step.verdict.path) for weight, step in passes(setup)) for setup in setups]
    assert accepted[0] > accepted[1] + 0.01
    assert accepted[1] > accepted[2] + 0.01
    assert accepted[2] <= 3 / 40 + EXACT


def test_every_parameter_of_a_lossless_rule_is_enumerated() -> None:
    """This file has the only one; another rule that gets a parameter needs such a test."""
    lossless = {name: rule for name, rule in registered("verify").items() if rule.is_lossless}
    options = {name: [one.name for one in getattr(rule, "options", ())] for name, rule in lossless.items()}
    assert {name: found for name, found in options.items() if found} == {"spectr": ["rho"]}


@pytest.mark.parametrize("widths", [(2, 2), (1, 3), (2, 1)])
@pytest.mark.parametrize("draw", [Draw.IID, Draw.FIXED])
def test_other_trees(widths: tuple[int, ...], draw: Draw) -> None:
    """Any expansion vector will do, and point masses are tried one by one."""
    nodes = Static(widths).shape(0).nodes
    setup = Setup(SpecTrVerifier(), Static(widths), nodes, 2, draw, SAMPLINGS["filtered"], max_tokens=3, seed=2)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.parametrize("filters", SAMPLINGS)
@pytest.mark.parametrize("seed", range(3))
def test_whole_generations(filters: str, seed: int) -> None:
    setup = Setup(SpecTrVerifier(), Drafts(drafts=2), 2, 1, sampling=SAMPLINGS[filters], max_tokens=3, seed=seed)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("filters", SAMPLINGS)
@pytest.mark.parametrize("seed", range(4))
def test_one_draft_is_the_token_rule(filters: str, seed: int) -> None:
    """The joint distribution of draft, acceptance and own token is that of token rejection."""
    setup = Setup(SpecTrVerifier(), depth=3, nodes=3, sampling=SAMPLINGS[filters], seed=seed, max_tokens=99)
    mine, its = outcomes(setup), outcomes(replace(setup, verifier=TokenVerifier()))
    assert all(abs(mine.get(key, 0.0) - its.get(key, 0.0)) < EXACT for key in mine.keys() | its.keys())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_acceptance_is_that_of_the_formula(k: int, seed: int) -> None:
    """One token, k drafts: accepted with 1 - (1 - beta(rho))^k, rho by a search of the test's own."""
    setup = Setup(SpecTrVerifier(), Drafts(drafts=k), k, 1, seed=seed, max_tokens=99)
    accepted = sum(weight * len(step.verdict.path) for weight, step in passes(setup))
    target, draft = setup.tables()
    p, q = (reference_dist(table(PROMPT), PROMPT, setup.sampling) for table in (target, draft))

    def beta(rho: float) -> float:
        return sum(min(q.get(token, 0.0), chance / rho) for token, chance in p.items())

    rho = min(r for r in (1.0 + (k - 1) * at / 1e5 for at in range(100_001)) if 1 - (1 - beta(r)) ** k <= r * beta(r))
    assert accepted == pytest.approx(1 - (1 - beta(rho)) ** k, abs=1e-4)
    fewer = replace(setup, policy=Drafts(drafts=k - 1), nodes=k - 1)
    assert accepted > sum(weight * len(step.verdict.path) for weight, step in passes(fewer)) - EXACT


@pytest.mark.parametrize("spoil", ["no division", "left of p"])
def test_wrong_forms_are_caught(spoil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins as if there were one draft, and a correction drawn from p: both look harmless."""
    if spoil == "no division":
        monkeypatch.setattr("localspec.verify.spectr._Choice._division", lambda choice: 1.0)
    else:
        monkeypatch.setattr("localspec.verify.spectr._Choice.rest", lambda choice: choice._p)
    biases = []
    for seed in range(4):
        setup = Setup(SpecTrVerifier(), Drafts(drafts=2), 2, 1, seed=seed, max_tokens=2)
        biases.append(total_variation(first_tokens(setup, passes(setup)), target_answers(setup)))
    print(f"{spoil}: total variation {max(biases):.4f}")
    assert max(biases) > 0.01


class Heads:
    """A source of chance whose coins all show heads that can."""

    def bernoulli(self, a: float) -> bool:
        return a > 0.0

    def categorical(self, dist: Distribution) -> int:
        return int(dist.ids[dist.probs.argmax()])


def test_every_draft_that_holds_the_accepted_token_goes_on() -> None:
    """Two drafts begin alike, and only the second ends with the token that the target wants."""
    q = Distribution(np.array([5, 6, 7], np.int32), np.array([0.4, 0.3, 0.3]))
    draft = Draft.of([0, 5, 5, 6, 7], [-1, 0, 0, 1, 2], [None, q, q, q, q], Draw.IID)
    dists = [Distribution.one_hot(token) for token in (5, 7, 7, 1, 2)]
    assert SpecTrVerifier().verify(draft, dists, cast(RandomSource, Heads()), 0) == draft.verdict(4, 2)


def test_what_the_candidates_leave_is_the_targets_own_where_there_is_nothing_in_common_or_nothing_else() -> None:
    some, other = (Distribution(np.array(ids, np.int32), np.array([0.5, 0.5])) for ids in ([1, 2], [3, 4]))
    for q in (some, other):
        assert _Choice(some, q, 2, 1.0).rest() is some


def test_nothing_is_read_behind_a_token_that_the_target_cannot_say() -> None:
    """Where a form forbids it, there is no law behind it."""
    q = Distribution(np.array([5, 6], np.int32), np.array([0.5, 0.5]))
    draft = Draft.of([0, 5, 5], [-1, 0, 1], [None, q, q], Draw.IID)
    dists = {0: Distribution.one_hot(6)}  # no other is asked for
    assert TraversalVerifier().verify(draft, dists, cast(RandomSource, Heads()), 0) == draft.verdict(0, 6)
