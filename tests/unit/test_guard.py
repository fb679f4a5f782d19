"""The loss account keeps its bound whatever drafting costs, and does not stand in the way where drafting pays."""

from __future__ import annotations

import random

import pytest

from localspec.control.fixed import Fixed
from localspec.control.guard import EPS, HEAD_START, Guarded
from localspec.control.probe import Probing
from localspec.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.protocols import Room, Shape

PLAIN = 0.010  # seconds of a plain pass
ROOM = Room(depth=100, nodes=100)


class Text:
    """A history that only grows."""

    tokens: tuple[int, ...] = (1,)
    position = 1


def simulate(alpha: float, pass_cost: float, tokens: int, *, noise: float = 0.0, k: int = 4) -> tuple[float, int]:
    """Return the seconds of `tokens` tokens and the number of drafting passes, times being those of a machine model."""
    rng = random.Random(7)
    controller = Probing(Guarded(Fixed("draft-model", Shape(k, k, 1), Draw.IID)))
    elapsed, done, drafting = 0.0, 0, 0
    while done < tokens:
        plan = controller.plan(Text(), ROOM)
        accepted = 0
        while accepted < plan.max_nodes and rng.random() < alpha:
            accepted += 1
        seconds = (pass_cost if plan.max_nodes else PLAIN) * (1 + noise * rng.uniform(-1, 1))
        draft = Draft.of([1] * (plan.max_nodes + 1), range(-1, plan.max_nodes))
        run = (2,) * (accepted + 1)
        sources = (Source.ACCEPTED,) * accepted + (Source.PLAIN,)
        verdict = Verdict(tuple(range(1, accepted + 1)), 2, Source.PLAIN)
        controller.observe(Step(draft, verdict, run, sources, (0,), 1, Times()), seconds)
        elapsed, done, drafting = elapsed + seconds, done + len(run), drafting + (plan.max_nodes > 0)
    return elapsed, drafting


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("pass_cost", [0.011, 0.02, 0.05, 0.2])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.3])
def test_bound(alpha: float, pass_cost: float, noise: float) -> None:
    """elapsed <= (plain + L0) / (1 - eps), the first speculative pass apart.

    The estimate of a plain pass is a median of noisy ones, so noise is allowed to shift it by a tenth of itself.
    """
    for tokens in (50, 500, 5000):
        elapsed, _ = simulate(alpha, pass_cost, tokens, noise=noise)
        first = pass_cost * (1 + noise)
        assert elapsed <= (tokens * PLAIN * (1 + noise / 10) + HEAD_START * PLAIN) / (1 - EPS) + first


def test_a_long_prompt_in_the_draft_is_paid_off() -> None:
    """A first pass of a hundred plain ones: nothing is drafted until the account has recovered."""
    controller = Guarded(Fixed("draft-model", Shape(4, 4, 1), Draw.IID))
    for _ in range(2):  # the first follows no plain pass, and prices nothing
        assert controller.plan(Text(), ROOM).max_nodes == 0
        observe(controller, 0, PLAIN)
    assert controller.plan(Text(), ROOM).max_nodes == 4
    observe(controller, 4, 100 * PLAIN)
    for _ in range(4000):
        assert controller.plan(Text(), ROOM).max_nodes == 0
        observe(controller, 0, PLAIN)


def test_drafts_where_it_pays() -> None:
    """At 80 % acceptance and a pass of 1.4 plain ones nearly every pass drafts, and the speedup is kept."""
    elapsed, drafting = simulate(0.8, 1.4 * PLAIN, 3000, noise=0.2)
    assert drafting > 800
    assert 3000 * PLAIN / elapsed > 2.0


def test_parks_where_it_does_not() -> None:
    """A hostile drafter gets a few passes, then the odd retry; nothing is bet before there is a price."""
    _, drafting = simulate(0.0, 3 * PLAIN, 3000)
    assert drafting < 3000 * EPS
    controller = Guarded(Fixed("draft-model", Shape(4, 4, 1), Draw.IID))
    assert controller.plan(Text(), ROOM).max_nodes == 0
    for n, seconds in ((0, PLAIN), (0, PLAIN), (4, 30 * PLAIN)):
        observe(controller, n, seconds)
    plan = controller.plan(Text(), ROOM)
    assert plan.max_nodes == 0
    assert plan.why.startswith("parked")


def observe(controller: Guarded, n: int, seconds: float) -> None:
    """Tell of a pass that drafted `n` tokens in vain."""
    draft = Draft.of([1] * (n + 1), range(-1, n))
    verdict = Verdict((), 2, Source.PLAIN)
    controller.observe(Step(draft, verdict, (2,), (Source.PLAIN,), (0,), 1, Times()), seconds)
