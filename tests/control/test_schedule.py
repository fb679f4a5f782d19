"""When a pass is plain to measure plain decoding, and which measurements an answer goes on with."""

from dataclasses import replace

import pytest

from localspec.control.lengths import Fixed
from localspec.control.schedule import Baselines, Probing, Spread
from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Draft, Draw, Source, Step, Times
from localspec.engine.protocols import Controller, DraftBudget, History, Plan, Shape
from localspec.tuning import AGAIN, BASELINE, EVERY, MEASURING, NEAR, PATIENCE, RECENT, SPREAD

EARLY = list(range(BASELINE))
LATER = [AGAIN, AGAIN + 1, EVERY, EVERY + 1, 2 * EVERY, 2 * EVERY + 1]
ROOMY = DraftBudget(depth=99, nodes=99)


class Text:
    """What a controller may see of the text."""

    tokens = (1,)
    position = 1


def observe(controller: Controller, plan: Plan) -> None:
    """Let the controller see a pass that carried out its plan."""
    draft = Draft.of([1] * (plan.max_nodes + 1), range(-1, plan.max_nodes))
    verdict = draft.verdict(0, 2)
    controller.observe(Step(draft, verdict, (2,), (Source.PLAIN,), (0,), 1, Times(), plan), 0.1)


def test_measuring_passes_come_early_and_then_every_so_often() -> None:
    """The plain ones come early and two in every EVERY; only one that follows a plain pass is a measurement."""
    plain, probes = measuring(is_known=False)
    assert plain == [*EARLY, *LATER]
    assert sum(index < 4 for index in probes) >= 2  # a short answer has a baseline too


def test_a_baseline_that_is_known_is_only_renewed() -> None:
    plain, _ = measuring(is_known=True)
    assert plain == LATER


def test_a_pass_before_the_first_place_is_no_measurement() -> None:
    """It was slow, and plain because nothing pays: a place has not lost that time, so others may follow."""
    spread, places = Spread(1, is_known=True), 0
    for index in range(120):
        is_plain = spread.is_due() or not index
        places += spread.is_due()
        draft = Draft.of([1], [-1])
        plan = Plan("d", max_nodes=0 if is_plain else 1, max_depth=1, is_probe=is_plain and index > 0)
        tokens = (2,) if is_plain else (2, 2)
        sources = (Source.PLAIN,) * len(tokens)
        step = Step(draft, draft.verdict(0, 2), tokens, sources, (0,), 1, Times(), plan)
        spread.observe(step, 5.0 if not index else 1.0)
    assert places == 6


def passes_of(forced: list[bool], *, is_spread: bool) -> list[str]:
    """Return what each pass was, where tokens are forced in some: a letter of probe, plain, drafted."""
    controller = Probing(Fixed("d", Shape(4, 4, 1), Draw.COUPLED), is_spread=is_spread)
    told = []
    for is_forced in forced:
        plan = controller.plan(Text(), replace(ROOMY, forced=(5, 6) if is_forced else ()))
        told.append("m" if plan.is_probe else "d" if plan.max_nodes else "p")
        observe(controller, plan)
    return told


@pytest.mark.parametrize("is_spread", [False, True])
def test_a_measurement_waits_where_tokens_are_forced(is_spread: bool) -> None:
    """A plain pass there would lose what is certain; the same passes are made where nothing is forced."""
    begin, rest = [True, True, False, True, False, False], [False] * 20
    told = passes_of([*begin, *rest], is_spread=is_spread)
    assert told[:6] == ["d", "d", "p", "d", "p", "m"]
    usual = passes_of(rest, is_spread=is_spread)
    assert usual[:4] == ["p", "m", "m", "d"]
    assert told[6] == "d"


@pytest.mark.parametrize("is_spread", [False, True])
def test_a_measurement_does_not_wait_for_ever(is_spread: bool) -> None:
    told = passes_of([True] * (PATIENCE + 6), is_spread=is_spread)
    assert told == ["d"] * PATIENCE + ["p", "m", "m"] + ["d"] * 3


def measuring(*, is_known: bool) -> tuple[list[int], list[int]]:
    """Return which passes were left plain, and which of them were measurements."""
    inner = Fixed("d", Shape(4, 4, 1), Draw.COUPLED)
    controller = Probing(inner, is_known=is_known)
    plain, probes = [], []
    for index in range(3 * EVERY):
        plan = controller.plan(Text(), ROOMY)
        if plan.max_nodes == 0:
            plain.append(index)
            assert plan.max_depth == 0
            assert plan.why
        else:
            assert plan == inner.plan(Text(), ROOMY)
        if plan.is_probe:
            probes.append(index)
        observe(controller, plan)
    assert probes == [index for index in plain if index - 1 in plain]
    return plain, probes


def test_baselines_are_kept_for_answers_that_follow_soon_at_about_their_length() -> None:
    now = [0.0]
    baselines = Baselines(lambda: now[0], most=32)
    baselines.add(60.0, 200)
    assert baselines.near(200) == []  # one is no baseline
    baselines.add(61.0, 201)
    assert [one.ms for one in baselines.near(200)] == [60.0, 61.0]
    assert baselines.near(201 + NEAR + 1) == baselines.near(200 - NEAR - 2) == []
    for n in range(32):
        baselines.add(float(n), 1000)
    assert baselines.near(200) == []
    assert len(baselines.near(1250)) == 32
    now[0] = RECENT + 1
    assert baselines.near(1000) == []


