"""Plans of an answer that others join and leave: drafts end where rows are dear, and come back once it is alone."""

import pytest

from localspec.control.company import Beside, Company
from localspec.engine.draft import Times
from localspec.engine.protocols import DraftBudget
from tests.control.simulated import World, drafted, step_of
from tests.control.test_auto import LONGEST, MACHINES, Text, controller

SPAN = 300  # passes
COMPANY = (0, 3, 0)  # others in each span


def drafting(name: str, company: tuple[int, ...], mean: float = 0.85) -> list[float]:
    machine, world, others = MACHINES[name], World(mean, 3), [0]
    auto = controller(machine)
    planner = Company(auto, Beside(auto, lambda: others[0]), lambda: others[0])
    text, position, shares = Text(), 0, []
    for n_others in company:
        others[0], n_drafting = n_others, 0
        for _ in range(SPAN):
            plan = planner.plan(text, DraftBudget(LONGEST, 64))
            beliefs, n_run = drafted(plan, world, position)
            kept = world.accepted(position, len(beliefs)) if beliefs else 0
            verify = machine.target(plan.width(len(beliefs))) + (machine.target(1 + n_others) if n_others else 0.0)
            times = Times(draft=machine.draft * n_run, verify=verify)
            planner.observe(step_of(plan, position, beliefs, kept, times), times.total)
            n_drafting += bool(beliefs)
            position += kept + 1
            text.tokens, text.position = [0] * (position % 7 + 1), position
        shares.append(n_drafting / SPAN)
    assert auto.account.overdrawn <= 1e-9, "time that others took is nobody's loss"
    assert auto._prices.plain == machine.target(1), "nor a price"
    return shares


@pytest.mark.parametrize("name", ["few cores", "rows by four", "dear rows"])
def test_where_rows_are_dear_drafts_end_beside_others(name: str) -> None:
    alone, beside, again = drafting(name, COMPANY)
    assert beside == 0.0
    assert (alone > 0.5) == (again > 0.5) == (name != "dear rows")


def test_where_rows_are_nearly_free_drafts_go_on_beside_another_answer() -> None:
    """They take a pass of their own, in which the other one could have written one token."""
    assert min(drafting("memory bound", (0, 1, 0))) > 0.8


def test_the_more_others_there_are_the_more_a_draft_must_bring() -> None:
    shares = [drafting("rows by four", (0, n))[1] for n in range(4)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5 > shares[-1]
