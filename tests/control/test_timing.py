"""First measurements and surveys on machines whose clock is ours: within the budget, in rounds, and cancelled."""

import random
from collections.abc import Callable, Generator
from typing import Any

import pytest

from localspec.control.prices import Prices
from localspec.control.timing import (
    NARROW,
    ORDER,
    READ,
    ROUNDS,
    WIDTHS,
    ModelTimes,
    add_prices,
    first_prices,
    misses_widths,
    prices_of,
    time_model,
)
from localspec.engine.protocols import Cancelled, Capabilities
from localspec.tuning import BUDGET, SIZES


class Machine:
    """A model whose passes take `cost` seconds by rows, `deeper` times as long for each token in the cache."""

    def __init__(self, cost: Callable[[int], float], *, deeper: float = 0.0, **capabilities: Any) -> None:
        settled = {"can_rollback": True, "max_leaves": 8, "max_rows": 64, "n_ctx": 1024, "n_vocab": 100}
        self.capabilities = Capabilities(**{**settled, **capabilities})
        self.cost, self.deeper = cost, deeper
        self.now = 0.0
        self.length = self.n_open = self.evaluated = 0
        self.widths: list[int] = []

    def time_rows(self, rows: int) -> float:
        assert self.length + rows <= self.capabilities.n_ctx
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


POSSIBLE = [rows for rows in SIZES if rows <= 64]  # of the machine above


def finished(timing: Generator[float, None, ModelTimes]) -> ModelTimes:
    """Return what a timing comes to; its progress never falls."""
    shares = []
    while True:
        try:
            shares.append(next(timing))
        except StopIteration as done:
            assert all(0.0 <= share <= 1.0 for share in shares)
            times: ModelTimes = done.value
            return times


def measured(machine: Machine, draft: Machine | None = None, budget: float = BUDGET) -> Prices:
    """Return what a first measurement finds, both models being timed by the same clock."""
    clock = machine.clock if draft is None else lambda: machine.now + draft.now
    return first_prices(machine, draft, clock, never, budget)


@pytest.mark.parametrize(("pace", "least"), [(0.01, len(POSSIBLE)), (1.0, 5), (100.0, WIDTHS)])
def test_a_first_measurement_keeps_its_budget(pace: float, least: int) -> None:
    """The most telling widths come first, as many as fit; the last one may end late, and two are always taken."""
    machine = Machine(lambda rows: pace * line(rows))
    found = measured(machine).measured()
    assert list(found) == sorted([rows for rows in ORDER if rows in POSSIBLE][: len(found)])
    assert len(found) >= least
    first, last = pace * line(1), 2 * pace * line(max(found))  # the first is for the weights, and no part of it
    assert machine.now <= max(BUDGET, 2 * first) + first + last + 1e-9
    assert found == pytest.approx({rows: pace * line(rows) for rows in found})


def test_the_first_take_of_a_width_does_not_count() -> None:
    seen: list[int] = []

    def warming_up(rows: int) -> float:
        seen.append(rows)
        return 1e-6 if seen.count(rows) == 1 else 1e-3  # as if laying out the graph had been free

    assert measured(Machine(warming_up)).measured() == pytest.approx(dict.fromkeys(POSSIBLE, 1e-3))


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_may_stand_for_one_are_told_from_it(seed: int) -> None:
    """Passes scatter by as much as the two differ: the fastest of several rounds tells them apart."""
    noise = random.Random(seed)
    machine = Machine(lambda rows: 0.002 * (0.92 if rows == 4 else 1.0 + 0.02 * (rows - 1)) * noise.uniform(1.0, 1.03))
    found = measured(machine)
    assert found.decode_rows == 4
    assert found.plain == pytest.approx(0.92 * 0.002, rel=0.02), "what a plain pass takes is what it takes with them"


def test_what_is_missing_is_measured_at_later_loads() -> None:
    """About within the budget each time, until all narrow widths are known; what is known stays."""
    machine = Machine(lambda rows: 8 * line(rows))
    prices = measured(machine)
    before = prices.measured()
    assert misses_widths(prices)
    loads = 0
    while misses_widths(prices) and loads < 20:
        began = machine.now
        add_prices(machine, prices, machine.clock, never)
        assert machine.now - began <= BUDGET + 8 * (line(1) + 2 * line(max(prices.measured())))
        loads += 1
    assert 1 < loads < 20
    found = prices.measured()
    assert found.keys() >= {rows for rows in SIZES if rows <= NARROW} | before.keys()
    assert found == pytest.approx({rows: 8 * line(rows) for rows in found})


