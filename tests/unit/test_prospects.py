"""What is expected of drafts: the best rate there is, caution where little may be lost, and answers that differ."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.acceptance import Acceptance
from localspec.control.cost import Costs, DraftCosts, RowCosts
from localspec.control.outlook import Outlook
from localspec.control.prospects import PASSES, Prospects
from localspec.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.protocols import Growth
from tests.unit.simulated import believed

LONGEST = 6


def prospects(row: float, token: float = 0.03, outlook: Outlook | None = None) -> Prospects:
    costs = Costs(RowCosts({n: 1.0 + row * (n - 1) for n in range(1, LONGEST + 2)}), DraftCosts(token))
    return Prospects(costs, outlook or Outlook(Acceptance(Draw.IID)))


def growth(belief: float) -> Growth:
    return Growth(believed(belief), 0, 0)


def test_the_best_rate_is_that_of_its_own_policy() -> None:
    """At the value of time that is the best rate, a pass is worth what it costs: 1 + W_0 = value T(1)."""
    for row in (0.02, 0.3, 0.7):
        found = prospects(row)
        rate = found.best_rate(LONGEST)
        found.look(LONGEST, rate)
        assert rate >= 1.0
        assert 1.0 + found.draft(LONGEST, 1e9).gain == pytest.approx(rate, rel=0.02)
    assert prospects(2.0).best_rate(LONGEST) == pytest.approx(1.0)


def test_cheap_rows_make_a_better_rate() -> None:
    rates = [prospects(row).best_rate(LONGEST) for row in (0.02, 0.2, 0.5, 1.0)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 1.5


def test_an_account_that_is_nearly_empty_drafts_what_is_sure_only() -> None:
    found = prospects(0.5)
    found.look(LONGEST, 1.0)
    drawn = {
        room: sum(found.draft(1, room).go_on(growth(belief)) for belief in np.linspace(0.1, 0.98, 23))
        for room in (100.0, 1.0, 0.3, -1.0)
    }
    assert drawn[100.0] > drawn[1.0] > drawn[0.3]
    assert drawn[-1.0] <= drawn[0.3]


def test_what_may_be_lost_bounds_the_draft() -> None:
    found = prospects(0.5)
    found.look(LONGEST, 1.0)
    for room in (0.5, 1.0, 2.0, 3.0):
        k = found.affordable(LONGEST, room)
        assert k == 1 or found.loss(k) <= room
        assert k == LONGEST or found.loss(k + 1) > room
    assert found.affordable(2, 100.0) == 2


def test_costs_are_looked_at_every_few_passes() -> None:
    found = prospects(0.5)
    found.look(LONGEST, 1.0)
    before = found.draft(LONGEST, 1e9).gain
    found.look(LONGEST, 1.3)
    assert found.draft(LONGEST, 1e9).gain == before
    for _ in range(PASSES):
        found.observe(1.0)
    found.look(LONGEST, 1.3)
    assert found.draft(LONGEST, 1e9).gain < before  # time is worth more


def test_an_answer_that_goes_badly_is_believed_less_and_the_next_begins_anew() -> None:
    acceptance = Acceptance(Draw.IID)
    outlook = Outlook(acceptance)
    before = outlook.chance(0.9)
    for _ in range(20):
        outlook.judge(0.9, is_accepted=False)
    assert outlook.chance(0.9) < before - 0.1
    assert outlook.chance(0.9) < outlook.chance(0.99)
    assert Outlook(acceptance).chance(0.9) == before


def test_looks_are_weighed_by_what_this_answer_showed() -> None:
    outlook = Outlook(Acceptance(Draw.IID))
    outlook.see([0.95] * 200)
    weights = outlook.weights()
    assert weights.sum() == pytest.approx(1.0)
    assert weights[9] > 0.9


def test_a_trial_draws_one_token_whatever_it_is_worth_and_says_what_it_saw() -> None:
    outlook = Outlook(Acceptance(Draw.IID))
    found = prospects(5.0, outlook=outlook)
    found.look(LONGEST, 1.0)
    assert not found.draft(1, 1.0).go_on(growth(0.5))
    trial = found.trial()
    assert trial.go_on(growth(0.55))
    assert not trial.look_on(1, 0.55)
    draft = Draft.of([0, 0], [-1, 0], shares=[1.0, 0.55])
    before = outlook.chance(0.55), outlook.weights()[5]
    trial.observe(
        Step(draft, Verdict((1,), 0, Source.BONUS), (0, 0), (Source.ACCEPTED, Source.BONUS), (0, 1), 1, Times())
    )
    assert outlook.chance(0.55) > before[0]
    assert outlook.weights()[5] > before[1]


def test_what_is_told_of_a_pass_is_about_the_draft_that_was_made() -> None:
    found = prospects(0.5, token=0.1)
    found.look(LONGEST, 1.0)
    growing = found.draft(2, 1e9)
    growing.go_on(growth(0.9))
    tokens, seconds = growing.expects(Draft.of([0, 0], [-1, 0], shares=[1.0, 0.9]))
    assert 1.5 < tokens < 2.0
    assert seconds == pytest.approx(1.5 + 0.1)