def test_nothing_is_thought_of_in_a_measuring_pass() -> None:
    """An exploring draft that is due would be forgone, and the next one put off."""
    budgets = []

    class Inner(Fixed):
        def plan(self, history: History, budget: DraftBudget) -> Plan:
            budgets.append(budget)
            return super().plan(history, budget)

    controller = Probing(Inner("d", Shape(2, 2, 1), Draw.IID))
    for _ in range(EVERY + 3):
        observe(controller, controller.plan(Text(), ROOMY))
    assert [n for n, budget in enumerate(budgets) if budget == DraftBudget(0, 0)] == [
        *EARLY,
        AGAIN,
        AGAIN + 1,
        EVERY,
        EVERY + 1,
    ]
    assert {*budgets} == {DraftBudget(0, 0), ROOMY}


def test_the_inner_controller_sees_every_pass() -> None:
    """Also the measuring ones."""
    seen = []

    class Inner(Fixed):
        def observe(self, step: Step, seconds: float) -> None:
            seen.append(step.plan.is_probe)

    controller = Probing(Inner("d", Shape(2, 2, 1), Draw.IID))
    for _ in range(4):
        observe(controller, controller.plan(Text(), ROOMY))
    assert seen == [False, True, True, False]


def test_all_passes_teach_what_is_accepted() -> None:
    """Plans carry what is known, so that policies of trees go by it."""
    known = Acceptance(Draw.IID)
    controller = Probing(Fixed("d", Shape(2, 2, 1), Draw.IID), known)
    for _ in range(BASELINE + 2):
        plan = controller.plan(Text(), ROOMY)
        assert plan.learned is known
        observe(controller, plan)
    assert known.n_passes == 2, "plain passes teach nothing"
    assert Probing(Fixed("d", Shape(2, 2, 1), Draw.IID)).plan(Text(), ROOMY).learned is None


def spread(
    n: int, draft_s: float, tokens: int, *, settles: int = 1, is_known: bool = False, reading: float = 0.0
) -> tuple[list[int], float]:
    """Return which of `n` passes were plain under a method that was named, and the share of the time they lost.

    A plain pass takes 0.1 s; one with a draft takes `draft_s` and brings `tokens`, the first `reading` seconds more.
    """
    controller = Probing(Fixed("d", Shape(4, 4, 1), Draw.COUPLED), settles=settles, is_known=is_known, is_spread=True)
    plain, seconds, lost = [], 0.0, 0.0
    for index in range(n):
        plan = controller.plan(Text(), ROOMY)
        k = plan.max_nodes
        draft = Draft.of([1] * (k + 1), range(-1, k))
        out = (2,) * (tokens if k else 1)
        took = draft_s + reading if k else 0.1
        reading = 0.0 if k else reading
        controller.observe(
            Step(draft, draft.verdict(0, 2), out, (Source.PLAIN,) * len(out), (0,), 1, Times(), plan), took
        )
        seconds += took
        if not k:
            plain.append(index)
            lost += 0.1 - draft_s / tokens
    return plain, lost / seconds


def places(plain: list[int]) -> int:
    return sum(index - 1 not in plain for index in plain)


@pytest.mark.parametrize("reading", [0.0, 3.0])
def test_a_named_method_that_is_slower_has_plain_passes_all_over_its_answer(reading: float) -> None:
    """Of seventy tokens enough for a factor: eight measured ones in four places; reading the prompt is no loss."""
    plain, lost = spread(36, draft_s=0.26, tokens=2, reading=reading)
    assert places(plain) >= 4
    assert len(plain) - places(plain) >= 8
    assert max(plain) > 30
    assert lost < 0.0


@pytest.mark.parametrize("gain", [1.1, 1.5, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("settles", [1, 2])
@pytest.mark.parametrize("n", [50, 200, 1000])
def test_plain_passes_of_a_named_method_lose_a_small_share(gain: float, settles: int, n: int) -> None:
    """Beside the first place, which is there without any."""
    plain, lost = spread(n, draft_s=0.4 / gain, tokens=4, settles=settles)
    length = settles + BASELINE - 1
    first = length * 0.1 * (1 - 1 / gain)
    seconds = len(plain) * 0.1 + (n - len(plain)) * 0.4 / gain
    assert lost <= max(MEASURING * 1.25, 1.01 * first / seconds)
    assert plain[:length] == list(range(length))


def test_a_fast_method_has_enough_plain_passes_in_a_long_answer() -> None:
    plain, _ = spread(300, draft_s=0.2, tokens=4)
    assert places(plain) >= 4
    assert len(plain) - places(plain) >= 8


def test_a_named_method_whose_plain_speed_is_known_begins_with_drafts() -> None:
    plain, _ = spread(30, draft_s=0.2, tokens=4, is_known=True)
    assert plain[0] == SPREAD


@pytest.mark.parametrize("budget", [DraftBudget(0, 0), DraftBudget(0, 5)])
def test_the_end_of_a_text_measures_plain_decoding_too(budget: DraftBudget) -> None:
    """Where there is no room for a draft, the pass after a plain one is a measurement."""
    controller = Probing(Fixed("d", Shape(2, 2, 1), Draw.IID), is_known=True)
    found = []
    for _ in range(3):
        plan = controller.plan(Text(), budget)
        found.append(plan.is_probe)
        observe(controller, plan)
    assert found == [False, True, True]
