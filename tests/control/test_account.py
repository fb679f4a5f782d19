"""The loss account: what it charges, what it allows, and the bound that follows from both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.account import LossAccount
from localspec.tuning import CREDIT, EPS, HEAD_START, STAKE

PRICE = 0.010  # seconds of a plain pass


@given(st.lists(st.tuples(st.floats(0.1, 30.0), st.integers(1, 17)), max_size=300), st.floats(0.0, 50.0))
def test_who_begins_only_what_may_be_lost_keeps_the_bound(passes: list[tuple[float, int]], reading: float) -> None:
    """Elapsed <= (plain + L0) / (1 - EPS): a pass whose loss there is no room for is a plain one instead."""
    account = LossAccount()
    account.reading = reading
    elapsed = tokens = 0.0
    for cost, n in passes:
        if cost - 1.0 <= account.remaining:
            account.charge(cost * PRICE, n, PRICE)
        else:
            cost, n = 1.0, 1
            account.charge_plain(PRICE, 0.0, PRICE)
        elapsed, tokens = elapsed + cost, tokens + n
        assert elapsed <= (tokens + HEAD_START + reading) / (1 - EPS) + 1e-6
        assert account.overdrawn <= 1e-9


@given(st.lists(st.tuples(st.floats(0.1, 30.0), st.integers(1, 17), st.booleans()), min_size=1, max_size=100))
def test_it_tells_by_how_much_the_bound_was_exceeded(passes: list[tuple[float, int, bool]]) -> None:
    """By what elapsed beyond the bound at worst, and by more only where past gain was forgotten."""
    account = LossAccount()
    elapsed = tokens = 0.0
    worst = -float("inf")
    for cost, n, is_plain in passes:
        if is_plain:
            account.charge_plain(PRICE, 0.0, PRICE)
            cost, n = 1.0, 1
        else:
            account.charge(cost * PRICE, n, PRICE)
        elapsed, tokens = elapsed + cost, tokens + n
        worst = max(worst, (elapsed - tokens - EPS * elapsed - HEAD_START) * PRICE)
    assert account.overdrawn >= worst - 1e-9
    if max((n - cost for cost, n, _ in passes), default=0.0) * len(passes) < CREDIT:
        assert account.overdrawn == pytest.approx(worst, abs=1e-9)


def test_past_gain_may_be_lost_again_up_to_a_limit() -> None:
    account = LossAccount()
    for _ in range(100):
        account.charge(PRICE, 11, PRICE)
    assert account.loss == -CREDIT
    assert account.remaining == pytest.approx(CREDIT + HEAD_START + 100 * EPS)


def test_passes_that_get_cheaper_overdraw_nothing() -> None:
    """A draft was lost beside a busy program, which ends: a plain pass takes half the time then."""
    account = LossAccount()
    account.charge((1.0 + account.remaining) * 2.0, 1, 2.0)
    assert account.overdrawn < 0.0
    account.charge_plain(1.0, 0.0, 1.0)
    assert account.overdrawn < 0.0
    assert account.loss == pytest.approx(HEAD_START)


def test_deciding_on_a_plain_pass_is_lost() -> None:
    account = LossAccount()
    for _ in range(20):
        account.charge_plain(1.1 * PRICE, 0.1 * PRICE, PRICE)
    assert account.loss == pytest.approx(20 * 0.1)
    assert account.remaining < 0.0


def test_a_pass_beyond_all_expectation_is_told() -> None:
    account = LossAccount()
    account.charge_plain(PRICE, 0.0, PRICE)
    assert account.overdrawn < 0.0
    account.charge(1.0, 1, PRICE)
    assert account.overdrawn == pytest.approx(1.0, rel=0.05)


def test_exploring_may_cost_half_of_its_own_allowance_and_all_of_the_prompts() -> None:
    account = LossAccount()
    account.reading = 7.0
    assert (account.own, account.allowance) == (HEAD_START, HEAD_START + 7.0)
    assert account.stake == pytest.approx(STAKE * HEAD_START + 7.0)
