"""When a chain ends, what it then promises, and what the promises of past chains make of the next."""

from __future__ import annotations

import math

import numpy as np
import pytest

from localspec.acceptance import Acceptance
from localspec.control.growing import Growing
from localspec.control.trials import CURIOUS, GUESSED, SPREE, Looks
from localspec.draft import Draw
from localspec.law import Law
from localspec.protocols import Growth

ROWS = [1.0, 1.7, 2.4, 2.4]  # dear rows, the fourth free, in tokens
DRAFT = [0.0, 0.1, 0.2, 0.3]
WIDE = Law(np.arange(4, dtype=np.int32), np.full(4, 0.25))


def chances(*shares: float) -> list[float]:
    """Return what is known of such shares before anything was learned."""
    acceptance = Acceptance(Draw.COUPLED)
    return [acceptance.chance(share, 0) for share in shares]


def grown(*shares: float) -> Growing:
    """Return the rule after it was asked about a chain of tokens with these shares, up to the first that it refused."""
    stop = Growing(Acceptance(Draw.COUPLED), 0.9, ROWS, DRAFT)
    for depth, share in enumerate(shares):
        if depth > 0 and not stop.look_on(depth, shares[depth - 1]):
            break
        if not stop.go_on(Growth(WIDE, depth, depth, share=share)):
            break
    return stop


def test_a_clear_lead_is_drafted_and_a_narrow_one_is_not() -> None:
    assert grown(0.95, 0.95, 0.95).length == 3
    assert grown(0.05).length == 0
    assert grown(0.95, 0.95, 0.05).length == 3  # a third row costs nothing more, so neither does a hopeless token


def test_a_bet_of_all_there_is_has_to_be_surer_than_one_of_little() -> None:
    """One row costs 0.7 tokens: eight in ten chances pay in the long run, and not where one loss ends all drafting."""
    likely, sure = 0.75, 0.99
    assert 0.8 < chances(likely)[0] < 0.9
    rows, draft = ROWS[:2], DRAFT[:2]

    def is_drafted(share: float, caution: float) -> bool:
        return Growing(Acceptance(Draw.COUPLED), 0.9, rows, draft, caution).go_on(Growth(WIDE, 0, 0, share=share))

    assert is_drafted(likely, caution=0.01)
    assert not is_drafted(likely, caution=1.0)
    assert is_drafted(sure, caution=1.0)


def test_a_draft_promises_its_tokens_net_of_rows_and_looks() -> None:
    one, two, three = chances(0.95, 0.9, 0.95)
    expected = one + one * two + one * two * three
    assert grown(0.95, 0.9, 0.95).promise == pytest.approx(expected - (2.4 - 1.0) - 0.3)


def test_a_draft_that_is_cut_to_nothing_has_cost_its_look() -> None:
    assert grown(0.05).promise == pytest.approx(-0.1)


def test_a_sibling_is_added_where_its_row_costs_less_than_it_promises() -> None:
    """The third row beside two is free, one more than could all be rejected is not to be had."""
    stop = grown(0.95)
    assert not stop.widen(1, 0.7)
    assert stop.widen(1, 0.72)
    assert stop.widen(2, 0.02)
    assert not stop.widen(2, 0.005), "handling it takes time too"
    assert not stop.widen(3, 1.0)


def test_looks_are_worth_what_they_were_of_late() -> None:
    """The guess is believed at first, and soon no more."""
    looks = Looks()
    assert looks.worth(0.3) == 0.3
    looks.observe(-0.1)
    assert looks.worth(0.3) == pytest.approx((GUESSED * 0.3 - 0.1) / (GUESSED + 1.0))
    for _ in range(100):
        looks.observe(-0.1)
    assert -0.1 < looks.worth(0.3) < 0.02
    for _ in range(30):
        looks.observe(0.5)
    assert looks.worth(0.0) > 0.3


@pytest.mark.parametrize("price", [0.0, 0.01, 0.1, 1.0])
def test_looks_for_the_sake_of_knowing_take_a_small_share_of_the_time(price: float) -> None:
    looks, passes, waited, n = Looks(), 4000, 0, 0
    for _ in range(passes):
        is_due = looks.are_due(waited, price, 0.0, 10_000)
        waited, n = (0 if is_due else waited + 1), n + is_due
    assert n * price <= CURIOUS[1] * passes
    assert n == int(passes / (1 + max(CURIOUS[0], price / CURIOUS[1])))


def test_where_it_has_to_read_up_first_the_draft_model_is_looked_at_several_times() -> None:
    """It pays for all of them with the passes before, also those of other answers, and only where much is to come."""
    price = SPREE * 0.1 + 4.0
    for waited, left, n in ((math.inf, 1000, SPREE), (math.inf, 200, 0), (price / CURIOUS[1] - 1, 1000, 0)):
        looks, since, found = Looks(), waited, []
        for _ in range(20):
            found.append(looks.are_due(since, 0.1, 4.0 if since else 0.0, left))
            since = 0.0 if found[-1] else since + 1 if found[0] else waited
        assert found == [True] * n + [False] * (20 - n)
