"""What a draft is worth, when a chain ends, and what it then promises."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.candidates import Chains
from localspec.control.prices import Prices
from localspec.control.value import Best, Now, StopRule
from localspec.engine.acceptance import Acceptance
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draw, Times
from localspec.engine.protocols import DraftBudget, DraftState, Plan, Shape
from localspec.tuning import DOUBT
from tests.control.simulated import step_of

ROWS = [1.0, 1.7, 2.4, 2.4]  # dear rows, the fourth free, in tokens
DRAFT = [0.0, 0.1, 0.2, 0.3]
WIDE = Distribution(np.arange(4, dtype=np.int32), np.full(4, 0.25))
PLENTY = 1e9


class Text:
    """A history of one token."""

    tokens = (1,)
    position = 1


def now(prices: Prices, value: float = 1.0, may_lose: float = PLENTY) -> Now:
    return Now(Text(), DraftBudget(99, 99), prices, value, may_lose, may_lose, 16, 100)


def chances(*shares: float) -> list[float]:
    """Return what is known of such shares before anything was learned."""
    acceptance = Acceptance(Draw.COUPLED)
    return [acceptance.chance(share, 0) for share in shares]


def grown(*shares: float, forced: int = 0, scatter: float = 0.0, mean: float = 0.9) -> StopRule:
    """Return the rule after it was asked about a chain of tokens with these shares, up to the first that it refused."""
    stop = StopRule(Acceptance(Draw.COUPLED), mean, ROWS, DRAFT, scatter, forced)
    for depth, share in enumerate(shares):
        if depth > 0 and not stop.look_on(depth, shares[depth - 1]):
            break
        if not stop.go_on(DraftState(WIDE, depth, depth, share=share)):
            break
    return stop


def worth(found: Sequence[float], prices: Prices, each: float, value: float, may_lose: float) -> list[float]:
    """Return the value of every length, by going through all ways in which its tokens turn out."""
    values = []
    for k in range(1, len(found) + 1):
        ways = [(float(np.prod(found[:n]) * (1.0 - found[n] if n < k else 1.0)), n) for n in range(k + 1)]
        mean = sum(p * n for p, n in ways)
        variance = sum(p * (n - mean) ** 2 for p, n in ways)
        seconds = prices.of(prices.padded(1 + k)) - prices.plain + each * k
        values.append(mean - value * seconds - variance / (2.0 * may_lose / prices.plain))
    return values


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7),
    st.floats(0.0, 0.5),
    st.floats(1.0, 3.0),
    st.sampled_from([30.0, 3.0, PLENTY]),
)
def test_the_best_length_is_the_one_of_the_greatest_value(
    found: list[float], each: float, value: float, may_lose: float
) -> None:
    """Expected tokens less the value of the time, less the variance over twice what may be lost."""
    prices = Prices({1: 1.0, 2: 1.35, 3: 1.7, 4: 1.2, 8: 1.75})
    best = now(prices, value, may_lose).best(found, each)
    assert best is not None
    losses = [DOUBT * prices.of(prices.padded(1 + k)) - 1.0 + DOUBT * each * k for k in range(1, len(found) + 1)]
    values = worth(found, prices, each, value, may_lose)
    possible = [one for one, loss in zip(values, losses, strict=True) if loss <= may_lose]
    assert best.value == pytest.approx(max(possible), abs=1e-9)
    assert best.value == pytest.approx(values[best.length - 1], abs=1e-9)
    assert best.tokens == pytest.approx(sum(itertools.accumulate(found[: best.length], lambda p, q: p * q)))


def test_no_draft_is_best_that_may_not_be_lost() -> None:
    """Of five tokens that are sure as many are drafted as can be lost, and none where that is not even one."""
    prices = Prices({1: 1.0, 9: 5.0})  # a row costs half a pass
    sure = [1.0] * 5
    loss = [DOUBT * (1.0 + 0.5 * k) - 1.0 for k in range(1, 6)]
    for k in range(1, 5):
        best = now(prices, may_lose=loss[k - 1] + 1e-9).best(sure, 0.0)
        assert best == Best(k, float(k), pytest.approx(k - 0.5 * k))
    assert now(prices, may_lose=loss[0] - 1e-9).best(sure, 0.0) is None
    assert now(prices, may_lose=loss[1] + 1e-9).best(sure, 0.0, before=1.0) is None, "what comes first may be lost too"


def test_scatter_is_weighed_against_what_is_at_stake() -> None:
    """A draft that may fail is worth less, the less there is to lose."""
    prices = Prices({1: 1.0, 9: 1.8})
    values = [now(prices, may_lose=9.0).best([0.8] * 5, 0.0, caution=caution).value for caution in (0.5, 2.0, 0.0)]
    assert values == sorted(values)
    assert values[0] < values[1] < values[2]


def test_a_free_row_is_taken_and_a_dear_one_is_not() -> None:
    prices = Prices({1: 1.0, 4: 1.0, 8: 9.0})
    best = now(prices).best([0.5] * 7, 0.0)
    assert best is not None
    assert best.length == 3


def test_a_clear_lead_is_drafted_and_a_narrow_one_is_not() -> None:
    assert grown(0.95, 0.95, 0.95).length == 3
    assert grown(0.05).length == 0
    assert grown(0.95, 0.95, 0.05).length == 3  # a third row costs nothing more, so neither does a hopeless token


def test_a_bet_of_all_there_is_has_to_be_surer_than_one_of_little() -> None:
    """One row costs 0.7 tokens: eight in ten chances pay in the long run, and not where one loss ends all drafting."""
    likely, sure = 0.75, 0.99
    assert 0.8 < chances(likely)[0] < 0.9
    rows, draft = ROWS[:2], DRAFT[:2]

    def is_drafted(share: float, scatter: float) -> bool:
        stop = StopRule(Acceptance(Draw.COUPLED), 0.9, rows, draft, scatter)
        return stop.go_on(DraftState(WIDE, 0, 0, share=share))

    assert is_drafted(likely, scatter=0.01)
    assert not is_drafted(likely, scatter=1.0)
    assert is_drafted(sure, scatter=1.0)


def test_a_draft_promises_its_tokens_net_of_rows_and_looks() -> None:
    one, two, three = chances(0.95, 0.9, 0.95)
    expected = one + one * two + one * two * three
    assert grown(0.95, 0.9, 0.95).value == pytest.approx(expected - (2.4 - 1.0) - 0.3)


def test_what_a_draft_promises_is_less_by_its_scatter() -> None:
    one, two, three = chances(0.95, 0.9, 0.95)
    ways = [(1 - one, 0), (one * (1 - two), 1), (one * two * (1 - three), 2), (one * two * three, 3)]
    mean = sum(p * n for p, n in ways)
    variance = sum(p * (n - mean) ** 2 for p, n in ways)
    careless, careful = grown(0.95, 0.9, 0.95), grown(0.95, 0.9, 0.95, scatter=0.1)
    assert careful.length == 3
    assert careless.value - careful.value == pytest.approx(0.1 * variance)


def test_a_draft_that_is_cut_to_nothing_has_cost_its_look() -> None:
    assert grown(0.05).value == pytest.approx(-0.1)


def test_an_exploring_draft_has_the_tokens_that_it_was_asked_for() -> None:
    """Whatever they promise; beyond these, the rule decides."""
    assert grown(0.05, forced=1).length == 1
    assert grown(0.05, 0.05, 0.05, forced=2, mean=1.0).length >= grown(0.05, 0.05, 0.05, forced=1, mean=1.0).length == 1


def test_the_draft_model_is_not_run_on_a_token_that_will_hardly_be_accepted() -> None:
    stop = grown(0.95)
    assert not stop.look_on(1, 0.0)
    assert stop.looked == 1
    assert grown(0.95).look_on(1, 0.95)


def test_a_token_that_is_yet_to_be_drawn_is_as_sure_as_its_dist() -> None:
    """Its share is not known before the draw; what is to be expected of it is, from the draft's own distribution."""
    peaked = Distribution(np.arange(4, dtype=np.int32), np.array([0.97, 0.01, 0.01, 0.01]))
    for dist, is_drafted in ((peaked, True), (WIDE, False)):
        stop = StopRule(Acceptance(Draw.IID), 0.9, [1.0, 1.7], [0.0, 0.1], 0.0)
        assert stop.go_on(DraftState(dist, 0, 0)) == is_drafted


