"""Passes that draft nothing where four rows cost less than one, in a simulated world. Costs are in plain passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localspec.acceptance import Acceptance
from localspec.control.auto import Auto
from localspec.control.cost import Costs, DraftCosts, RowCosts
from localspec.control.fixed import Fixed
from localspec.control.guard import Guarded
from localspec.control.idle import STALE, TOLD, Idle
from localspec.control.ledger import Ledger
from localspec.control.probe import Probing
from localspec.draft import Draw, Step, Times
from localspec.protocols import Controller, Plan, Room, Shape
from tests.unit.simulated import step_of

ROOM = Room(16, 64)
BY_FOUR = {1: 1.0, 2: 1.3, 3: 1.4, 4: 0.9, 8: 1.7}
DEAR = 1e4  # of a draft token


class Text:
    """A history of one length."""

    tokens = (0,)
    position = 1


def passed(plan: Plan, seconds: float) -> Step:
    """Return a pass of `plan` that drafted nothing."""
    return step_of(plan, 1, [], 0, Times(verify=seconds))


def automatic(table: dict[int, float], **options: bool) -> Auto:
    """Return the controller of a pair whose draft costs more than any draft is worth."""
    costs = Costs(RowCosts(table), DraftCosts(DEAR))
    return Auto(costs, Acceptance(Draw.IID), Shape(4, 4, 1), Draw.IID, name="draft-model", **options)


def guarded(table: dict[int, float]) -> Guarded:
    """Return fixed drafts, none of which can be afforded."""
    return Guarded(Fixed("draft-model", Shape(4, 4, 1), Draw.IID), Costs(RowCosts(table), DraftCosts(DEAR)))


def rate(controller: Controller, target: Callable[[int, int], float], tokens: int = 2000) -> float:
    """Return tokens a second; a pass of so many rows after so many tokens costs `target`."""
    seconds = 0.0
    for n in range(tokens):
        plan = controller.plan(Text(), ROOM)
        assert plan.max_nodes == 0
        cost = target(plan.width(0), n)
        controller.observe(passed(plan, cost), cost)
        seconds += cost
    return tokens / seconds


@pytest.mark.parametrize("build", [automatic, guarded])
def test_parked_passes_take_the_width_that_costs_least(build: Callable[[dict[int, float]], Controller]) -> None:
    assert rate(build(BY_FOUR), lambda rows, _: BY_FOUR[rows]) > 1.09
    assert rate(Probing(build(BY_FOUR)), lambda rows, _: BY_FOUR[rows]) > 1.09
    controller = build(BY_FOUR)
    rate(controller, lambda rows, _: BY_FOUR[rows])
    if isinstance(controller, Auto):
        assert controller.verdict().endswith("; wider passes cost less than those of one row: 1.10x in all")
    assert rate(build({1: 1.0, 4: 1.2}), lambda rows, _: {1: 1.0, 4: 1.2}[rows]) == pytest.approx(1.0)


def test_what_cannot_be_taken_back_is_not_added() -> None:
    assert rate(automatic(BY_FOUR, can_pad=False), lambda rows, _: BY_FOUR[rows]) == pytest.approx(1.0)


def test_four_rows_that_grow_dearer_with_the_context_are_left_again() -> None:
    """They would seem to be cheap for ever if one row were never measured again: all widths drift together."""

    def target(rows: int, n: int) -> float:
        return 1.0 if rows == 1 else 0.9 + 0.0004 * n  # at 250 tokens as dear as one row, at 2000 by 70 percent dearer

    controller = automatic(BY_FOUR)
    assert rate(controller, target) > 0.98
    assert controller.plan(Text(), ROOM).is_plain


def test_the_width_that_is_not_used_is_tried_by_two_passes_in_a_row() -> None:
    """Only the second counts: the first pays for the change. Both ways round, and never where it is clearly dearer."""
    for four, rows in ((0.9, [4, 1]), (1.05, [1, 4]), (1.2, [1, 1])):
        costs = Costs(RowCosts({1: 1.0, 4: four}))
        ledger = Ledger(costs)
        idle = Idle(costs, ledger)
        plans = []
        for _ in range(2 * STALE + 4):
            plans.append(idle.plan("draft-model", 64, "parked"))
            seconds = 1.0 if plans[-1].is_plain else four
            ledger.observe(passed(plans[-1], seconds), seconds)
        trial = {STALE, STALE + 1, 2 * STALE + 2, 2 * STALE + 3}
        assert [plan.width(0) for plan in plans] == [rows[i in trial] for i in range(2 * STALE + 4)]
        if rows == [4, 1]:
            assert [i for i, plan in enumerate(plans) if plan.is_probe] == [STALE + 1, 2 * STALE + 3]
            assert plans[0].why == "parked; 4 rows, which cost less than one"


def test_four_rows_that_become_cheap_are_found() -> None:
    """They were measured while something else ran: one look at them every so often is enough."""
    assert rate(automatic({1: 1.0, 4: 1.05}), lambda rows, _: {1: 1.0, 4: 0.85}[rows]) > 1.1


def test_where_passes_are_plain_anyway_some_are_told() -> None:
    ledger = Ledger(Costs(RowCosts({1: 1.0, 4: 1.2})))
    idle = Idle(Costs(RowCosts({1: 1.0, 4: 1.2})), ledger)
    told = []
    for n in range(4 * TOLD):
        plan = idle.plan("draft-model", 64, "parked")
        ledger.observe(passed(plan, 1.0), 1.0)
        told += [n] * plan.is_probe
    assert told == [TOLD, 2 * TOLD, 3 * TOLD]
