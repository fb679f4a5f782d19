"""What passes cost, as it is learned: between what was measured, in step with the machine, unmoved by interruptions."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.prices import MAX_ROWS, WELL_KNOWN, Average, Prices, best_decode_rows
from localspec.control.profile import Profile
from localspec.control.timing import ModelTimes, prices_of
from localspec.tuning import CLAMP, DOUBT, NEW, PADDED, SIZES, WORTH
from tests.recorded import recorded_expressions

times = st.floats(1e-6, 10.0)
tables = st.dictionaries(st.sampled_from(SIZES[1:]), times, min_size=1).flatmap(
    lambda table: times.map(lambda one: {1: one, **table})
)


@given(tables)
def test_what_was_measured_is_told_as_it_was(table: dict[int, float]) -> None:
    prices = Prices(table)
    assert {rows: prices.of(rows) for rows in table} == pytest.approx(table)
    assert prices.measured() == pytest.approx(table)
    assert (prices.is_known, prices.plain) == (True, table[1])


def test_without_a_plain_pass_nothing_is_known() -> None:
    """And no price is told: each asks first, for NaN compares as neither more nor less."""
    prices = Prices()
    assert not prices.is_known
    assert prices.measured() == {}
    assert math.isnan(prices.of(2))
    prices.complete(Prices())
    assert not prices.is_known
    prices.observe_plain(0.5)
    assert (prices.is_known, prices.plain, prices.measured()) == (True, 0.5, {1: 0.5})


@given(tables, st.data())
def test_between_neighbours_the_price_is_on_their_line(table: dict[int, float], data: st.DataObject) -> None:
    known = sorted(table)
    i = data.draw(st.integers(0, len(known) - 2))
    below, above = known[i], known[i + 1]
    rows = data.draw(st.integers(below, above))
    share = (rows - below) / (above - below)
    assert Prices(table).of(rows) == pytest.approx((1 - share) * table[below] + share * table[above])


@given(tables)
def test_no_price_is_negative_and_beyond_the_widest_none_falls(table: dict[int, float]) -> None:
    prices, widest = Prices(table), max(table)
    found = [prices.of(rows) for rows in range(1, MAX_ROWS + 1)]
    assert min(found) >= 0.0
    beyond = found[widest - 1 :]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(beyond))


def test_with_one_width_known_a_row_costs_a_pass() -> None:
    assert Prices({1: 0.5}).of(3) == pytest.approx(1.5)


@given(tables, st.floats(0.4, 2.9))
def test_all_widths_follow_the_plain_passes(table: dict[int, float], pace: float) -> None:
    """A machine that changes pace does so for all widths: two plain passes move every price."""
    prices = Prices(table)
    for _ in range(3):
        prices.observe_plain(pace * table[1])
    assert prices.measured() == pytest.approx({rows: pace * seconds for rows, seconds in table.items()})


@given(tables, st.floats(0.51, 2.9), st.data())
def test_a_width_follows_its_own_passes_and_no_other_does(
    table: dict[int, float], pace: float, data: st.DataObject
) -> None:
    seen = data.draw(st.sampled_from(sorted(set(table) - {1})))
    prices = Prices(table)
    for _ in range(60):
        prices.observe(seen, pace * table[seen])
    assert prices.of(seen) == pytest.approx(pace * table[seen], rel=1e-3)
    assert {rows: prices.of(rows) for rows in table if rows != seen} == pytest.approx(
        {rows: seconds for rows, seconds in table.items() if rows != seen}
    )


@given(tables, st.floats(2.1, 20.0), st.data())
def test_a_pass_far_below_its_price_shows_a_faster_machine(
    table: dict[int, float], faster: float, data: st.DataObject
) -> None:
    """Else the next drafts would be credited with plain passes of the slow machine."""
    seen = data.draw(st.sampled_from(sorted(set(table) - {1})))
    prices = Prices(table)
    prices.observe(seen, table[seen] / faster)
    assert prices.plain == pytest.approx(table[1] / faster)
    assert prices.of(seen) == pytest.approx(table[seen] / faster)


@given(tables, st.floats(10.0, 1e6), st.data())
def test_an_interruption_hardly_moves_a_price(table: dict[int, float], factor: float, data: st.DataObject) -> None:
    """A price that three passes made moves by a quarter of CLAMP - 1, and those of other widths not at all."""
    seen = data.draw(st.sampled_from(sorted(set(table) - {1})))
    prices = Prices(table)
    prices.observe(seen, factor * table[seen])
    assert prices.of(seen) <= (1 + (CLAMP - 1) / 4) * table[seen] * (1 + 1e-9)
    assert {rows: prices.of(rows) for rows in table if rows != seen} == pytest.approx(
        {rows: seconds for rows, seconds in table.items() if rows != seen}
    )


def test_one_interrupted_plain_pass_teaches_nothing() -> None:
    """Also the first after a measurement. Four of five teach: then the machine is slower."""
    prices = Prices({1: 1.0, 4: 1.2})
    for seconds, plain in ((3.0, 1.0), (1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 2.0)):
        prices.observe_plain(seconds)
        assert [prices.plain, prices.of(4)] == pytest.approx([plain, 1.2 * plain])


def test_noise_makes_the_price_of_one_row_no_higher() -> None:
    """Too high a price would credit every draft."""
    prices = Prices({1: 1.0})
    rng, found = np.random.default_rng(3), list[float]()
    for _ in range(4000):
        prices.observe_plain(float(np.exp(0.1 * rng.normal())))
        found.append(prices.plain)
    assert 0.93 <= np.median(found) <= 0.98


def test_a_pass_gets_the_rows_at_which_it_costs_least() -> None:
    """Never fewer than it needs, one row never more, and none where the gain is within what is known of prices."""
    prices = Prices({1: 1.0, 2: 1.35, 3: 1.6, 4: 1.05, 5: 1.4, 8: 1.9, 9: 1.85, 17: 4.0, 32: 3.7})
    assert [prices.padded(rows) for rows in range(1, 10)] == [1, 4, 4, 4, 5, 6, 7, 8, 9]
    assert [prices.padded(rows) for rows in (16, 17, 18, 31, 32, 33, 64)] == [16, 32, 32, 31, 32, 33, 64]
    assert prices.beyond(4) == pytest.approx([0.05, 0.05, 0.05, 0.4])
    assert prices.worst(4) == pytest.approx([DOUBT * 1.05 - 1.0] * 3 + [DOUBT * 1.4 - 1.0])


@given(tables)
def test_padding_saves_more_than_noise(table: dict[int, float]) -> None:
    prices = Prices(table)
    for rows in range(1, 65):
        wanted = prices.padded(rows)
        assert rows <= wanted <= MAX_ROWS
        assert wanted == rows or prices.of(wanted) < PADDED * prices.of(rows)
        beyond = prices.beyond(rows)[rows - 2] if rows > 1 else 0.0
        assert prices.of(wanted) == pytest.approx(prices.plain + beyond)


def test_a_width_that_was_never_seen_is_learned_from_its_first_pass() -> None:
    prices = Prices({1: 1.0, 9: 3.0})
    prices.observe(5, 1.1)
    assert prices.of(5) == pytest.approx(1.1)
    assert prices.of(3) == pytest.approx(1.05)


def test_a_guessed_price_gives_way_to_a_few_passes() -> None:
    prices = Prices({1: 1.0, 4: 1.2})
    for seconds in (2.0, 2.6, 2.4):
        prices.observe(8, seconds)
    assert prices.of(8) == pytest.approx(7.0 / 3)


def test_an_average_counts_its_first_values_alike_and_then_the_newest_more() -> None:
    average = Average()
    for n, value in enumerate((4.0, 6.0, 5.0, 9.0, 1.0), start=1):
        average.observe(value)
        assert average.seen == n
    assert average.value == pytest.approx(5.0)
    average.observe(10.0)
    assert average.value == pytest.approx(5.0 + NEW * 5.0)
    average.observe(1e9)
    assert average.value == pytest.approx(6.0 + NEW * (CLAMP - 1) * 6.0)


def test_an_average_of_what_may_be_negative_knows_no_limit() -> None:
    average = Average(0.5, 100)
    average.follow(-3.0)
    assert average.value == pytest.approx(0.5 - WORTH * 3.5)
    average.follow(100.0)
    assert average.value > 10.0


@given(tables, times, times)
def test_prices_travel(table: dict[int, float], each: float, read: float) -> None:
    prices = Prices(table, each, read, decode_rows=4, calibrated=12.5)
    again = Prices.from_wire(prices.to_wire())
    assert again.measured() == pytest.approx(table)
    assert (again.draft.value, again.read.value, again.decode_rows, again.calibrated) == (each, read, 4, 12.5)


def test_what_one_pass_told_is_not_kept() -> None:
    prices = Prices({1: 1.0, 4: 1.2})
    prices.observe(8, 2.0)
    assert set(prices.to_wire()["rows"]) == {"1", "4"}
    prices.observe(8, 2.0)
    assert set(prices.to_wire()["rows"]) == {"1", "4", "8"}


GOOD = Prices({1: 0.1, 4: 0.2}, 0.01, 0.001).to_wire()


@pytest.mark.parametrize(
    "damage",
    [
        *({"lone": decode_rows} for decode_rows in (0, MAX_ROWS + 1, "4", None, 1.0)),
        *({"rows": rows} for rows in ({}, {"4": 0.1}, {"1": 0.0}, {"1": -1.0}, {"1": "soon"}, {"one": 0.1}, [0.1])),
        *({"growth": growth} for growth in ({"4": 0.1}, {"1": -0.1}, {"one": 0.1}, [0.1])),
        *({name: value} for name in ("draft", "read", "calibrated") for value in (-1.0, float("nan"), "soon", None)),
    ],
    ids=str,
)
def test_damaged_prices_are_refused(damage: dict[str, object]) -> None:
    assert Prices.from_wire(GOOD).is_known
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Prices.from_wire({**GOOD, **damage})


def test_what_is_measured_anew_replaces_itself_and_nothing_else() -> None:
    """A calibration in little time finds few widths: what an earlier one found beyond them stays, in plain passes."""
    prices = Prices({1: 1.0, 4: 0.8, 8: 2.0})
    prices.observe_plain(3.0)
    prices.renew({1: 0.9, 4: 0.9})
    assert prices.measured() == pytest.approx({1: 0.9, 4: 0.9, 8: 1.8})


def test_widths_that_another_process_knows_are_taken_in_plain_passes() -> None:
    prices = Prices({1: 1.0, 4: 1.2})
    prices.complete(Prices({1: 2.0, 4: 5.0, 8: 6.0}))
    assert prices.measured() == pytest.approx({1: 1.0, 4: 1.2, 8: 3.0})
    empty = Prices()
    empty.complete(prices)
    assert empty.measured() == pytest.approx(prices.measured())


@pytest.mark.parametrize("seen", [1, 2, 3, 4])
def test_a_width_is_known_well_before_it_shows_a_faster_machine(seen: int) -> None:
    """The first passes of a width may be the slow ones: llama.cpp prepares its graph in them."""
    prices = Prices({1: 1.0})
    for _ in range(seen):
        prices.observe(4, 2.0)
    prices.observe(4, 0.1)
    assert (prices.plain < 1.0) == (seen >= WELL_KNOWN)


EMPTY, DEEP = {1: 1.0, 4: 2.0, 16: 4.0}, {1: 1.5, 4: 6.0, 16: 20.0}  # seconds, the second with 1000 tokens


def grown() -> Prices:
    prices = Prices(EMPTY)
    prices.grow(EMPTY, DEEP, 1000)
    return prices


@pytest.mark.parametrize(("depth", "four"), [(0, 2.0), (500, 4.0 / 1.25), (1000, 4.0), (2000, 10.0 / 2.0)])
def test_wide_passes_grow_with_the_text_as_was_measured(depth: int, four: float) -> None:
    """Each width by its own line. What a plain pass costs is known from plain passes, at any depth."""
    prices = grown()
    prices.at(depth)
    assert prices.ratio(1) == 1.0
    assert prices.ratio(4) == pytest.approx(four)
    prices.observe_plain(1.0 + depth / 2000)
    assert Prices.from_wire(prices.to_wire()).ratio(4) == pytest.approx(2.0), "kept as of an empty context"
    again = Prices.from_wire(prices.to_wire())
    again.at(depth)
    assert again.ratio(4) == pytest.approx(four)


def test_what_is_learned_deep_in_a_text_holds_at_its_beginning() -> None:
    prices = grown()
    prices.at(1000)
    for _ in range(5):
        prices.observe_plain(1.5)
    for _ in range(200):
        prices.observe(4, 9.0)
    assert prices.ratio(4) == pytest.approx(6.0, rel=0.01)
    prices.at(0)
    assert prices.ratio(4) == pytest.approx(3.0, rel=0.01)


def test_a_growth_that_is_measured_deep_in_a_text_holds_at_once() -> None:
    prices = grown()
    prices.at(1000)
    assert prices.ratio(4) == pytest.approx(4.0)
    prices.grow(EMPTY, EMPTY, 1000)
    assert prices.ratio(4) == pytest.approx(2.0)


@pytest.mark.parametrize("deep", [{}, {4: 6.0}])
def test_where_growth_is_not_measured_prices_do_not_follow(deep: dict[int, float]) -> None:
    prices = Prices(EMPTY)
    prices.grow(EMPTY, deep, 1000)
    prices.at(4000)
    assert prices.ratio(4) == 2.0


def test_a_survey_says_how_prices_grow() -> None:
    times = ModelTimes(EMPTY, DEEP, 1000)
    for draft in (None, ModelTimes({1: 0.1})):
        prices = prices_of(times, draft)
        prices.at(1000)
        assert prices.ratio(16) == pytest.approx(20.0 / 1.5)
        profile = Profile(Path("none"), prices=Prices(EMPTY))
        profile.renew(prices_of(times, draft))
        assert profile.prices is not None
        profile.prices.at(1000)
        assert profile.prices.ratio(16) == pytest.approx(20.0 / 1.5)


test_what_is_recorded = recorded_expressions(__file__, best_decode_rows)
