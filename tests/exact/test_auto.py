"""The automatic controller keeps the target's distribution whatever it decides: by enumeration, through whole
generations.

The costs are such that what it drafts, how far and from whom changes from pass to pass with what earlier passes
accepted; the draft model's chains and copies of the text stand side by side.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from localspec.control.auto import Auto
from localspec.control.candidates import Chains, Copies
from localspec.control.prices import Prices
from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Draw, Step, Times
from localspec.engine.protocols import Controller, DraftBudget, Drafter, History, Plan, Shape, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.methods.copy import Copy
from localspec.settings.request import Sampling
from localspec.trees.chain_with_siblings import ChainWithSiblings
from localspec.trees.static import Chain
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from tests.exact.harness import OPEN, Setup, answers, assert_exact, build, target_answers

RULES: dict[str, Verifier] = {"token": TokenVerifier(), "block": BlockVerifier(), "traversal": TraversalVerifier()}
CHEAP, DEAR = (0.05, 0.1), (0.3, 0.4)  # what a row and a draft token cost, in plain passes
FILTERS = {
    "open": OPEN,
    "top-p": replace(OPEN, top_p=0.9, min_p=0.1),
    "penalties": replace(OPEN, repeat_penalty=1.25, presence_penalty=0.5, penalty_last_n=3),
}


class Timed:
    """Gives the inner controller the times of a made-up machine."""

    def __init__(self, inner: Auto, row: float, token: float, seen: set[tuple[str, int]]) -> None:
        self._inner = inner
        self._row = row
        self._token = token
        self._seen = seen
        self._plan = Plan()

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        self._plan = self._inner.plan(history, budget)
        return self._plan

    def observe(self, step: Step, seconds: float) -> None:
        self._seen.add((self._plan.drafter, len(step.draft)))
        times = Times(draft=self._token * len(step.draft), verify=1.0 + self._row * len(step.draft))
        self._inner.observe(replace(step, times=times), times.total)


def steered(row: float, token: float, seen: set[tuple[str, int]]) -> Callable[[dict[str, Drafter]], Controller]:
    """Return what makes the controller, anew for every replay."""

    def steer(drafters: dict[str, Drafter]) -> Controller:
        copier = Copy(DrafterContext(None, Sampler(Sampling()), Chain(), lambda: False, 3))
        drafters["copy"] = copier
        prices = Prices({1: 1.0, 2: 1.0 + row, 3: 1.0 + 2 * row}, token)
        chains = Chains("d", prices, Acceptance(Draw.IID), Shape(2, 2, 1), Draw.IID)
        return Timed(Auto(prices, [Copies("copy", prices, copier, 2), chains], "d"), row, token, seen)

    return steer


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("costs", [CHEAP, DEAR], ids=["cheap", "dear"])
@pytest.mark.parametrize("filters", FILTERS)
def test_whole_generations_have_the_target_dist(
    rule: str, temperature: float, costs: tuple[float, float], filters: str
) -> None:
    seen: set[tuple[str, int]] = set()
    setup = Setup(
        RULES[rule],
        sampling=replace(FILTERS[filters], temperature=temperature),
        max_tokens=4,
        seed=3,
        steer=steered(*costs, seen),
    )
    assert_exact(answers(setup), target_answers(setup))
    assert ("d", 0) in seen or ("d", 1) in seen or ("d", 2) in seen


def test_coupled_texts_are_plain_decodings_with_siblings_beside_its_chains() -> None:
    """Over 300 noise tables: the shape of a draft, which follows the tokens drafted, decides nothing."""
    shapes: set[tuple[int, int]] = set()

    def steer(drafters: dict[str, Drafter]) -> Controller:
        rows = {n: 1.0 + 0.05 * (n > 1) for n in range(1, 6)}  # of a draft's rows all are free but the first
        shape = Shape(4, 4, 4)
        prices = Prices(rows, 0.1)
        chains = Chains("d", prices, Acceptance(Draw.COUPLED), shape, Draw.COUPLED)
        return Timed(Auto(prices, [chains], "d"), 0.0, 0.1, set())

    auto = Setup(
        CoupledVerifier(),
        policy=ChainWithSiblings(),
        nodes=4,
        depth=4,
        draw=Draw.COUPLED,
        max_tokens=7,
        n_vocab=4,
        steer=steer,
    )
    plain = replace(auto, nodes=0, depth=0, steer=None)
    tables = auto.tables()
    for seed in range(300):
        texts = []
        for setup in (auto, plain):
            engine, context = build(setup, *tables, SeededRandom(seed))
            steps = list(engine.generate(context))
            texts.append([token for step in steps for token in step.tokens])
            shapes |= {(len(step.draft), step.draft.depth) for step in steps}
        assert texts[0] == texts[1]
    assert any(nodes > depth > 1 for nodes, depth in shapes)


def test_it_really_chooses() -> None:
    """Among all texts of this model there are passes of every kind: both drafters, several lengths, and none."""
    seen: set[tuple[str, int]] = set()
    for costs in (CHEAP, DEAR):
        setup = Setup(RULES["token"], max_tokens=6, n_vocab=2, seed=1, steer=steered(*costs, seen))
        assert_exact(answers(setup), target_answers(setup))
    assert {("d", 0), ("d", 1), ("d", 2)} <= seen
    assert any(name == "copy" and n > 0 for name, n in seen)


def test_at_temperature_0_it_is_the_argmax() -> None:
    setup = Setup(RULES["block"], sampling=replace(OPEN, temperature=0.0), max_tokens=8, steer=steered(*CHEAP, set()))
    (answer,) = answers(setup)
    assert target_answers(setup) == {answer: 1.0}
