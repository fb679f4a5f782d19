"""A draft model that reads on while a target elsewhere judges: the planner knows that what is ready costs nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import pytest

from localspec.control.auto import Auto
from localspec.control.candidates import Chains
from localspec.control.prices import Prices
from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Draw, Times
from localspec.engine.protocols import DraftBudget, Shape
from localspec.tuning import SIZES
from tests.control.simulated import TOKENS, World, drafted, step_of
from tests.control.test_auto import LONGEST, Text


@dataclass
class Edge:
    """Seconds of a drafted token and of the way; a pass of the verifier takes 36 ms, and 8 more a row.

    `ready` are the tokens that take no pass of the draft model now.
    """

    draft: float
    way: float
    reads_on: bool
    ready_n: int = 0

    def round(self, rows: int) -> float:
        return self.way + 0.036 + 0.008 * (rows - 1)

    def behind(self, history: object) -> int:
        return 0 if self.ready_n else 1

    def ready(self, history: object) -> int:
        return self.ready_n

    def tokens_left(self, history: object) -> int:
        return 10_000

    def drafting(self, n: int) -> float:
        """Return the seconds of drafting `n` tokens."""
        return self.draft * max(n - self.ready_n, 0)

    def judged(self, world: World, position: int, k: int, kept: int) -> int:
        """Note what was ready when the verdict came, and return the position of the next pending token."""
        passes = int(self.round(1 + k) / self.draft) - (k > 0)  # the first reads the last drafted token
        is_right = kept == k and world.rng.random() < world.chance[position + k]
        self.ready_n = min(passes, LONGEST) if self.reads_on and is_right else 0
        return position + kept + 1


def fixed_rate(edge: Edge, world: World, k: int) -> float:
    """Return tokens a second of drafts of `k` tokens."""
    position, seconds, edge.ready_n = 0, 0.0, 0
    while position < TOKENS:
        seconds += edge.drafting(k) + edge.round(1 + k)
        position = edge.judged(world, position, k, world.accepted(position, k))
    return position / seconds


def run(edge: Edge, world: World, auto: Auto) -> Iterator[tuple[int, float]]:
    text, position, seconds, edge.ready_n = Text(), 0, 0.0, 0
    while position < TOKENS:
        plan = auto.plan(text, DraftBudget(LONGEST, 64))
        beliefs, n_run = drafted(plan, world, position)
        k = len(beliefs)
        kept = world.accepted(position, k) if k else 0
        times = Times(draft=edge.drafting(n_run), verify=edge.round(1 + k))
        step = step_of(plan, position, beliefs, kept, times)
        auto.observe(step, times.total)
        position, seconds = edge.judged(world, position, k, kept), seconds + times.total
        text.tokens, text.position = [0] * (position % 7 + 1), position
        yield position, seconds


def planner(edge: Edge) -> tuple[Auto, Prices]:
    prices = Prices({rows: edge.round(rows) for rows in SIZES if rows <= 17}, edge.draft)
    shape = Shape(LONGEST, LONGEST, 1)
    chains = Chains("draft-model", prices, Acceptance(Draw.IID), shape, Draw.IID, edge)
    return Auto(prices, [chains], "draft-model"), prices


def rate(edge: Edge, mean: float, seed: int = 1) -> float:
    *_, (tokens, seconds) = run(edge, World(mean, seed), planner(edge)[0])
    return tokens / seconds


@pytest.mark.parametrize(
    ("draft", "way", "mean", "gain"),
    [(0.025, 0.05, 0.85, 1.25), (0.025, 0.1, 0.6, 1.05), (0.006, 0.05, 0.85, 1.06), (0.025, 0.005, 0.6, 0.98)],
)
def test_it_is_as_fast_as_the_best_fixed_length(draft: float, way: float, mean: float, gain: float) -> None:
    """With and without reading on, of drafts that read on as well; with it by so much faster than without."""
    found = {}
    for reads_on in (False, True):
        edge = Edge(draft, way, reads_on)
        best = max(fixed_rate(edge, World(mean, 1), k) for k in (0, 1, 2, 3, 5, 8))
        found[reads_on] = rate(edge, mean)
        assert found[reads_on] >= 0.98 * best
    assert found[True] >= gain * found[False]


def test_what_is_ready_is_no_part_of_a_tokens_price() -> None:
    edge = Edge(0.025, 0.1, reads_on=True)
    auto, prices = planner(edge)
    steps = takewhile(lambda at: at[0] < 600, run(edge, World(0.85, 1), auto))
    assert sum(edge.ready_n > 0 for _ in steps) > 20
    assert prices.draft.value == pytest.approx(0.025)
