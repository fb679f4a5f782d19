"""The loss account keeps its bound whatever drafting costs, and does not stand in the way where drafting pays."""

from __future__ import annotations

import random

import numpy as np
import pytest

from localspec.control.account import EPS, HEAD_START, RESERVE, LossAccount
from localspec.control.cost import Costs, DraftCosts
from localspec.control.fixed import Fixed
from localspec.control.guard import Guarded
from localspec.control.ledger import PAUSE, Ledger
from localspec.control.probe import Probing
from localspec.control.reading import Reading
from localspec.control.row_costs import FIRST, RowCosts
from localspec.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.protocols import Plan, Room, Shape
from tests.unit.simulated import step_of

PLAIN = 0.010  # seconds of a plain pass
ROOM = Room(depth=100, nodes=100)


class Text:
    """A history that only grows."""

    tokens: tuple[int, ...] = (1,)
    position = 1


class Behind:
    """A draft model that has so many tokens to read, and room for so many more."""

    def __init__(self, tokens: int, room: int = 100) -> None:
        self.tokens, self._room = tokens, room

    def behind(self, history: object) -> int:
        return self.tokens

    def room(self, history: object) -> int:
        return self._room


def guarded(pass_cost: float, k: int = 4, *, read: float = 0.0, behind: int = 1, room: int = 100) -> Guarded:
    """Return a fixed rule under guard, on a machine where drafting and verifying `k` tokens takes `pass_cost`."""
    slope = (pass_cost - PLAIN) / k / 2  # half of it is the draft's
    costs = Costs(RowCosts({1: PLAIN, 1 + k: PLAIN + k * slope}), DraftCosts(slope), read)
    return Guarded(Fixed("draft-model", Shape(k, k, 1), Draw.IID), costs, Behind(behind, room))


def told(
    controller: Guarded | Probing,
    n: int,
    accepted: int,
    draft: float,
    verify: float,
    planning: float = 0.0,
    host: float = 0.0,
    sample: float = 0.0,
) -> None:
    """Tell of a pass that drafted a chain of `n` tokens, in so many seconds."""
    tree = Draft.of([1] * (n + 1), range(-1, n))
    run = (2,) * (accepted + 1)
    sources = (Source.ACCEPTED,) * accepted + (Source.PLAIN,)
    verdict = Verdict(tuple(range(1, accepted + 1)), 2, Source.PLAIN)
    step = Step(tree, verdict, run, sources, (0,), 1, Times(draft, verify, sample, planning=planning), Plan())
    controller.observe(step, draft + verify + sample + planning + host)


def simulate(alpha: float, pass_cost: float, tokens: int, *, noise: float = 0.0, k: int = 4) -> tuple[float, int]:
    """Return the seconds of `tokens` tokens and the number of drafting passes, times being those of a machine model."""
    rng = random.Random(7)
    controller = Probing(guarded(pass_cost, k))
    elapsed, done, drafting = 0.0, 0, 0
    while done < tokens:
        n = controller.plan(Text(), ROOM).max_nodes
        accepted = 0
        while accepted < n and rng.random() < alpha:
            accepted += 1
        each = (pass_cost - PLAIN) / k / 2 * n
        wobble = 1 + noise * rng.uniform(-1, 1)
        told(controller, n, accepted, each * wobble, (PLAIN + each) * wobble)
        elapsed, done, drafting = elapsed + (PLAIN + 2 * each) * wobble, done + accepted + 1, drafting + (n > 0)
    return elapsed, drafting


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("pass_cost", [0.011, 0.02, 0.05, 0.2])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.3])
def test_bound(alpha: float, pass_cost: float, noise: float) -> None:
    """Elapsed <= (plain + L0) / (1 - eps); noise may shift the estimate of a plain pass by an eighth of itself."""
    for tokens in (50, 500, 5000):
        elapsed, _ = simulate(alpha, pass_cost, tokens, noise=noise)
        overshoot = noise * pass_cost  # one pass that took longer than expected
        assert elapsed <= (tokens * PLAIN * (1 + noise / 8) + HEAD_START * PLAIN + overshoot) / (1 - EPS)


