"""Whatever is registered is enumerated in every run: each rule, tree, length rule and method, as people get it by name.

The cases come from the registers, so an entry without a proof fails here, and none of these tests is thinned. The other
files of this folder go further: each axis with the others, filters, temperatures and sizes.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from localspec.engine.draft import Draw
from localspec.engine.protocols import Drafter
from localspec.engine.sampling import Sampler
from localspec.errors import UsageError
from localspec.methods import DrafterContext
from localspec.settings.request import Speculation
from localspec.speculation import registered
from localspec.speculation.resolve import Axes, resolve_axes
from localspec.testing.contract import TableBackend, random_table
from tests.exact import harness
from tests.exact.harness import (
    OPEN,
    Setup,
    Table,
    answers,
    assert_exact,
    assert_texts_are_plain,
    target_answers,
    total_variation,
)
from tests.exact.test_lookup import PROMPTS, Tally, repetitive

LOSSLESS = [name for name, rule in registered("verify").items() if rule.is_lossless]
SPELLINGS = {"static": "static:2,1", "specinfer": "specinfer:2,1"}  # of names that need an argument
EVIDENT = 1e-3  # a total variation that no rounding explains


def axes_of(**asked: str | bool) -> Axes:
    """Return what the command line makes of these names for a pair."""
    return resolve_axes(Speculation(**{"method": "draft-model", **asked}), has_draft=True, is_seeded=False)


def setup_of(axes: Axes) -> Setup:
    """Return three tokens of these axes, with drafts of at most three nodes in two levels."""
    return Setup(
        axes.verifier,
        axes.policy,
        min(3, axes.shape.nodes),
        min(2, axes.shape.depth),
        axes.draw,
        max_tokens=3,
        seed=2,
    )


def assert_is_the_targets(setup: Setup) -> None:
    """Check that the setup gives the target's distribution, with drafts that are coupled or drawn."""
    if setup.draw is Draw.COUPLED:
        assert_texts_are_plain(replace(setup, max_tokens=6), seeds=200)
    else:
        assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("name", registered("verify"))
def test_every_rule(name: str) -> None:
    """On a chain, and on a tree if it judges trees; a rule that is not called lossless has a bias to show."""
    is_lossless = name in LOSSLESS
    trees = ["chain", "static:2,1"] if registered("verify")[name].trees else ["chain"]
    for tree in trees:
        setup = setup_of(axes_of(verify=name, tree=tree, approximate=not is_lossless))
        if is_lossless:
            assert_is_the_targets(setup)
        else:
            assert total_variation(answers(setup), target_answers(setup)) > EVIDENT


def test_rules_that_judge_chains_alone() -> None:
    """A rule that forgot that it judges trees would lose them without a word: the test above would walk chains."""
    assert {name for name, rule in registered("verify").items() if not rule.trees} == {"block", "token"}


@pytest.mark.parametrize("name", registered("tree"))
def test_every_tree(name: str) -> None:
    """Under every lossless rule that judges its drafts."""
    judged = 0
    for rule in LOSSLESS:
        try:
            axes = axes_of(tree=SPELLINGS.get(name, name), verify=rule)
        except UsageError:
            continue  # chains only
        assert_is_the_targets(setup_of(axes))
        judged += 1
    assert judged > 1


@pytest.mark.parametrize("name", registered("length"))
def test_every_length_rule(name: str) -> None:
    axes = axes_of(length=name)
    setup = setup_of(axes)
    setup = replace(setup, controller=lambda _: replaced(axes), max_tokens=4)
    assert_is_the_targets(setup)


def replaced(axes: Axes) -> harness.Controller:
    """Return the length rule of these axes for the harness's drafter."""
    return replace(axes, method="d").length_rule(replace(axes.shape, nodes=2, depth=2))


def drafter_of(name: str, axes: Axes, draft: Table, tally: Tally) -> Callable[[Table], Drafter]:
    """Return how a session builds the method's drafter, with `draft` for the model that it may need."""

    def make(_target: Table) -> Drafter:
        context = DrafterContext(
            TableBackend(draft, 3), Sampler(OPEN), axes.policy, lambda: False, 3, axes.options, masks=(3, 4)
        )
        return tally.watch(registered("method")[name].build(context))

    return make


@pytest.mark.parametrize("name", registered("method"))
def test_every_method(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a prompt that repeats itself, so that methods which copy find something; but for plain, drafts occur."""
    monkeypatch.setattr(harness, "PROMPT", PROMPTS[3])
    axes, tally = axes_of(method=name), Tally()
    target = repetitive(3, 3)
    draft = random_table(3, 1000, near=target, distance=1.2)
    setup = Setup(
        axes.verifier, axes.policy, axes.shape.nodes, axes.shape.depth, axes.draw, target=target, max_tokens=4,
        drafter=drafter_of(name, axes, draft, tally),
    )  # fmt: skip
    assert_is_the_targets(setup)
    assert bool(tally.seen) == (name != "plain")
