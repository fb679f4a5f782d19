"""The controller in a simulated world (ALG 4.6): whatever a pass costs and however often drafts are right, it is at
least as fast as the best fixed length and as plain decoding, to two percent.

Positions have their own chance of acceptance, the same for every policy; a draft knows it up to noise. Costs are in
plain passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from localspec.acceptance import Acceptance
from localspec.control.account import EPS, HEAD_START
from localspec.control.auto import Auto
from localspec.control.cost import SIZES, Costs, DraftCosts, RowCosts
from localspec.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.law import Law
from localspec.protocols import Growth, Plan, Room, Shape

TOKENS = 6000
LONGEST = 10


@dataclass(frozen=True)
class Machine:
    """Seconds of a target pass by rows, and of a draft token."""

    target: Callable[[int], float]
    draft: float


def staircase(rows: int) -> float:
    """A quantised model on a GPU: another kernel from nine rows on."""
    return 1.0 + 0.02 * (rows - 1) if rows <= 8 else 2.2 + 0.02 * (rows - 9)


def by_four(rows: int) -> float:
    """Weights packed for four rows at a time: four cost less than two."""
    fours, left = divmod(rows, 4)
    return 0.15 + 0.9 * fours + (0.33 * left if fours else (0.0, 0.85, 1.2, 1.45)[left])


MACHINES = {
    "staircase": Machine(staircase, 0.06),
    "few cores": Machine(lambda rows: 1.0 + 0.35 * (rows - 1), 0.12),
    "rows by four": Machine(by_four, 0.2),
    "memory bound": Machine(lambda rows: 1.0 + 0.01 * (rows - 1), 0.05),
    "experts": Machine(lambda rows: 1.0 + 0.32 * (1 - 0.8 ** (rows - 1)) / 0.2 * 0.4, 0.10),
    "slow draft": Machine(lambda rows: 1.0 + 0.01 * (rows - 1), 0.40),
    "dear rows": Machine(lambda rows: float(rows), 0.3),
}
TEXTS = {"0.85": 0.85, "0.60": 0.60, "0.25": 0.25, "0.05": 0.05, "mixed": None}


class World:
    """A text whose positions are more or less predictable; `mean` None changes regime six times."""

    def __init__(self, mean: float | None, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n = TOKENS + 64
        means = (
            np.full(n, mean) if mean is not None else np.repeat([0.85, 0.05, 0.6, 0.05, 0.85, 0.25, 0.6], n // 6)[:n]
        )
        self.chance = rng.beta(4 * means + 1e-3, 4 * (1 - means) + 1e-3)
        self.belief = np.clip(self.chance + rng.normal(0, 0.12, n), 0.02, 0.98)
        self.rng = rng

    def accepted(self, position: int, k: int) -> int:
        """Return how many of `k` drafted tokens are right."""
        coins = self.rng.random(k) < self.chance[position : position + k]
        return k if coins.all() else int(coins.argmin())


class Text:
    """The history that the controller sees: its length alone."""

    def __init__(self) -> None:
        self.tokens = [0]
        self.position = 1


def fixed_rate(machine: Machine, mean: float | None, k: int, seed: int) -> float:
    """Return tokens per second of drafts of `k` tokens."""
    world, position, seconds = World(mean, seed), 0, 0.0
    while position < TOKENS:
        position += world.accepted(position, k) + 1
        seconds += machine.target(1 + k) + machine.draft * k
    return position / seconds


def believed(belief: float) -> Law:
    """Return a law at temperature 0 whose token the draft gives this probability."""
    others = np.full(9, (1.0 - belief) / 9)
    untempered = Law(np.arange(10, dtype=np.int32), np.array([belief, *others]))
    return Law(np.zeros(1, np.int32), np.ones(1), untempered)


def drafted(plan: Plan, world: World, position: int) -> tuple[list[float], int]:
    """Return what the draft thinks of the tokens it drafts within the plan, and how often it was run for that."""
    beliefs: list[float] = []
    while (k := len(beliefs)) < min(plan.max_nodes, plan.max_depth):
        if k > 0 and not plan.look_on(k, beliefs[-1]):
            return beliefs, k
        law = believed(float(world.belief[position + k]))
        if not plan.go_on(Growth(law, k, k, beliefs[-1] if beliefs else 1.0)):
            return beliefs, k + 1
        beliefs.append(float(world.belief[position + k]))
    return beliefs, len(beliefs)


def run(machine: Machine, world: World, auto: Auto) -> Iterator[tuple[int, float]]:
    """Yield tokens and seconds after every pass."""
    text, position, seconds = Text(), 0, 0.0
    while position < TOKENS:
        plan = auto.plan(text, Room(LONGEST, 64))
        beliefs, n_run = drafted(plan, world, position)
        k = len(beliefs)
        kept = world.accepted(position, k) if k else 0
        rows = plan.width(k)
        draft = Draft.of([0] * (k + 1), range(-1, k), draw=Draw.IID, shares=[1.0, *beliefs]).padded(rows)
        sources = (Source.ACCEPTED,) * kept + (Source.CORRECTED if kept < k else Source.BONUS,)
        verdict = Verdict(tuple(range(1, kept + 1)), 0, sources[-1])
        times = Times(draft=machine.draft * n_run, verify=machine.target(rows))
        kept_nodes = (0, *verdict.path)
        asked = plan.drafter if plan.max_nodes else ""
        step = Step(draft, verdict, (0,) * (kept + 1), sources, kept_nodes, position, times, drafter=asked)
        auto.observe(step, times.total)
        position, seconds = position + kept + 1, seconds + times.total
        text.tokens = [0] * (position % 7 + 1)
        text.position = position
        yield position, seconds


def controller(machine: Machine) -> Auto:
    target = RowCosts({rows: machine.target(rows) for rows in SIZES if rows <= 17})
    costs = Costs(target, DraftCosts(machine.draft))
    return Auto(costs, Acceptance(Draw.IID), Shape(LONGEST, LONGEST, 1), Draw.IID, name="draft-model")


@pytest.mark.parametrize("mean", TEXTS)
@pytest.mark.parametrize("name", MACHINES)
def test_it_is_as_fast_as_the_best_fixed_length_and_as_plain_decoding(name: str, mean: str) -> None:
    machine, chance = MACHINES[name], TEXTS[mean]
    for seed in range(2):
        best = max(fixed_rate(machine, chance, k, seed) for k in (0, 1, 2, 3, 4, 6, 8, 10))
        *_, (tokens, seconds) = run(machine, World(chance, seed), controller(machine))
        assert tokens / seconds >= 0.98 * best, f"{tokens / seconds:.3f} against {best:.3f}"
        assert tokens / seconds >= 0.98


@pytest.mark.parametrize("mean", TEXTS)
@pytest.mark.parametrize("name", MACHINES)
def test_the_account_holds_after_every_pass(name: str, mean: str) -> None:
    """Elapsed <= (plain + L0) / (1 - eps), one pass of plain decoding being one second a token."""
    machine = MACHINES[name]
    auto = controller(machine)
    for tokens, seconds in run(machine, World(TEXTS[mean], 7), auto):
        assert seconds <= (tokens + HEAD_START) / (1 - EPS) + 1e-9
    assert auto.ledger.overdrawn_ms is not None
    assert auto.ledger.overdrawn_ms <= 1e-9
