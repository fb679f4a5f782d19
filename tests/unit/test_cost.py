"""What passes cost, as it is learned: between what was measured, in step with the machine, unmoved by interruptions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.cost import FORGET, SPAN, Costs, DraftCosts, span
from localspec.control.row_costs import FIRST, NEW, OUTLIER, SIZES, RowCosts, lone_rows

times = st.floats(1e-6, 10.0)
tables = st.dictionaries(st.sampled_from(SIZES), times, min_size=2)


@given(tables)
def test_what_was_measured_is_told_as_it_was(table: dict[int, float]) -> None:
    costs = RowCosts(table)
    assert {rows: costs.of(rows) for rows in table} == table
    assert costs.measured() == table
    assert costs.is_known == (1 in table)


@given(tables, st.data())
def test_between_neighbours_the_cost_is_on_their_line(table: dict[int, float], data: st.DataObject) -> None:
    known = sorted(table)
    i = data.draw(st.integers(0, len(known) - 2))
    below, above = known[i], known[i + 1]
    rows = data.draw(st.integers(below, above))
    share = (rows - below) / (above - below)
    assert RowCosts(table).of(rows) == pytest.approx((1 - share) * table[below] + share * table[above])


@given(tables, st.integers(1, 64))
def test_no_cost_is_negative_and_beyond_the_widest_none_falls(table: dict[int, float], more: int) -> None:
    costs, widest = RowCosts(table), max(table)
    assert costs.of(widest + more) >= costs.of(widest)
    assert all(costs.of(rows) >= 0.0 for rows in range(1, 2 * widest))


def test_with_one_width_known_a_row_costs_a_pass() -> None:
    assert RowCosts({1: 0.5}).of(3) == pytest.approx(1.5)
    assert RowCosts({8: 0.8}).of(2) == pytest.approx(0.2)


@given(tables, st.floats(0.4, 2.9), st.data())
def test_all_widths_follow_the_drift_of_one(table: dict[int, float], pace: float, data: st.DataObject) -> None:
    """The one that is measured arrives; the others go the same way, and no further."""
    seen = data.draw(st.sampled_from(sorted(table)))
    costs = RowCosts(table)
    for _ in range(60):
        costs.observe(seen, pace * table[seen])
    assert costs.of(seen) == pytest.approx(pace * table[seen], rel=1e-3)
    for rows in table.keys() - {seen}:
        moved = costs.of(rows) / table[rows]
        assert min(pace, 1.0) - 1e-9 <= moved <= max(pace, 1.0) + 1e-9
        if abs(pace - 1.0) > 0.1:
            assert (moved > 1.0) == (pace > 1.0)


@given(tables, st.floats(10.0, 1e6), st.data())
def test_an_interruption_hardly_moves_a_cost(table: dict[int, float], factor: float, data: st.DataObject) -> None:
    seen = data.draw(st.sampled_from(sorted(table)))
    costs = RowCosts(table)
    costs.observe(seen, factor * table[seen])
    assert costs.of(seen) <= (1 - NEW + NEW * OUTLIER) * table[seen] * (1 + 1e-9)
    for rows in table.keys() - {seen}:
        assert costs.of(rows) <= 1.1 * table[rows]


def test_a_pass_gets_the_rows_at_which_it_costs_least() -> None:
    """Never fewer than it needs, one row never more, and none where the gain is within what is known of costs."""
    costs = RowCosts({1: 1.0, 2: 1.35, 3: 1.6, 4: 1.05, 5: 1.4, 8: 1.9, 9: 1.85, 64: 0.1})
    assert [costs.padded(rows) for rows in range(1, 10)] == [1, 4, 4, 4, 5, 6, 7, 8, 9]
    assert Costs(costs).rows(1) == costs.of(4)
    assert Costs(costs).widths(3, room=9) == (1, 4, 4, 4)
    assert Costs(costs).widths(3, room=2) == (1, 2, 3, 4), "a full cache has no room for padding"


@pytest.mark.parametrize(
    ("seconds", "rows"),
    [
        ({1: 0.062, 2: 0.077, 4: 0.057, 8: 0.102}, 4),
        ({1: 0.062, 2: 0.077, 4: 0.061, 8: 0.102}, 1),  # within what is known of costs
        ({1: 0.0018, 4: 0.0015}, 1),  # too short to tell
        ({1: 0.062, 8: 0.01}, 1),  # so many rows at once are no padding
        ({1: 0.062}, 1),
    ],
)
def test_a_pass_of_one_token_gets_more_rows_where_those_take_less_time(seconds: dict[int, float], rows: int) -> None:
    assert lone_rows(seconds) == rows
    costs = Costs.of_times(seconds, None, 32)
    assert costs.lone == rows
    assert costs.plain == seconds[rows], "what a plain pass takes is what it takes with them"


@pytest.mark.parametrize("lone", [0, 99, "4", None, 1.0])
def test_a_profile_with_an_impossible_width_is_none(lone: object) -> None:
    with pytest.raises(ValueError, match="no width"):
        Costs.from_wire({**Costs(RowCosts({1: 0.1})).to_wire(), "lone": lone})


def test_a_width_that_was_never_seen_is_learned_from_its_first_pass() -> None:
    costs = RowCosts({1: 1.0, 9: 3.0})
    costs.observe(5, 1.1)
    assert costs.of(5) == 1.1
    assert costs.of(3) == pytest.approx(1.05)


@given(st.floats(0.0, 0.1), st.floats(1e-4, 0.1), st.floats(1e-4, 1.0))
def test_first_and_each_are_recovered(first: float, each: float, guess: float) -> None:
    """Whatever was guessed: drafts of different lengths tell what a draft costs and what a token does."""
    costs = DraftCosts(guess)
    for i in range(900):
        n = 1 + i % 6
        costs.observe(n, first + each * n)
    assert FORGET**900 < 1e-11
    for n in (1, 4, 8):
        assert costs.of(n) == pytest.approx(first + each * n, rel=1e-3)
    assert costs.of(0) == 0.0


def test_drafts_of_one_length_tell_what_those_cost() -> None:
    costs = DraftCosts(1.0)
    for _ in range(900):
        costs.observe(4, 0.8)
    assert costs.of(4) == pytest.approx(0.8, rel=1e-3)
    assert 0.0 < costs.of(1) <= 0.8


@given(st.lists(st.tuples(st.integers(1, 16), st.floats(0.0, 100.0)), max_size=40), times)
def test_drafting_never_has_a_negative_cost(drafts: list[tuple[int, float]], guess: float) -> None:
    costs = DraftCosts(guess)
    for n, seconds in drafts:
        costs.observe(n, seconds)
    found = [costs.of(n) for n in range(17)]
    assert found[0] == 0.0
    assert all(later >= earlier for earlier, later in pairwise(found))


@given(tables, times, times)
def test_costs_travel(table: dict[int, float], each: float, read: float) -> None:
    again = Costs.from_wire(Costs(RowCosts(table), DraftCosts(each), read, lone=4).to_wire())
    assert again.lone == 4
    assert again.target.measured() == table
    assert again.draft.of(4) == pytest.approx(4 * each)
    assert again.read == read


def test_what_is_measured_anew_replaces_itself_and_nothing_else() -> None:
    """A calibration in little time finds few widths: what an earlier one found beyond them stays."""
    costs = Costs.of_times({1: 1.0, 4: 0.8, 8: 2.0}, {1: 0.1}, 32)
    assert costs.lone == 4
    costs.renew(Costs.of_times({1: 0.9}, {1: 0.2}, 32))
    assert costs.target.measured() == pytest.approx({1: 0.9, 4: 0.8, 8: 2.0})
    assert (costs.draft.of(1), costs.lone) == (pytest.approx(0.2), 4)
    costs.renew(Costs.of_times({1: 0.7, 4: 0.8}, {1: 0.2}, 32))
    assert costs.lone == 1


@pytest.mark.parametrize(("position", "begin"), [(0, 0), (255, 0), (256, 256), (511, 256), (512, 512), (5000, 4096)])
def test_spans_of_lengths_double(position: int, begin: int) -> None:
    assert span(position) == begin


def test_what_passes_cost_deep_in_a_text_is_not_what_they_cost_at_the_start_of_the_next() -> None:
    """Rows grow dearer with the text, each at its own rate; a price that is too high would be credited to drafts."""
    costs = Costs(RowCosts({1: 1.0, 4: 1.2}))
    for _ in range(100):
        costs.at(5000).observe(1, 1.5)
        costs.at(5000).observe(4, 3.0)
    assert costs.plain == pytest.approx(1.5)
    assert costs.target.of(4) == pytest.approx(3.0, rel=1e-4)
    costs.at(100)
    assert costs.plain == 1.0
    assert costs.target.of(4) == 1.2


def test_what_got_cheaper_between_drafts_is_learned_at_once() -> None:
    """Measured beside another program, and that has ended: drafts of a long answer must not be credited with it."""
    costs = Costs(RowCosts({1: 3.0, 4: 5.0}))
    costs.target.observe(1, 3.0)
    costs.target.observe(4, 5.0)
    before = costs.plain
    costs.target.observe(1, 2.0)
    assert costs.plain < 0.94 * before
    costs.target.observe(4, 5.0)
    price = costs.plain
    costs.target.observe(1, 9.0)
    assert costs.plain == price, "one that was interrupted says nothing"


def test_an_interrupted_draft_makes_plain_decoding_no_dearer() -> None:
    """The account pardons it; were one row thought dearer for it, drafts that lose would be credited with that."""
    rows = RowCosts({1: 1.0, 5: 1.8})
    rows.observe(5, 9.0)
    assert rows.of(1) < 1.02
    rows = RowCosts({1: 1.0, 5: 1.8})
    for _ in range(50):
        rows.observe(5, 2.7)
    assert rows.of(1) == pytest.approx(1.5**0.25, rel=0.03), "a machine that is slower now is slower in all widths"


def test_what_is_not_known_at_a_length_is_guessed_by_the_nearest() -> None:
    costs = Costs(RowCosts({1: 1.0, 4: 1.2}))
    costs.at(4096).add({1: 2.0, 4: 4.0})
    for position, one, four in ((2048, 2.0, 4.0), (512, 1.0, 1.2), (16000, 2.0, 4.0)):
        assert (costs.at(position).of(1), costs.target.of(4)) == (one, four)
        assert costs.target.measured() == {}, "a guess is no measurement, and is not kept as one"


def test_a_guess_is_dearer_by_what_is_known_to_be_dearer() -> None:
    """Four rows as the empty context has them, beside one row as the full one does, would look like a gift."""
    costs = Costs(RowCosts({1: 1.0, 4: 1.2, 8: 3.0}), by_length={0: RowCosts({1: 1.0, 4: 1.2, 8: 3.0})})
    costs.renew(Costs(by_length={0: RowCosts({1: 1.0}), 1024: RowCosts({1: 2.0, 4: 2.4})}))
    assert costs.at(1500).measured() == {1: 2.0, 4: 2.4}
    assert costs.target.of(8) == pytest.approx(6.0)
    again = Costs.from_wire(costs.to_wire())
    assert again.at(1500).measured() == {1: 2.0, 4: 2.4}
    assert again.target.of(8) == pytest.approx(6.0)


def test_a_guess_gives_way_to_a_few_passes() -> None:
    costs = Costs(RowCosts({1: 1.0, 4: 1.2}))
    rows = costs.at(3000)
    for n in range(3):
        assert not rows.knows(4), f"after {n} passes"
        rows.observe(4, 2.4)
    assert rows.knows(4)
    assert rows.of(4) == pytest.approx(2.4, rel=0.15)
    assert costs.at(0).of(4) == 1.2


def test_a_guess_is_on_one_level() -> None:
    """The nearest length knows three widths, and only the empty context all: passes of more rows never seem cheaper."""
    costs = Costs(RowCosts({rows: 1.0 + 0.1 * rows for rows in range(1, 10)}))
    near = costs.at(300)
    near.add({rows: 1.5 * (1.0 + 0.1 * rows) for rows in (1, 4, 5)})
    costs.at(600)
    prices = [costs.target.of(rows) for rows in range(1, 10)]
    assert prices == pytest.approx([1.5 * (1.0 + 0.1 * rows) for rows in range(1, 10)])


def test_one_interrupted_plain_pass_teaches_nothing() -> None:
    """Two in a row do: then the machine is slower."""
    for begin in (0, 3000):
        costs = Costs(RowCosts({1: 1.0, 4: 1.2}))
        rows = costs.at(begin)
        rows.observe(1, 3.0)
        assert rows.of(1) == 1.0
        rows.observe(1, 1.0)
        assert rows.of(1) == 1.0
        rows.observe(1, 2.0)
        assert rows.of(1) == 1.0
        rows.observe(1, 2.0)
        assert rows.of(1) > 1.1


def test_a_machine_that_grows_faster_is_believed_at_once() -> None:
    rows = RowCosts({1: 1.0})
    rows.observe(1, 0.8)
    assert rows.of(1) < 0.97


def test_noise_moves_the_price_of_one_row_to_neither_side() -> None:
    rows = RowCosts({1: 1.0})
    rng, found = np.random.default_rng(3), list[float]()
    for _ in range(4000):
        rows.observe(1, float(np.exp(0.1 * rng.normal())))
        found.append(rows.of(1))
    assert np.median(found) == pytest.approx(1.0, abs=0.015)


def test_what_is_half_a_guess_is_not_kept() -> None:
    costs = Costs(RowCosts({1: 1.0, 4: 1.2}))
    costs.at(3000).observe(4, 3.0)
    assert Costs.from_wire(costs.to_wire()).at(3000).measured() == {}
    for _ in range(2):
        costs.at(3000).observe(4, 3.0)
    assert set(Costs.from_wire(costs.to_wire()).at(3000).measured()) == {4}


def test_a_survey_renews_the_lengths_that_it_measured() -> None:
    costs = Costs(RowCosts({1: 1.0, 4: 1.2}))
    costs.at(1024).add({1: 1.3})
    costs.renew(Costs(by_length={0: RowCosts({1: 0.9, 4: 1.1}), 1024: RowCosts({1: 1.1, 4: 1.9})}))
    assert costs.at(0).measured() == {1: 0.9, 4: 1.1}
    assert costs.at(1500).measured() == {1: 1.1, 4: 1.9}


def test_a_guessed_width_may_take_longer_than_a_measured_one() -> None:
    """A quarter longer, where the account has to hold; what another length of text taught is a guess at this one."""
    costs = Costs(RowCosts({1: 1.0, 2: 1.5, 4: 2.0, 8: 3.0}))
    assert costs.worst(1) == pytest.approx(1.1 * 1.5)
    assert costs.worst(2) == pytest.approx(1.25 * 1.75)
    rows = costs.at(SPAN)
    assert costs.worst(1) == pytest.approx(1.25 * 1.5)
    for _ in range(FIRST):
        rows.observe(2, 1.5)
    assert costs.worst(1) == pytest.approx(1.1 * 1.5)


def test_prices_of_a_slow_moment_follow_the_plain_passes_after_it() -> None:
    """Most of the way: a draft whose price was measured while the machine was slow must not be too dear for good."""
    costs = RowCosts({1: 1.3, 2: 2.34})
    for _ in range(40):
        costs.observe(1, 1.0)
    assert costs.of(1) == pytest.approx(1.0, rel=1e-2)
    assert costs.of(2) / costs.of(1) < 2.1  # 1.8, measured; 2.34 if it stayed
