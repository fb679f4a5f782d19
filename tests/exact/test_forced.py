"""Forced tokens before the drafts: every rule, shape and drafter keeps the target's masked distribution, enumerated."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from localspec.control.auto import Auto
from localspec.control.candidates import CandidateSource, Chains, Copies
from localspec.control.prices import Prices
from localspec.engine import loop
from localspec.engine.acceptance import Acceptance
from localspec.engine.constraint import Ahead, Constraint
from localspec.engine.draft import Draft, Draw, Step, Times
from localspec.engine.protocols import Controller, DraftBudget, Drafter, History, Plan, Shape
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler, TargetDistributions
from localspec.methods import DrafterContext
from localspec.methods.copy import Copy
from localspec.session.controllers import AfterRun
from localspec.settings.request import Sampling
from localspec.speculation.reproducible import Narrow
from localspec.trees.static import Chain
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from tests.exact.harness import (
    OPEN,
    PROMPT,
    Setup,
    answers,
    assert_exact,
    assert_texts_are_plain,
    build,
    target_answers,
    total_variation,
)
from tests.exact.test_constraint import DRAFTERS, END, FILTERS, FORMS, IID, Form, Slow, Steps, V, matched

FIXED = Draw.FIXED


def runs(answer: Sequence[int]) -> tuple[int, ...]:
    """Return what may follow `answer`: 3 and 1 are forced after 2, the end is forced after any other 1."""
    before = tuple(answer[-2:])
    match before:
        case ():
            return (0, 2)
        case (*_, 2):
            return (3,)
        case (2, 3):
            return (1,)
        case (3, 1):
            return (0, END)
        case (*_, 1):
            return (END,)
        case (*_, 0):
            return (1, 2, 3)
        case (*_, 3):
            return (0, 2)
    return ()


class Runs(Slow):
    language = staticmethod(runs)


class RunSteps(Steps):
    language = staticmethod(runs)


def forced(form: Form, constraint: Constraint | None = None, **settings: object) -> Setup:
    setup = form.setup(**settings)
    return replace(setup, constraint=constraint or matched(RunSteps()), controller=AfterRun)


def truth(setup: Setup) -> dict[tuple[int, ...], float]:
    return target_answers(replace(setup, constraint=Runs()))


@pytest.mark.thinned(6)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("filters", ["open", "penalties", "typical-p", "xtc"])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_every_rule_and_shape(form: Form, filters: str, temperature: float) -> None:
    sampling = replace(FILTERS[filters], temperature=temperature, top_k=2)
    setup = forced(form, sampling=sampling, draft_temperature=1.0, max_tokens=5, seed=3)
    assert_exact(answers(setup), truth(setup))


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_drafter(name: str, temperature: float) -> None:
    form, make = DRAFTERS[name]
    constraint = matched(RunSteps())
    sampling = replace(OPEN, temperature=temperature)
    drafting = Sampler(sampling, temperature=1.0, constraint=constraint, drafts=True)
    setup = replace(
        forced(form, constraint, sampling=sampling, max_tokens=5, seed=4),
        drafter=lambda target: make(target, drafting),
        controller=lambda inner: AfterRun(inner, can_follow="head" not in name),
    )
    assert_exact(answers(setup), truth(setup))


@pytest.mark.parametrize("form", [form for form in FORMS if form.policy.draws >= {Draw.COUPLED}], ids=str)
def test_coupled_noise_keeps_the_text(form: Form) -> None:
    """One text a seed: with forced tokens and drafts, and plainly."""
    setup = replace(forced(form, max_tokens=20), verifier=CoupledVerifier(), draw=Draw.COUPLED)
    assert_texts_are_plain(setup, seeds=20)


class Clocked:
    """Gives the planner the times of a machine on which a row costs `row` plain passes; keeps what was forced."""

    def __init__(self, inner: Controller, row: float, seen: set[tuple[int, int]]) -> None:
        self._inner = inner
        self._row = row
        self._seen = seen

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        return self._inner.plan(history, budget)

    def observe(self, step: Step, seconds: float) -> None:
        self._seen.add((step.n_forced, step.n_drafted))
        times = Times(draft=0.05 * step.n_drafted, verify=1.0 + self._row * len(step.draft))
        self._inner.observe(replace(step, times=times), times.total)


def automatic(row: float, seen: set[tuple[int, int]]) -> Callable[[dict[str, Drafter]], Controller]:
    def steer(drafters: dict[str, Drafter]) -> Controller:
        constraint = matched(RunSteps())
        copier = Copy(DrafterContext(None, Sampler(Sampling(), constraint=constraint), Chain(), lambda _: False, V))
        drafters["copy"] = copier
        prices = Prices({1: 1.0, 2: 1.0 + row, 8: 1.0 + 7 * row}, 0.05)
        sources: list[CandidateSource] = [
            Copies("copy", prices, copier, 2),
            Chains("d", prices, Acceptance(IID), Shape(2, 2, 1), IID),
        ]
        return Clocked(Auto(prices, sources, "d"), row, seen)

    return steer


@pytest.mark.parametrize("row", [0.05, 0.3])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_the_planner(row: float, temperature: float) -> None:
    seen: set[tuple[int, int]] = set()
    sampling = replace(OPEN, temperature=temperature)
    setup = Form(BlockVerifier(), Chain(), 2, 2, IID).setup(max_tokens=6, sampling=sampling)
    setup = replace(setup, constraint=matched(RunSteps()), steer=automatic(row, seen))
    assert_exact(answers(setup), truth(setup))
    assert any(n == 2 for n, _ in seen)
    assert any(n and drafted for n, drafted in seen) or row > 0.1


def test_rows_that_cost_more_than_a_pass_are_not_taken() -> None:
    seen: set[tuple[int, int]] = set()
    setup = Form(BlockVerifier(), Chain(), 2, 2, IID).setup(max_tokens=6)
    setup = replace(setup, constraint=matched(RunSteps()), steer=automatic(1.5, seen))
    assert_exact(answers(setup), truth(setup))
    assert {one for one, _ in seen} == {0}


def steps(setup: Setup, seed: int = 0) -> list[Step]:
    engine, context = build(setup, *setup.tables(), SeededRandom(seed))
    return list(engine.generate(context))


def test_a_run_is_one_pass_and_no_draft() -> None:
    setup = forced(Form(BlockVerifier(), Chain(), 0, 0, IID), max_tokens=8)
    found = [step for seed in range(20) for step in steps(setup, seed) if step.draft.forced]
    assert {step.tokens[: step.n_forced] for step in found} == {(3, 1), (END,)}
    for step in found:
        assert (step.n_drafted, step.n_accepted, step.depth, step.drafter) == (0, 0, 0, "forced")
        assert [source.value for source in step.sources[: step.n_forced]] == ["forced"] * step.n_forced


def test_a_draft_follows_the_run() -> None:
    setup = forced(Form(BlockVerifier(), Chain(), 2, 2, IID), max_tokens=9)
    found = [step for seed in range(20) for step in steps(setup, seed) if step.draft.forced == 2]
    assert any(step.n_accepted for step in found)
    for step in found:
        assert step.draft.path(2) == [3, 1]
        assert step.n_right == len(step.verdict.path) - 2


def test_a_run_ends_where_the_answer_does() -> None:
    for n in range(2, 7):
        for seed in range(10):
            assert sum(len(step.tokens) for step in steps(forced(WRONG, max_tokens=n), seed)) <= n


def test_reproducible_widths_hold_for_run_and_draft_together() -> None:
    for widest, expected in ((2, (1, 0)), (3, (2, 0)), (4, (2, 1)), (9, (2, 2))):
        plan = Narrow(AfterRun(TwoTokens()), widest).plan(Ahead([0]), DraftBudget(9, 9, (3, 1)))
        assert (len(plan.forced), plan.max_nodes) == expected


def test_a_head_drafts_nothing_behind_a_run() -> None:
    inner = Ahead([0])
    for run, expected in (((3,), ((), 2)), ((3, 1), ((3, 1), 0))):
        plan = AfterRun(TwoTokens(), can_follow=False).plan(inner, DraftBudget(9, 9, run))
        assert (plan.forced, plan.max_nodes) == expected


class TwoTokens:
    def plan(self, history: History, budget: DraftBudget) -> Plan:
        return Plan("d", 2, 2)

    def observe(self, step: Step, seconds: float) -> None:
        pass


def test_a_draft_behind_a_run_keeps_its_tree() -> None:
    tree = Draft.of([1, 5, 6, 7], [-1, 0, 0, 1], draw=FIXED, shares=[1.0, 0.5, 0.4, 0.3])
    whole = tree.after(9, (3, 1), outputs=False)
    assert whole.outputs.tolist() == [False, False, True, True, True, True]
    assert tree.after(9, (3, 1), outputs=True).outputs.all()
    assert (whole.tokens.tolist(), whole.parents.tolist()) == ([9, 3, 1, 5, 6, 7], [-1, 0, 1, 2, 2, 3])
    assert whole.shares == (1.0, 1.0, 1.0, 0.5, 0.4, 0.3)
    assert (whole.children[2], whole.depth, whole.forced) == ((3, 4), 4, 2)


# Wrong forms, each caught by the comparisons above.

WRONG = Form(BlockVerifier(), Chain(), 2, 2, IID)


def bias(constraint: Constraint | None = None) -> float:
    wrong = [forced(WRONG, constraint, max_tokens=5, seed=seed) for seed in range(3)]
    return max(total_variation(answers(one), truth(one)) for one in wrong)


def test_a_run_that_leaves_the_end_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the end may follow beside one token, that token is not forced."""

    def endless(constraint: Constraint, text: Sequence[int], most: int) -> tuple[int, ...]:
        run: list[int] = []
        while len(run) < most:
            ids = [token for token in constraint.allowed([*text, *run]).tolist() if token != END]
            if len(ids) != 1:
                break
            run += ids
        return tuple(run)

    assert bias() < 1e-9
    monkeypatch.setattr(loop, "forced_run", endless)
    with pytest.raises(AssertionError):  # the step counts a rejected token as forced, or the distribution is off
        assert bias() < 1e-9


