"""A simulated text for the controller, and passes over it that no model makes.

Positions have their own chance of acceptance, the same for every policy; a draft knows it up to noise.
"""

import numpy as np

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.engine.protocols import DraftState, Plan

TOKENS = 6000


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


def believed(belief: float) -> Distribution:
    """Return a distribution at temperature 0 whose token the draft gives this probability."""
    others = np.full(9, (1.0 - belief) / 9)
    untempered = Distribution(np.arange(10, dtype=np.int32), np.array([belief, *others]))
    return Distribution(np.zeros(1, np.int32), np.ones(1), untempered)


def drafted(plan: Plan, world: World, position: int) -> tuple[list[float], int]:
    """Return what the draft thinks of the tokens it drafts within the plan, and how often it was run for that."""
    beliefs: list[float] = []
    while (k := len(beliefs)) < min(plan.max_nodes, plan.max_depth):
        if k > 0 and not plan.look_on(k, beliefs[-1]):
            return beliefs, k
        dist = believed(float(world.belief[position + k]))
        if not plan.go_on(DraftState(dist, k, k, beliefs[-1] if beliefs else 1.0)):
            return beliefs, k + 1
        beliefs.append(float(world.belief[position + k]))
    return beliefs, len(beliefs)


def step_of(plan: Plan, position: int, beliefs: list[float], kept: int, times: Times) -> Step:
    """Return the pass of `plan` that drafted tokens believed in so much, of which `kept` were right."""
    k = len(beliefs)
    draft = Draft.of([0] * (k + 1), range(-1, k), draw=Draw.IID, shares=[1.0, *beliefs]).padded(plan.width(k))
    sources = (Source.ACCEPTED,) * kept + (Source.CORRECTED if kept < k else Source.BONUS,)
    verdict = Verdict(tuple(range(1, kept + 1)), 0, sources[-1])
    run, kept_nodes = (0,) * (kept + 1), (0, *verdict.path)
    return Step(draft, verdict, run, sources, kept_nodes, position, times, plan)
