"""What --approximate costs: the bias of the lossy rules, measured without sampling.

The total variation between the distribution of four tokens under a rule and the target's is printed and pinned; it is
the probability by which some event can tell the two apart. Every figure is that of the worst of five pairs of toy
models. Typical acceptance of argmax drafts hands most of the text over to the draft model: with three tokens hardly any
is implausible.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import TreePolicy, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.errors import UsageError
from localspec.settings.request import Speculation
from localspec.speculation.resolve import resolve_axes
from localspec.trees.static import Chain, Static
from localspec.verify.token import TokenVerifier
from localspec.verify.typical import TypicalVerifier
from tests.exact.harness import OPEN, Setup, answers, assert_exact, passes, target_answers, total_variation

IID, FIXED = Draw.IID, Draw.FIXED
SEEDS = range(5)


@dataclass(frozen=True)
class Case:
    """A lossy rule where people would use it, with its bias at temperature 0.3, 1 and 2."""

    name: str
    verifier: Verifier
    policy: TreePolicy
    nodes: int
    draw: Draw
    bias: tuple[float, float, float]


CASES = [
    Case("typical, argmax chain", TypicalVerifier(), Chain(), 2, FIXED, (0.9459, 0.8638, 0.8621)),
    Case("typical, drawn chain", TypicalVerifier(), Chain(), 2, IID, (0.9222, 0.4292, 0.2651)),
    Case("typical, tree", TypicalVerifier(), Static((2, 1)), 4, FIXED, (0.9409, 0.8160, 0.8103)),
]


def setup_of(case: Case, temperature: float, seed: int = 0) -> Setup:
    sampling = replace(OPEN, temperature=temperature)
    return Setup(case.verifier, case.policy, case.nodes, 2, case.draw, sampling, seed=seed, max_tokens=4)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_bias(case: Case) -> None:
    """The measured total variation is the stored one, and no rule that is called lossy is exact."""
    measured = []
    for temperature in (0.3, 1.0, 2.0):
        setups = [setup_of(case, temperature, seed) for seed in SEEDS]
        measured.append(max(total_variation(answers(setup), target_answers(setup)) for setup in setups))
    print(f"{case.name}: total variation {', '.join(f'{bias:.4f}' for bias in measured)} at T = 0.3, 1, 2")
    assert min(measured) > 1e-3
    assert measured == pytest.approx(case.bias, abs=5e-4)


@pytest.mark.parametrize(
    ("verifier", "n_tokens"),
    [
        pytest.param(TypicalVerifier(epsilon=0.25, delta=1.0), 1, id="as likely as is typical"),
        pytest.param(TypicalVerifier(epsilon=0.125, delta=1.0), 3, id="more likely than that"),
    ],
)
def test_a_token_at_the_threshold(verifier: Verifier, n_tokens: int) -> None:
    """Of four tokens each has a quarter, in the target and in the draft: two are drafted, and one follows."""

    def evenly(_text: tuple[int, ...]) -> np.ndarray:
        return np.zeros(4, np.float32)

    setup = Setup(verifier, Chain(), 2, 2, IID, OPEN, n_vocab=4, target=evenly, draft=evenly, max_tokens=9)
    assert {len(step.tokens) for _, step in passes(setup)} == {n_tokens}


def test_typical_acceptance_reads_no_law_behind_a_leaf_but_the_last() -> None:
    """Each is a row of the whole vocabulary. A pass without a draft has one law, read where its token is drawn."""
    p = Distribution(np.array([5, 6], np.int32), np.array([0.6, 0.4]))
    asked: list[int] = []

    class Laws:
        def __getitem__(self, node: int) -> Distribution:
            asked.append(node)
            return p

    verifier, rng = TypicalVerifier(), SeededRandom(1)
    assert verifier.verify(Draft.of([9, 5, 6], [-1, 0, 0]), Laws(), rng, 0).path == (1,)
    assert asked == [0, 1], "the root's, and that of the place where the token is drawn"
    asked.clear()
    verifier.verify(Draft.root(9), Laws(), rng, 0)
    assert asked == [0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_temperature_zero_has_no_bias(case: Case) -> None:
    """Nothing but the argmax is plausible there, and a draft's point mass is met or not."""
    setup = setup_of(case, 0.0)
    assert_exact(answers(setup), target_answers(setup))


def test_the_exact_rule_in_its_place() -> None:
    """The setups of this file are not at fault: the token rule keeps the distribution in them."""
    for temperature in (0.3, 1.0, 2.0):
        setup = replace(setup_of(CASES[0], temperature), verifier=TokenVerifier())
        assert_exact(answers(setup), target_answers(setup))


def test_it_must_be_asked_for_twice() -> None:
    """Without --approximate a lossy rule is refused, and the hint says what it would take."""
    verify = "typical"
    with pytest.raises(UsageError, match="changes the distribution") as caught:
        resolve_axes(Speculation(verify=verify), has_draft=True, is_seeded=False)
    assert caught.value.hint == f"--approximate --verify {verify}"
    assert resolve_axes(Speculation(verify=verify, approximate=True), has_draft=True, is_seeded=False).verify == verify


@pytest.mark.parametrize("verify", ["typical:epsilon=0", "typical:delta=0"])
def test_no_parameter_biases_temperature_zero(verify: str) -> None:
    """The most tolerant settings that there are do not accept what the target cannot say."""
    rule = resolve_axes(Speculation(verify=verify, approximate=True), has_draft=True, is_seeded=False).verifier
    for case in CASES:
        if type(case.verifier) is type(rule):
            setup = replace(setup_of(case, 0.0), verifier=rule)
            assert_exact(answers(setup), target_answers(setup))