def test_what_is_read_for_long_is_waited_for() -> None:
    """A prompt that takes the draft a hundred plain passes to read: nothing is drafted until that can be lost."""
    controller = guarded(0.014, read=PLAIN / 10, behind=1000)
    charged = 1000 * PLAIN / 10 - 0.1 * 1000 * (PLAIN + 0.002) / 5  # a tenth of the target's own reading is free
    elapsed = 0.0
    while controller.plan(Text(), ROOM).max_nodes == 0:
        told(controller, 0, 0, 0.0, PLAIN)
        elapsed += PLAIN
    assert elapsed >= (charged - HEAD_START * PLAIN) / EPS


def test_a_draft_that_reads_in_a_tenth_of_the_targets_time_reads_at_once() -> None:
    controller = guarded(0.014, read=0.1 * (PLAIN + 0.002) / 5, behind=1000)
    assert controller.plan(Text(), ROOM).max_nodes == 4


def test_a_pass_beyond_all_expectation_is_told() -> None:
    """The account knows by how much its bound was exceeded; as long as nothing is drafted there is none."""
    controller = guarded(0.014)
    told(controller, 0, 0, 0.0, PLAIN)
    told(controller, 0, 0, 0.0, PLAIN)
    told(controller, 4, 0, 0.002, 0.012)
    assert controller.ledger.overdrawn_ms is not None
    assert controller.ledger.overdrawn_ms < 0.0
    told(controller, 4, 0, 1.002, 0.012)
    assert controller.ledger.overdrawn_ms == pytest.approx(1000, rel=0.05)


def lost(controller: Guarded) -> float:
    """Return the seconds lost so far, at the price of a plain pass."""
    return controller.ledger.account.loss * controller._costs.plain


def test_passes_that_get_cheaper_overdraw_nothing() -> None:
    """A draft was lost beside a busy program, which ends: a plain pass takes half the time then."""
    account = LossAccount()
    account.charge((1.0 + account.room) * 2.0, 1, 2.0)
    assert account.overdrawn < 0.0
    account.pass_time(1.0, 0.0, 1.0)
    assert account.overdrawn < 0.0
    assert account.loss == pytest.approx(HEAD_START - RESERVE, abs=EPS)


def test_an_interruption_is_nobodys_loss() -> None:
    """A second that a pass of the target took too long would have come to plain decoding as well."""
    controller = guarded(0.014)
    told(controller, 4, 4, 0.002, 1.012)
    assert lost(controller) < 2 * PLAIN
    assert controller.plan(Text(), ROOM).max_nodes > 0


def test_a_stopped_reader_is_nobodys_loss() -> None:
    """A minute in which nobody took the events, as of a terminal that was stopped with Ctrl-Z."""
    controller = guarded(0.014)
    told(controller, 0, 0, 0.0, PLAIN)
    told(controller, 0, 0, 0.0, PLAIN)
    told(controller, 4, 0, 0.002, 0.012, host=0.001)
    before = lost(controller)
    told(controller, 4, 4, 0.002, 0.012, host=60.0)
    assert lost(controller) < before + PAUSE
    assert controller.ledger.account.elapsed * PLAIN < 1.0, "nor does it earn anything"
    assert controller.plan(Text(), ROOM).max_nodes > 0


def test_rejected_drafts_that_take_long_to_judge_are_a_loss() -> None:
    """Sampling is part of drafting, however much more of it there is than a plain pass has."""
    controller = guarded(0.014)
    told(controller, 0, 0, 0.0, PLAIN, host=0.001)
    told(controller, 0, 0, 0.0, PLAIN, host=0.001)
    for _ in range(3):
        told(controller, 4, 0, 0.002, 0.012, sample=0.08)
    assert lost(controller) == pytest.approx(3 * (0.094 - PLAIN), rel=0.05)


def test_rows_that_are_dearer_in_a_long_text_are_a_loss_from_the_first() -> None:
    """What they cost in a short one is a guess, and tells nothing of interruptions."""
    controller = guarded(0.014)
    controller._costs.at(5000)
    for _ in range(2):
        told(controller, 4, 0, 0.002, 0.100)
    assert lost(controller) == pytest.approx(2 * (0.102 - PLAIN), rel=0.05)


@pytest.mark.parametrize(("seconds", "each"), [(0.11, 0.00105), (100.0, 0.002)])
def test_one_slow_reading_does_not_set_the_price_of_all(seconds: float, each: float) -> None:
    costs = Costs(RowCosts({1: PLAIN}), DraftCosts(0.001), 0.001)
    reading = Reading(costs, Behind(100))
    reading.look(Text())
    reading.observe(seconds)
    assert costs.read == pytest.approx(each)


