"""When a chain ends, what it then promises, and what the promises of past chains make of the next."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.acceptance import Acceptance
from localspec.control.growing import Growing
from localspec.control.trials import CURIOUS, GUESSED, Looks
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


def test_a_draft_promises_its_tokens_net_of_rows_and_looks() -> None:
    one, two, three = chances(0.95, 0.9, 0.95)
    expected = one + one * two + one * two * three
    assert grown(0.95, 0.9, 0.95).promise == pytest.approx(expected - (2.4 - 1.0) - 0.3)


def test_a_draft_that_is_cut_to_nothing_has_cost_its_look() -> None:
    assert grown(0.05).promise == pytest.approx(-0.1)


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
    looks, passes = Looks(), 4000
    n = sum(looks.are_due(at, price) for at in range(passes))
    assert n * price <= CURIOUS[1] * passes
    assert n == int((passes - 1) / max(CURIOUS[0], price / CURIOUS[1]))