def test_a_sibling_is_added_where_its_row_costs_less_than_it_promises() -> None:
    """The third row beside two is free, one more than could all be rejected is not to be had."""
    stop = grown(0.95)
    assert not stop.widen(1, 0.7)
    assert stop.widen(1, 0.72)
    assert stop.widen(2, 0.02)
    assert not stop.widen(2, 0.005), "handling it takes time too"
    assert not stop.widen(3, 1.0)


@pytest.mark.parametrize(("n", "waited"), [(0, 0.0), (1, math.inf)])
def test_only_a_chain_that_is_worth_something_is_explored_again_at_once(n: int, waited: float) -> None:
    """One without a token is worth nothing: the time until the next try is counted from it."""
    prices = Prices(dict.fromkeys((1, 2, 4, 8), 1.0), 0.01)
    acceptance = Acceptance(Draw.COUPLED)
    chains = Chains("draft-model", prices, acceptance, Shape(8, 8, 1), Draw.COUPLED)
    chains._stop = StopRule(acceptance, 0.9, [0.0] * 9, [0.0] * 9, 0.0, length=n, tokens=0.9 * n, squares=0.9 * n)
    step = step_of(Plan("draft-model", 8), 1, [0.9] * n, 0, Times())
    chains.observe(step)
    assert acceptance.waited == waited
