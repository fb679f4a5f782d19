"""The planner where a change of width is dear: a GPU whose launches are recorded by width, as CUDA graphs are.

The costs are those of an 8B model in Q4_0 on an H100: a pass of a new width launches kernel by kernel, the second
records the launches, and the following ones replay them.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.control.auto import Auto
from localspec.control.candidates import Chains, Copies
from localspec.control.prices import Prices
from localspec.control.schedule import Probing
from localspec.control.timing import ModelTimes, prices_of
from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Draw, Times
from localspec.engine.protocols import DraftBudget, History, Shape
from localspec.tuning import EPS, HEAD_START, PLANNING, SIZES
from tests.control.simulated import World, drafted, step_of
from tests.control.test_auto import Text

ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 64, 128)
STEADY = (2.88, 3.10, 3.50, 3.97, 4.45, 4.75, 5.67, 6.80, 6.90, 7.00, 7.67, 8.42, 11.3, 17.0)  # ms
FIRST, SECOND = 1.9, 7.0  # ms beyond: of the first pass of a width, and of the second
FIRST_PLAIN, SECOND_PLAIN = 1.4, 5.2  # of a plain one
CHANGE = FIRST + FIRST_PLAIN + SECOND_PLAIN
DRAFT = 0.3  # ms of a draft token
SETTLES = 2
TOKENS = 3000


def steady(rows: int) -> float:
    return 1e-3 * float(np.interp(rows, ROWS, STEADY))


class Recorded:
    """The clock of such a GPU: the seconds of a pass depend on the widths of those before."""

    def __init__(self) -> None:
        self.width, self.alike = 0, 0

    def __call__(self, rows: int) -> float:
        self.alike = self.alike + 1 if rows == self.width else 1
        self.width = rows
        more = ((FIRST_PLAIN, SECOND_PLAIN) if rows == 1 else (FIRST, SECOND))[self.alike - 1 : self.alike]
        return steady(rows) + 1e-3 * sum(more)


def measured() -> Prices:
    target = ModelTimes({rows: steady(rows) for rows in SIZES}, change=1e-3 * CHANGE)
    return prices_of(target, ModelTimes({1: 1e-3 * DRAFT, 2: 1e-3 * DRAFT, 32: 2e-3}, change=1e-3 * CHANGE))


def rate(world: World, auto: Auto, answer: int = TOKENS, looking: Callable[[], float] = lambda: 0.0) -> float:
    """Return tokens per second as a share of plain decoding's, in an answer of so many tokens; the account must hold.

    `looking` returns the seconds that the last plan took.
    """
    machine, position, seconds = Recorded(), 0, 0.0
    controller, text = Probing(auto, settles=SETTLES), Text()
    while position < answer:
        text.position = position
        plan, planning = controller.plan(text, DraftBudget(answer - position, 512)), looking()
        beliefs, n_run = drafted(plan, world, position)
        k = len(beliefs)
        kept = world.accepted(position, k) if k else 0
        times = Times(draft=1e-3 * DRAFT * n_run, verify=machine(plan.width(k)), other=planning, planning=planning)
        controller.observe(step_of(plan, position, beliefs, kept, times), times.total)
        position, seconds = position + kept + 1, seconds + times.total
        allowed = steady(1) * (position + HEAD_START) + 1e-3 * (SETTLES * CHANGE + FIRST_PLAIN + SECOND_PLAIN)
        assert seconds <= allowed / (1 - EPS) + 1e-9, f"after {position} tokens"
    return position * steady(1) / seconds


def fixed_rate(world: World, k: int) -> float:
    """Return the same for drafts of `k` tokens in every pass."""
    machine, position, seconds = Recorded(), 0, 0.0
    while position < TOKENS:
        position += world.accepted(position, k) + 1
        seconds += machine(1 + k) + 1e-3 * DRAFT * k
    return position * steady(1) / seconds


def chains(prices: Prices) -> Auto:
    shape = Shape(16, 16, 1)
    return Auto(prices, [Chains("draft-model", prices, Acceptance(Draw.IID), shape, Draw.IID)], "draft-model", SETTLES)


@pytest.mark.parametrize("chance", [0.9, 0.8, 0.7])
def test_chains_keep_a_width_and_are_as_fast_as_the_best_fixed_length(chance: float) -> None:
    best = max(fixed_rate(World(chance, 3), k) for k in (0, 1, 2, 3, 4, 5, 7, 8))
    assert best > 1.2
    assert rate(World(chance, 3), chains(measured())) >= 0.93 * best


@pytest.mark.parametrize("chance", [0.5, 0.25, 0.05, None])
@pytest.mark.parametrize("answer", [200, TOKENS])
def test_what_does_not_pay_costs_no_more_than_the_account_allows(chance: float | None, answer: int) -> None:
    assert rate(World(chance, 5), chains(measured()), answer) >= (0.94 if answer == 200 else 0.97)


class Passages:
    """A text of which every second hundred tokens is copied, and a copier that knows which."""

    def __init__(self, right: float) -> None:
        self.right = right
        self.asked = 0

    def chances(self, history: History, most: int) -> NDArray[np.float64]:
        self.asked += 1
        at = history.position % 200
        return np.full(min(most, 200 - at), self.right) if at >= 100 else np.empty(0)


class Copied(World):
    """The same text: a copied token is right with one chance, no other one is ever."""

    def __init__(self, right: float) -> None:
        super().__init__(0.5, 3)
        self.chance = np.where(np.arange(len(self.chance)) % 200 >= 100, right, 0.0)


def copies(prices: Prices, copier: Passages) -> Auto:
    return Auto(prices, [Copies("copy", prices, copier, 64)], "plain", SETTLES)


def test_long_copies_are_made_however_dear_the_change_is() -> None:
    assert rate(Copied(0.99), copies(measured(), Passages(0.99))) > 1.45


def test_a_copy_too_short_for_the_change_is_left() -> None:
    """Three plain passes are lost by any change: of four tokens, each right two times in three, too few are kept."""
    assert rate(Copied(0.66), copies(measured(), Passages(0.66))) == pytest.approx(1.0, abs=1e-3)


def test_looking_for_drafts_takes_a_small_share_of_the_time() -> None:
    """A look takes a tenth of a pass, and nothing is ever found: every tenth pass is looked at."""
    copier, before = Passages(0.0), 0

    def looking() -> float:
        nonlocal before
        asked, before = copier.asked - before, copier.asked
        return 0.1 * steady(1) * asked

    assert rate(World(0.0, 1), copies(measured(), copier), looking=looking) > 1.0 - 1.2 * PLANNING
    assert 0.8 * TOKENS * PLANNING / 0.1 < copier.asked < 1.2 * TOKENS * PLANNING / 0.1


def test_a_plain_pass_is_measured_when_it_is_steady() -> None:
    """The second pass after a draft records, and takes three times as long as those that follow."""
    prices = measured()
    rate(World(None, 5), chains(prices))
    assert prices.plain == pytest.approx(steady(1), rel=0.02)