def test_a_matcher_that_is_not_rolled_back_is_caught() -> None:
    class Forward(RunSteps):
        def consume(self, token: int) -> None:
            self.at.append(token)

        def rollback(self, n: int) -> None:
            pass

    with pytest.raises((AssertionError, IndexError)):  # its replays differ, too, so that branches are missing
        assert bias(matched(Forward())) < 1e-9


def test_the_mask_of_the_parent_is_caught() -> None:
    class Late(Runs):
        def allowed(self, text: Sequence[int]) -> np.ndarray:
            return super().allowed(text[: max(len(PROMPT), len(text) - 1)])

    assert bias(Late()) > 0.01


def test_no_rule_reads_a_row_before_a_forced_token() -> None:
    """The target does not make its logits; where log-probabilities are told, it does."""

    class Rows:
        def logits(self, node: int) -> np.ndarray:
            assert node >= 2, "not evaluated"
            return np.array([0.0, 1.0, 2.0, 0.0], np.float32)

    draft = Draft.of([1, 2], [-1, 0], draw=FIXED).after(0, (3, 1), outputs=False)
    laws = TargetDistributions(Sampler(Sampling(temperature=1.0)), Rows(), draft, (0,))
    assert [laws[node].ids.tolist() for node in (0, 1)] == [[3], [1]]
    assert [laws[node].ids.size for node in (2, 3)] == [4, 4]
