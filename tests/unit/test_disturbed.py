"""The controller where something goes wrong: a pass that another program held up, a long text to be read first."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest

from localspec.acceptance import Acceptance
from localspec.control.account import EPS
from localspec.control.auto import RESTED, Auto
from localspec.control.cost import Costs, DraftCosts
from localspec.control.ledger import Charge
from localspec.control.probe import Probing
from localspec.control.row_costs import RowCosts
from localspec.control.tally import Tally
from localspec.draft import Draft, Draw, Times
from localspec.protocols import History, Plan, Room, Shape
from tests.unit.simulated import World, drafted, step_of

ROWS = {1: 1.0, 2: 1.35, 3: 1.7, 4: 1.9, 5: 2.2, 6: 2.5, 7: 2.8, 8: 3.0, 9: 3.3, 12: 4.2, 16: 5.3}


class Text:
    """The history that the controller sees: its length alone."""

    def __init__(self, length: int) -> None:
        self.tokens = [0] * length

    @property
    def position(self) -> int:
        return len(self.tokens)


def disturbed(seed: int, stalled: int, begin: int, acceptance: float, draft: float) -> float:
    """Return the speed of 512 tokens after `begin`, over plain decoding's; pass `stalled` takes three times as long.

    A pass scatters by two percent; the stall itself is left out, as plain decoding would have had it too.
    """
    costs = Costs(RowCosts(ROWS), DraftCosts(draft))
    controller = Probing(
        Auto(costs, Acceptance(Draw.IID), Shape(16, 16, 1), Draw.IID, name="draft-model"),
    )
    world, rng = World(acceptance, seed), np.random.default_rng(seed)
    position, passes, seconds, tokens = 0, 0, 0.0, 512
    while position < tokens:
        plan = controller.plan(Text(begin + position), Room(tokens - position, 64))
        beliefs, n_run = drafted(plan, world, position)
        kept = world.accepted(position, len(beliefs)) if beliefs else 0
        width = plan.width(len(beliefs))
        verify = float(np.interp(width, list(ROWS), list(ROWS.values())) * np.exp(0.02 * rng.normal()))
        times = Times(draft=draft * n_run, verify=verify)
        seconds += times.total
        if passes == stalled:
            times = Times(draft=times.draft, verify=3 * verify)
        controller.observe(step_of(plan, position, beliefs, kept, times), times.total)
        position, passes = position + kept + 1, passes + 1
    return tokens / seconds


@pytest.mark.parametrize("begin", [0, 600], ids=["measured", "guessed"])
@pytest.mark.parametrize("stalled", [1, 65])
@pytest.mark.parametrize(("acceptance", "draft"), [(0.5, 0.3), (0.3, 0.1)])
def test_one_interrupted_plain_pass_makes_no_answer_slower(
    begin: int, stalled: int, acceptance: float, draft: float
) -> None:
    """Every draft is credited with the price of a plain pass: too high, it made drafts that lose look like gains."""
    assert median(disturbed(seed, stalled, begin, acceptance, draft) for seed in range(7)) >= 0.975


class Slow:
    """Copies that take a while to be looked for: the text has to be read first, and nothing is found in it."""

    def __init__(self, each: float) -> None:
        self.each = each
        self.n_read = 0
        self.seconds = 0.0  # since it was asked last

    def unread(self, history: History) -> int:
        return len(history.tokens) - self.n_read

    def read(self, history: History, most: int) -> None:
        n = min(most, self.unread(history))
        self.n_read += n
        self.seconds += n * self.each

    def offer(self, history: History, plan: Plan) -> Draft:
        self.read(history, self.unread(history))
        return Draft.root(0)

    def spent(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds


@pytest.mark.parametrize("each", [5e-6, 2e-5, 1e-4])
@pytest.mark.parametrize(("price", "reading"), [(0.005, 1e-4), (0.01, 2e-4), (0.05, 0.02)])
@pytest.mark.parametrize(("prompt", "answer"), [(400, 50), (4000, 100), (64000, 1000)])
def test_reading_a_long_text_is_paid_for(each: float, price: float, reading: float, prompt: int, answer: int) -> None:
    """By two percent of the time that the target read it in, and beyond by what may be lost; and what is told is so."""
    costs = Costs(RowCosts({rows: price * seconds for rows, seconds in ROWS.items()}), reading=reading)
    copies, text = Slow(each), Text(prompt)
    auto = Auto(costs, Acceptance(Draw.FIXED), Shape(16, 16, 1), Draw.FIXED, free={"suffix": copies})
    controller, elapsed, worst = Probing(auto), 0.0, -math.inf
    granted = EPS * reading * (prompt + answer)
    for n in range(1, answer + 1):
        plan = controller.plan(text, Room(answer - n, 64))
        times = Times(verify=price, other=(spent := copies.spent()), planning=spent)
        controller.observe(step_of(plan, text.position, [], 0, times), times.total)
        text.tokens.append(0)
        elapsed += times.total
        worst = max(worst, elapsed - granted - (n + 1) * price / (1 - EPS))
    assert worst <= 0.0
    assert auto.ledger.overdrawn_ms is not None
    assert 1e3 * worst <= auto.ledger.overdrawn_ms + 0.1 * 1e3 * price
    if each <= EPS * reading:
        assert copies.n_read > prompt, "at once"


def test_a_text_that_is_read_in_parts_is_read_in_the_end() -> None:
    """And by the next answer no part of it again."""
    costs = Costs(RowCosts({rows: 0.01 * seconds for rows, seconds in ROWS.items()}), reading=1e-4)
    copies, text = Slow(2e-5), Text(2000)
    auto = Auto(costs, Acceptance(Draw.FIXED), Shape(16, 16, 1), Draw.FIXED, free={"suffix": copies})
    for n in range(300):
        plan = auto.plan(text, Room(300, 64))
        times = Times(verify=0.01, other=(spent := copies.spent()), planning=spent)
        auto.observe(step_of(plan, n, [], 0, times), times.total)
        text.tokens.append(0)
    assert copies.unread(text) <= 1 + RESTED  # in the red nobody is asked in every pass
    assert costs.copying == pytest.approx(2e-5)


def told(model: str, *passes: tuple[str, int, int]) -> str:
    """Return the verdict on passes of a drafter that drafted so many tokens, of which so many were right; all lose."""
    costs, tally = Costs(RowCosts(ROWS), DraftCosts(0.8)), Tally(model)
    for who, n, kept in passes:
        plan = Plan(who or "plain", n, n)
        times = Times(verify=3.0)
        step = step_of(plan, 0, [0.5] * n, kept, times)
        tally.observe(step, Charge(1.0, times.total))
    return tally.verdict(costs)


def test_the_verdict_blames_who_drafted() -> None:
    plain = [("", 0, 0)] * 8
    copied = [("suffix", 4, 0)] * 2
    assert told("draft-model", *plain, *copied) == "parked: of what was copied from the text 0 % is accepted"
    modelled = told("draft-model", *plain, *copied, ("draft-model", 4, 1))
    assert modelled == "parked: a draft token costs 0.80 of a target pass and 25 % is accepted"