def test_a_slow_model_is_not_made_to_wait_again() -> None:
    assert not misses_widths(measured(Machine(lambda rows: 100 * line(rows))))


def test_one_width_alone_is_not_left_at_that() -> None:
    """A row would cost a pass then, and nothing would ever be drafted."""
    assert misses_widths(Prices({1: 100 * line(1)}))
    assert misses_widths(Prices())


def test_weights_that_come_from_the_disk_use_up_no_budget() -> None:
    """The first pass of all may take seconds; what is kept of it is nothing."""
    seen: list[int] = []

    def cold(rows: int) -> float:
        seen.append(rows)
        return 60.0 if len(seen) == 1 else line(rows)

    found = measured(Machine(cold)).measured()
    assert found == pytest.approx({rows: line(rows) for rows in found})
    assert len(found) > 5


def test_a_first_measurement_ends_between_passes_when_it_is_cancelled() -> None:
    machine = Machine(line)
    with pytest.raises(Cancelled):
        first_prices(machine, None, machine.clock, lambda: len(machine.widths) >= 5)
    assert len(machine.widths) == 5


@pytest.mark.parametrize("pace", [0.001, 10.0])
def test_a_draft_is_measured_too(pace: float) -> None:
    """Both widths whatever they take: were reading as dear as drafting, no long prompt would ever have a draft."""
    found = measured(Machine(line), Machine(lambda rows: pace * line(rows)))
    assert found.draft.value == pytest.approx(pace * line(1))
    assert found.read.value == pytest.approx(pace * line(READ) / READ)


def test_a_survey_times_every_width_empty_and_deep() -> None:
    machine = Machine(line, deeper=0.001)
    found = finished(time_model(machine, SIZES, (100.0, 100.0), machine.clock, never))
    assert found.empty == {rows: pytest.approx(line(rows)) for rows in POSSIBLE}
    assert found.position == machine.capabilities.n_ctx - max(POSSIBLE)
    grown = 1.0 + 0.001 * found.position
    assert found.deep == {rows: pytest.approx(grown * line(rows)) for rows in POSSIBLE}
    assert machine.length == machine.n_open == 0
    assert machine.widths.count(1) == 2 * (2 * ROUNDS + 1), "in rounds, twice in each, after one that warms up"
    assert prices_of(found, None).measured() == pytest.approx(found.empty)


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


class Recording(Machine):
    """A GPU that launches the first pass of a width kernel by kernel, records the second and replays the others."""

    FIRST, SECOND = 0.002, 0.007

    def _pass(self, rows: int) -> float:
        alike = next((n for n, one in enumerate(reversed(self.widths)) if one != rows), len(self.widths))
        more = (self.FIRST, self.SECOND)[alike : alike + 1]
        self.now += sum(more)
        return super()._pass(rows) + sum(more)


@pytest.mark.parametrize("settles", [1, 2])
def test_a_width_is_timed_when_its_time_is_steady(settles: int) -> None:
    machine = Recording(lambda rows: 0.003 + 0.0003 * rows, settles=settles)
    prices = first_prices(machine, None, machine.clock, never)
    is_right = prices.of(4) == pytest.approx(0.0042)
    assert is_right == (settles == 2), "the second pass of a width records it"


def test_a_change_of_width_costs_the_way_there_and_back() -> None:
    """One pass of nine rows, and two plain ones until those are replayed again."""
    machine = Recording(lambda rows: 0.003 + 0.0003 * rows, settles=2)
    found = first_prices(machine, None, machine.clock, never).change
    assert found == pytest.approx(2 * Recording.FIRST + Recording.SECOND)
    steady = Machine(lambda rows: 0.003 + 0.0003 * rows)
    assert first_prices(steady, None, steady.clock, never).change == 0.0


@pytest.mark.parametrize(("kind", "is_single"), [(Recording, True), (Machine, False)])
def test_a_draft_reads_two_tokens_singly_where_a_change_costs_more(kind: type[Machine], is_single: bool) -> None:
    draft = kind(lambda rows: 0.0007 + 0.0001 * rows, settles=2)
    target = kind(lambda rows: 0.003 + 0.0003 * rows, settles=2)
    assert first_prices(target, draft, target.clock, never).reads_singly == is_single
