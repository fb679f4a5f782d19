"""First measurements and surveys on machines whose clock is ours: within the budget, in rounds, and cancelled."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

import pytest

from localspec.control.calibrate import (
    NARROW,
    ORDER,
    READ,
    TAKES,
    calibrate,
    calibrate_more,
    is_worth_more,
)
from localspec.control.cost import Costs
from localspec.control.row_costs import SIZES, RowCosts
from localspec.control.staircase import stairs
from localspec.control.survey import ROUNDS, Survey, Times, costs, time_model
from localspec.protocols import Cancelled, Traits


class Machine:
    """A model whose passes take `cost` seconds by rows, `deeper` times as long for each token in the cache."""

    def __init__(self, cost: Callable[[int], float], *, deeper: float = 0.0, **traits: Any) -> None:
        settled = {"can_rollback": True, "max_leaves": 8, "max_rows": 64, "n_ctx": 1024, "n_vocab": 100}
        self.traits = Traits(**{**settled, **traits})
        self.cost, self.deeper = cost, deeper
        self.now = 0.0
        self.length = self.n_open = self.evaluated = 0
        self.widths: list[int] = []

    def time_rows(self, rows: int) -> float:
        assert self.length + rows <= self.traits.n_ctx
        return self._pass(rows)

    def prefill(self, tokens: Any, cancel: Callable[[], bool]) -> Any:
        self.length = len(tokens)
        self.now += self.cost(len(tokens))

    def truncate(self, length: int) -> None:
        self.length, self.n_open = length, 0

    def clock(self) -> float:
        return self.now

    def _pass(self, rows: int) -> float:
        self.widths.append(rows)
        seconds = self.cost(rows) * (1.0 + self.deeper * self.length)
        self.now += seconds
        return seconds


def line(rows: int) -> float:
    return 0.01 + 0.001 * rows


def never() -> bool:
    return False


def finished(timing: Generator[float, None, Times]) -> Times:
    """Return what a timing comes to; its progress never falls."""
    shares = []
    while True:
        try:
            shares.append(next(timing))
        except StopIteration as done:
            assert all(0.0 <= share <= 1.0 for share in shares)
            times: Times = done.value
            return times


@pytest.mark.parametrize(("pace", "least"), [(0.01, len(SIZES)), (1.0, 5), (100.0, 2)])
def test_a_first_measurement_keeps_its_budget(pace: float, least: int) -> None:
    """Narrow widths first, as many as fit; the last pass may end late, and two are always taken."""
    machine = Machine(lambda rows: pace * line(rows))
    found = calibrate(machine, None, machine.clock, budget=0.5).target.measured()
    assert set(found) == set(ORDER[: len(found)])
    assert len(found) >= least
    assert len(found) == len(SIZES) or machine.now >= 0.5
    assert machine.now <= max(0.5, pace * 2 * line(1)) + pace * (line(1) + 2 * line(max(found))) + 1e-9
    for rows, seconds in found.items():
        assert seconds == pytest.approx(pace * line(rows))


def test_the_first_take_of_a_width_does_not_count() -> None:
    seen: list[int] = []

    def warming_up(rows: int) -> float:
        seen.append(rows)
        return 1e-6 if seen.count(rows) == 1 else 1e-3  # as if laying out the graph had been free

    machine = Machine(warming_up)
    found = calibrate(machine, None, machine.clock).target
    assert found.of(1) == 1e-3
    assert machine.widths.count(8) == TAKES


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_may_stand_for_one_are_timed_in_turns_with_it(seed: int) -> None:
    """Passes scatter by as much as the two differ: a look at each tells them apart only now and then."""
    noise = random.Random(seed)
    machine = Machine(lambda rows: 0.01 * (0.92 if rows == 4 else 1.0 + 0.3 * (rows - 1)) * noise.uniform(1.0, 1.06))
    assert calibrate(machine, None, machine.clock).lone == 4
    assert machine.now < 1.2, "half a second for the widths, half a second for the two"


def test_one_row_without_a_rival_is_timed_no_further() -> None:
    machine = Machine(lambda rows: 0.1 * rows)
    assert calibrate(machine, None, machine.clock).lone == 1
    assert machine.widths.count(1) == 1 + TAKES


def test_what_is_missing_is_measured_at_later_loads() -> None:
    """Within the budget each time, until all narrow widths are known; what is known stays."""
    machine = Machine(lambda rows: 8 * line(rows))
    costs = calibrate(machine, None, machine.clock)
    before = costs.target.measured()
    assert is_worth_more(costs)
    for _ in range(9):
        if is_worth_more(costs):
            calibrate_more(machine, costs, machine.clock)
    assert not is_worth_more(costs)
    found = costs.target.measured()
    assert found.keys() >= set(range(1, NARROW + 1))
    assert {rows: found[rows] for rows in before} == before
    for rows, seconds in found.items():
        assert seconds == pytest.approx(8 * line(rows))


def test_a_slow_model_is_not_made_to_wait_again() -> None:
    machine = Machine(lambda rows: 100 * line(rows))
    assert not is_worth_more(calibrate(machine, None, machine.clock))


def test_one_width_alone_is_not_left_at_that() -> None:
    """As earlier versions left a slow model: a row costs a pass then, and nothing would ever be drafted."""
    machine = Machine(lambda rows: 100 * line(rows))
    costs = Costs(RowCosts({1: 100 * line(1)}))
    assert is_worth_more(costs)
    calibrate_more(machine, costs, machine.clock)
    assert costs.target.of(4) == pytest.approx(100 * line(4))
    assert not is_worth_more(costs)


def test_weights_that_come_from_the_disk_use_up_no_budget() -> None:
    """The first pass of all may take seconds; what is kept of it is nothing."""
    seen: list[int] = []

    def cold(rows: int) -> float:
        seen.append(rows)
        return 60.0 if len(seen) == 1 else line(rows)

    machine = Machine(cold)
    found = calibrate(machine, None, machine.clock).target.measured()
    assert found == {rows: pytest.approx(line(rows)) for rows in found}
    assert len(found) > 5


@pytest.mark.parametrize("pace", [0.001, 10.0])
def test_a_draft_is_measured_too(pace: float) -> None:
    """Both widths whatever they take: were reading as dear as drafting, no long prompt would ever have a draft."""
    target, draft = Machine(line), Machine(lambda rows: pace * line(rows))
    found = calibrate(target, draft, lambda: target.now + draft.now)
    assert found.draft.of(1) == pytest.approx(pace * line(1))
    assert found.read == pytest.approx(pace * line(READ) / READ)


def test_a_survey_times_every_width_empty_and_deep() -> None:
    machine = Machine(line, deeper=0.001)
    found = finished(time_model(machine, SIZES, (100.0, 100.0), machine.clock, never))
    assert found.empty == {rows: pytest.approx(line(rows)) for rows in SIZES}
    assert found.position == machine.traits.n_ctx - max(SIZES)
    grown = 1.0 + 0.001 * found.position
    assert found.deep == {rows: pytest.approx(grown * line(rows)) for rows in SIZES}
    assert machine.length == machine.n_open == 0
    assert machine.widths.count(1) == 2 * 2 * ROUNDS
    assert costs(found, None).target.measured() == found.empty


def test_only_what_was_timed_in_a_long_text_is_kept_of_one() -> None:
    """The prices of an empty context, written down for others, would make a cliff where they begin."""
    found = costs(Times({1: 0.05, 4: 0.06, 9: 0.13}, {1: 0.06, 4: 0.1}, position=1500), None)
    assert found.by_length[1024].measured() == {1: 0.06, 4: 0.1}
    assert found.target.measured() == {1: 0.05, 4: 0.06, 9: 0.13}


def test_widths_are_timed_in_rounds() -> None:
    """A machine that slows down halfway does so for all widths alike: the fastest round counts."""
    machine = Machine(lambda rows: line(rows) * (1.0 if machine.now < 5.0 else 3.0))
    found = finished(time_model(machine, (1, 2, 4), (20.0, 0.0), machine.clock, never))
    assert found.empty == {rows: pytest.approx(line(rows)) for rows in (1, 2, 4)}
    assert machine.now > 1.0


@pytest.mark.parametrize(
    ("machine", "budget", "why"),
    [
        (Machine(line, can_rollback=False), 10.0, "cannot take tokens back"),
        (Machine(line, n_ctx=100), 10.0, "room for"),
        (Machine(lambda rows: 1.0 * rows), 10.0, "room for"),
    ],
    ids=["a state", "a small context", "a slow model"],
)
def test_why_there_is_nothing_deep(machine: Machine, budget: float, why: str) -> None:
    found = finished(time_model(machine, (1, 2, 64), (budget, budget), machine.clock, never))
    assert found.empty[1] > 0.0
    assert not found.deep
    assert why in found.why_not
    assert found.to_wire()["why_not_deep"] == found.why_not


@pytest.mark.parametrize("budget", [0.0, 0.05, 0.3, 2.0])
def test_a_survey_keeps_its_budget(budget: float) -> None:
    """No pass is begun that would surely end too late, however wide: who waits cannot stop it."""
    machine = Machine(lambda rows: 0.01 * rows)
    found = finished(time_model(machine, SIZES, (budget, 0.0), machine.clock, never))
    assert list(found.empty) == list(SIZES[: len(found.empty)])
    assert machine.now <= max(budget, 2 * 0.01) + 2 * 0.01 * 8  # the steps of SIZES, at most 16 rows here
    assert (len(found.empty) > 1) == (budget > 0.0)


def test_the_least_is_timed_whatever_it_takes() -> None:
    machine = Machine(lambda rows: 100.0)
    found = finished(time_model(machine, SIZES, (1.0, 0.0), machine.clock, never, least=5))
    assert list(found.empty) == [1, 2, 3, 4, 5]


def test_no_width_is_wider_than_a_pass() -> None:
    machine = Machine(line, max_rows=16, n_ctx=400)
    found = finished(time_model(machine, SIZES, (1.0, 1.0), machine.clock, never))
    assert max(found.empty) == max(found.deep) == 16
    assert max(machine.widths) == 16


def test_a_survey_that_is_cancelled_leaves_an_empty_cache() -> None:
    machine = Machine(line)
    with pytest.raises(Cancelled):
        finished(time_model(machine, SIZES, (1.0, 50.0), machine.clock, lambda: machine.length > 0))
    assert machine.length == machine.n_open == 0


def test_a_survey_travels() -> None:
    asked = Survey(3.0, (1, 2), is_deep=False, is_kept=True)
    wire = {"seconds": 3.0, "sizes": [1, 2], "is_deep": False, "is_kept": True, "least": 1}
    assert Survey.from_wire(wire) == asked


COSTS = {
    "a line": (lambda rows: 1.0 * rows, [], []),
    "a kernel for nine": (lambda rows: 1 + 0.02 * rows if rows <= 8 else 2.5 + 0.02 * rows, [9], range(2, 8)),
    "two rows": (lambda rows: 1.0 if rows == 1 else 1.81 + 0.01 * rows, [2], range(3, 64)),
    "flat": (lambda rows: 1.0, [], range(2, 64)),
    "falling": (lambda rows: 2.0 - 0.01 * rows, [], range(2, 64)),
}


@pytest.mark.parametrize(("cost", "cliffs", "free"), COSTS.values(), ids=COSTS)
def test_stairs(cost: Callable[[int], float], cliffs: list[int], free: range) -> None:
    """A cliff stands out of the slope; rows are free where they cost next to nothing; a straight line has neither."""
    found = stairs({rows: cost(rows) for rows in SIZES})
    assert [one.rows for one in found] == list(SIZES[1:])
    assert [one.rows for one in found if one.is_cliff] == cliffs
    assert {one.rows for one in found if one.is_free} >= set(free) & set(SIZES)
    assert not any(one.is_free and one.is_cliff for one in found)
    assert all(one.ratio == pytest.approx(cost(one.rows) / cost(one.before)) for one in found)