def test_a_width_that_was_never_made_is_charged_whole() -> None:
    """What lies beyond the widths that are known may be a step of the staircase, not an interruption."""
    controller = guarded(0.014)
    told(controller, 8, 0, 0.004, 1.0)
    assert lost(controller) == pytest.approx(1.004 - PLAIN)
    assert controller.ledger.overdrawn_ms is not None
    assert controller.ledger.overdrawn_ms > 900


def test_deciding_on_a_plain_pass_is_lost_and_no_part_of_its_price() -> None:
    controller = guarded(0.014)
    for _ in range(20):
        told(controller, 0, 0, 0.0, PLAIN, planning=PLAIN / 10)
    assert lost(controller) == pytest.approx(20 * PLAIN / 10)
    assert controller.plan(Text(), ROOM).max_nodes == 0


@pytest.mark.parametrize("first", [0.0, 5 * PLAIN])
def test_a_first_pass_that_was_interrupted_sets_no_price(first: float) -> None:
    """What the host takes is not known before: of three the least is believed, and three times that is the most."""
    costs = guarded(0.014)._costs
    for seconds in (first, 0.001, 0.001, 0.003):
        costs.host.observe(seconds or 0.001, is_plain=True)
    assert 0.001 <= costs.host.plain <= 0.0015


@pytest.mark.parametrize(("room", "nodes"), [(0, 0), (2, 2), (100, 4)])
def test_a_draft_ends_where_the_draft_models_context_does(room: int, nodes: int) -> None:
    plan = guarded(0.011, room=room).plan(Text(), ROOM)
    assert plan.max_nodes == nodes
    assert plan.max_nodes > 0 or plan.why == "parked: the draft model has no room left"


def test_drafts_where_it_pays() -> None:
    """At 80 % acceptance and a pass of 1.4 plain ones nearly every pass drafts, and the speedup is kept."""
    elapsed, drafting = simulate(0.8, 1.4 * PLAIN, 3000, noise=0.2)
    assert drafting > 800
    assert 3000 * PLAIN / elapsed > 2.0


def test_parks_where_it_does_not() -> None:
    """A hostile drafter gets a few passes, then the odd retry."""
    elapsed, _ = simulate(0.0, 3 * PLAIN, 3000)
    assert elapsed <= 3000 * PLAIN * (1 + 1.1 * EPS)
    controller = guarded(3 * PLAIN)
    told(controller, 4, 0, PLAIN, 2 * PLAIN)
    plan = controller.plan(Text(), ROOM)
    assert plan.max_nodes == 0
    assert plan.why.startswith("parked")


def test_a_draft_is_cut_to_what_can_be_lost() -> None:
    """Of sixteen nodes as many as one plain pass pays for, all of them once passes have gained."""
    controller = guarded(5 * PLAIN, 16)
    first = controller.plan(Text(), ROOM).max_nodes
    assert 0 < first < 16
    for _ in range(5):
        told(controller, first, first, first * PLAIN / 8, PLAIN + first * PLAIN / 8)
    assert controller.plan(Text(), ROOM).max_nodes == 16


def test_nothing_is_bet_before_there_is_a_price() -> None:
    controller = Guarded(Fixed("draft-model", Shape(4, 4, 1), Draw.IID), Costs(RowCosts({4: 1.2 * PLAIN})))
    for _ in range(1 + FIRST):  # the first tells nothing: who knows what was before it
        assert controller.plan(Text(), ROOM).max_nodes == 0
        told(controller, 0, 0, 0.0, PLAIN)
    assert controller.plan(Text(), ROOM).max_nodes > 0


@pytest.mark.parametrize("scatter", [0.05, 0.1])
def test_passes_that_scatter_cost_no_more_than_is_told(scatter: float) -> None:
    """What is spared as chance or interruption stays under a hundredth of the time, however much passes scatter."""
    rng = np.random.default_rng(1)
    costs = Costs(RowCosts({1: 1.0, 2: 1.0, 3: 1.0}))
    ledger = Ledger(costs)
    elapsed = 0.0
    for position in range(2000):
        seconds = float(np.exp(scatter * rng.normal() - scatter * scatter / 2))
        step = step_of(Plan("draft-model", 1, 1), position, [0.5], 0, Times(verify=seconds))
        ledger.observe(step, seconds)
        elapsed += seconds
    assert ledger.account.elapsed >= 0.99 * elapsed
