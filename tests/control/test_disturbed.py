"""The planner where something goes wrong: a pass that another program held up."""

from statistics import median

import numpy as np
import pytest

from localspec.control.auto import Auto
from localspec.control.candidates import Chains
from localspec.control.prices import Prices
from localspec.control.schedule import Probing
from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Draw, Times
from localspec.engine.protocols import DraftBudget, Shape
from tests.control.simulated import World, drafted, step_of

ROWS = {1: 1.0, 2: 1.35, 3: 1.7, 4: 1.9, 5: 2.2, 6: 2.5, 7: 2.8, 8: 3.0, 9: 3.3, 12: 4.2, 16: 5.3}


class Text:
    """The history that the controller sees: its length alone."""

    def __init__(self, length: int) -> None:
        self.tokens = [0] * length

    @property
    def position(self) -> int:
        return len(self.tokens)


def disturbed(seed: int, stalled: int, acceptance: float, draft: float) -> float:
    """Return the speed of 512 tokens, over plain decoding's; pass `stalled` takes three times as long.

    A pass scatters by two percent; the stall itself is left out, as plain decoding would have had it too.
    """
    prices = Prices(ROWS, draft)
    chains = Chains("draft-model", prices, Acceptance(Draw.IID), Shape(16, 16, 1), Draw.IID)
    controller = Probing(Auto(prices, [chains], "draft-model"))
    world, rng = World(acceptance, seed), np.random.default_rng(seed)
    position, passes, seconds, tokens = 0, 0, 0.0, 512
    while position < tokens:
        plan = controller.plan(Text(position), DraftBudget(tokens - position, 64))
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


@pytest.mark.parametrize("stalled", [1, 65])
@pytest.mark.parametrize(("acceptance", "draft"), [(0.5, 0.3), (0.3, 0.1)])
def test_one_interrupted_plain_pass_makes_no_answer_slower(stalled: int, acceptance: float, draft: float) -> None:
    """Every draft is credited with the price of a plain pass: too high, it made drafts that lose look like gains."""
    assert median(disturbed(seed, stalled, acceptance, draft) for seed in range(7)) >= 0.975
