"""Coupled decoding: one noise, one text, whatever drafts; and the noise is what it claims to be.

Enumeration cannot reach a race (too many orderings), so the proof has two halves. Over 10 000 noise tables the text
is that of plain decoding with the same noise, for every kind of draft; and the first arrival of a race has exactly
the distribution it races on, each position's noise being fresh and used once on the way that the text takes.

Statistical tests have fixed seeds, so a pass is reproducible. Their level is 1e-6: the chance that a right
implementation had to be given another seed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw, Step, Verdict
from localspec.engine.protocols import (
    Controller,
    Distributions,
    DraftBudget,
    Drafter,
    History,
    Plan,
    RandomSource,
    Rows,
    Verifier,
)
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.settings.request import Sampling
from localspec.trees.chain_with_siblings import ChainWithSiblings
from localspec.trees.static import Static
from localspec.verify.coupled import CoupledVerifier
from tests.exact.harness import OPEN, PROMPT, Answer, Setup, Table, build

TABLES = 625  # noise tables of one block
BLOCKS = 16
V, EOG, LENGTH = 4, 3, 4
SAMPLING = Sampling(temperature=1.5, top_k=3, top_p=1.0, min_p=0.0)
Z = 4.753  # the normal quantile of 1 - 1e-6
SETUP = Setup(
    CoupledVerifier(), draw=Draw.COUPLED, sampling=SAMPLING, n_vocab=V, eog=frozenset({EOG}), max_tokens=LENGTH, seed=21
)


def generate(setup: Setup, rng: RandomSource) -> list[Step]:
    """Return the passes of one generation."""
    engine, context = build(setup, *tables(setup), rng)
    return list(engine.generate(context))


def answer(steps: list[Step]) -> Answer:
    return tuple(token for step in steps for token in step.tokens)


@cache
def shared_tables() -> tuple[Table, Table]:
    """Return the rows of the common pair, computed once for all tests."""
    return SETUP.tables()


def tables(setup: Setup) -> tuple[Table, Table]:
    return shared_tables() if (setup.seed, setup.distance) == (SETUP.seed, SETUP.distance) else setup.tables()


@cache
def plain_text(seed: int) -> Answer:
    """Decode plainly by hand: at each position the winner of the race on the target's distribution, until the end."""
    rng, sampler, (target, _) = SeededRandom(seed), Sampler(SAMPLING), shared_tables()
    text = PROMPT
    while len(text) < len(PROMPT) + LENGTH and (text == PROMPT or text[-1] != EOG):
        text += (rng.gumbel_top_k(len(text), sampler.dist(target(text), text))[0],)
    return text[len(PROMPT) :]


class Scripted:
    """A drafter that guesses with `guess(target, text so far, rng)`, `width` times a node, `depth` deep."""

    def __init__(self, target: Table, guess: Callable[[Table, Answer, RandomSource], int], width: int = 1) -> None:
        self._target = target
        self._guess = guess
        self._width = width

    def begin(self, history: History) -> None:
        pass

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        texts, parents = [tuple(history.tokens)], [-1]
        level = [0]
        for _ in range(plan.max_depth):
            below = []
            for node in level:
                for _ in range(min(self._width, plan.max_nodes + 1 - len(texts))):
                    below.append(len(texts))
                    parents.append(node)
                    texts.append((*texts[node], self._guess(self._target, texts[node], rng)))
            level = below
        return Draft.of([text[-1] for text in texts], parents)

    def observe(self, step: Step, rows: Rows) -> None:
        pass


def oracle(target: Table, text: Answer, rng: RandomSource) -> int:
    """Look at the noise that the target will use, and at the target."""
    return rng.gumbel_top_k(len(text), Sampler(SAMPLING).dist(target(text), text))[0]


def mostly_oracle(target: Table, text: Answer, rng: RandomSource) -> int:
    return oracle(target, text, rng) if rng.bernoulli(0.7) else 0


def anything(target: Table, text: Answer, rng: RandomSource) -> int:
    return rng.categorical(Distribution(np.arange(V, dtype=np.int32), np.full(V, 1 / V)))


def always_wrong(target: Table, text: Answer, rng: RandomSource) -> int:
    return (oracle(target, text, rng) + 1) % V


def always_eog(target: Table, text: Answer, rng: RandomSource) -> int:
    return EOG


class Widening:
    """Another controller's plans, in which a sibling of any promise is worth its row."""

    def __init__(self, inner: Controller) -> None:
        self._inner = inner

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        return replace(self._inner.plan(history, budget), widen=lambda n_nodes, expected_gain: True)

    def observe(self, step: Step, seconds: float) -> None:
        self._inner.observe(step, seconds)


def scripted(guess: Callable[[Table, Answer, RandomSource], int], width: int = 1) -> Callable[[Table], Drafter]:
    return lambda target: Scripted(target, guess, width)


KINDS: dict[str, Setup] = {
    **{f"chain {k}": replace(SETUP, nodes=k, depth=k) for k in range(5)},
    "tree 2,1": replace(SETUP, policy=Static((2, 1)), nodes=4, depth=2),
    "tree 3,2": replace(SETUP, policy=Static((3, 2)), nodes=9, depth=2),
    "chain with siblings": replace(SETUP, policy=ChainWithSiblings(), nodes=5, depth=2, controller=Widening),
    "clear leads only": replace(SETUP, nodes=3, depth=3, go_on=lambda state: state.share > 0.6),
    "drawn chain": replace(SETUP, draw=Draw.IID, nodes=3, depth=3),
    "drawn tree": replace(SETUP, policy=Static((2, 2)), draw=Draw.WITHOUT_REPLACEMENT, nodes=6, depth=2),
    "greedy chain": replace(SETUP, draw=Draw.FIXED, draft_temperature=0.0, nodes=3, depth=3),
    "oracle": replace(SETUP, drafter=scripted(oracle), nodes=3, depth=3),
    "oracle, 7 in 10": replace(SETUP, drafter=scripted(mostly_oracle), nodes=3, depth=3),
    "random chain": replace(SETUP, drafter=scripted(anything), nodes=3, depth=3),
    "random tree": replace(SETUP, drafter=scripted(anything, width=2), nodes=6, depth=2),
    "always wrong": replace(SETUP, drafter=scripted(always_wrong), nodes=3, depth=3),
    "always the end": replace(SETUP, drafter=scripted(always_eog), nodes=3, depth=3),
}


@pytest.mark.slow
@pytest.mark.thinned(BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_text_is_that_of_plain_decoding(kind: str, block: int) -> None:
    """For each of 10 000 noise tables, plain decoding and this kind of draft give the same tokens."""
    for seed in range(TABLES * block, TABLES * (block + 1)):
        assert answer(generate(KINDS[kind], SeededRandom(seed))) == plain_text(seed)


def test_filters_and_penalties_change_nothing() -> None:
    """The same under every filter at once and penalties that see the drafted tokens, on chains and on trees."""
    sampling = Sampling(0.9, 3, 0.98, 0.01, 0.97, 1.25, 0.5, 0.25, 3, logit_bias=((EOG, -1.0),))
    for seed in range(500):
        plain, *others = (
            answer(generate(replace(KINDS[kind], sampling=sampling), SeededRandom(seed)))
            for kind in ("chain 0", "chain 3", "tree 2,1", "drawn tree", "random tree")
        )
        assert others == [plain] * 4


def test_the_texts_differ() -> None:
    """The noise tables really are different, and answers of every length occur, so equality means something."""
    texts = {plain_text(seed) for seed in range(TABLES)}
    assert len(texts) > 30
    assert {len(text) for text in texts} == set(range(1, LENGTH + 1))


def test_drafts_are_accepted_and_rejected() -> None:
    """Both happen often for a draft model, always the one for the oracle, always the other for its opposite."""

    def share(kind: str) -> float:
        steps = [step for seed in range(300) for step in generate(KINDS[kind], SeededRandom(seed))]
        tested = [step for step in steps if step.draft.depth and len(step.tokens) > len(step.verdict.path)]
        return sum(bool(step.verdict.path) for step in tested) / len(tested)

    assert 0.2 < share("chain 3") < 0.9
    assert share("chain with siblings") > share("chain 2")
    assert share("oracle") == 1.0
    assert share("always wrong") == 0.0


def test_a_perfect_draft_is_always_accepted() -> None:
    """q == p with the same noise: drafter and target win the same races."""
    setup = replace(KINDS["chain 3"], distance=0.0, eog=frozenset(), max_tokens=9)
    for seed in range(200):
        steps = generate(setup, SeededRandom(seed))
        assert [len(step.tokens) for step in steps] == [1, 4, 4]


def test_a_clear_lead_is_overturned_less_often() -> None:
    """The draft sees by how much its token leads the race: of clear leads the target takes many, of narrow ones few."""

    def accepted(low: float, high: float) -> float:
        setup = replace(KINDS["chain 1"], go_on=lambda state: low < state.share <= high)
        steps = [step for seed in range(1000) for step in generate(setup, SeededRandom(seed))]
        drafted = [step for step in steps if len(step.draft)]
        assert len(drafted) > 100
        return sum(bool(step.verdict.path) for step in drafted) / len(drafted)

    assert accepted(0.0, 0.5) + 0.15 < accepted(0.5, 0.8) < accepted(0.8, 1.0) - 0.15


@dataclass
class Watched:
    """The shipped random source with the positions of the target's own races written down."""

    inner: SeededRandom
    is_target: bool = False

    def __post_init__(self) -> None:
        self.raced: list[int] = []

    def bernoulli(self, a: float) -> bool:
        return self.inner.bernoulli(a)

    def categorical(self, dist: Distribution) -> int:
        assert not self.is_target, "a coupled target draws nothing but races"
        return self.inner.categorical(dist)

    def gumbel_top_k(self, position: int, dist: Distribution, k: int = 1) -> list[int]:
        if self.is_target:
            self.raced.append(position)
        return self.inner.gumbel_top_k(position, dist, k)

    def gumbel_top_k_margins(self, position: int, dist: Distribution, k: int = 1) -> list[tuple[int, float]]:
        assert not self.is_target, "who won is all that a target asks"
        return self.inner.gumbel_top_k_margins(position, dist, k)


@dataclass(frozen=True)
class Watching:
    """A verifier that tells the random source when the target is the one who races."""

    inner: Verifier
    accepts = frozenset(Draw)
    trees = True

    def verify(self, draft: Draft, dists: Distributions, rng: Watched, position: int) -> Verdict:
        rng.is_target = True
        verdict = self.inner.verify(draft, dists, rng, position)
        rng.is_target = False
        return verdict


@pytest.mark.parametrize("kind", KINDS)
def test_each_position_is_raced_once(kind: str) -> None:
    """The target races exactly once for every committed position, in order: no noise is skipped or used again."""
    setup = replace(KINDS[kind], verifier=Watching(CoupledVerifier()))
    for seed in range(300):
        rng = Watched(SeededRandom(seed))
        n = len(answer(generate(setup, rng)))
        assert rng.raced[:n] == list(range(len(PROMPT), len(PROMPT) + n))
        assert len(set(rng.raced)) == len(rng.raced)  # also beyond the end, where a run was cut


@dataclass(frozen=True)
class Misplaced(CoupledVerifier):
    """Coupled, but every level of a pass races with the noise of its first position."""

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        class Stuck:
            def gumbel_top_k(self, _: int, dist: Distribution, k: int = 1) -> list[int]:
                return rng.gumbel_top_k(position, dist, k)

        return super().verify(draft, dists, Stuck(), position)


def test_reused_noise_is_noticed() -> None:
    """Negative control: a walk that reuses one position's noise gives other texts than plain decoding."""
    setup = replace(KINDS["oracle"], verifier=Misplaced())
    assert any(answer(generate(setup, SeededRandom(seed))) != plain_text(seed) for seed in range(200))


def critical(df: int) -> float:
    """Return the chi-square value exceeded with probability 1e-6 (Wilson and Hilferty's cube-root approximation)."""
    spread = 2.0 / (9.0 * df)
    return df * (1.0 - spread + Z * math.sqrt(spread)) ** 3


def chi_square(counts: dict, dist: dict) -> float:
    """Return Pearson's statistic of `counts` against the cell probabilities `dist`."""
    assert counts.keys() <= dist.keys()
    n = sum(counts.values())
    assert min(dist.values()) * n >= 10, "too few expected in a cell for the approximation"
    return sum((counts.get(cell, 0) - n * p) ** 2 / (n * p) for cell, p in dist.items())


def test_critical_values() -> None:
    """The approximation is a little above the true quantile, so the level is at most the one claimed."""
    for df, exact in ((4, 33.377), (8, 42.701), (15, 56.493), (23, 70.550), (100, 182.127)):
        assert exact < critical(df) < 1.06 * exact


def counted(outcomes) -> dict:
    counts: dict = {}
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts


UNEVEN = Distribution(np.array([0, 2, 3, 5, 6], np.int32), np.array([0.4, 0.3, 0.2, 0.07, 0.03]))
N = 20_000


def keys(by: str) -> list[tuple[int, int]]:
    """Return N (seed, position) pairs that vary in one of the two."""
    return [(key, 17) if by == "seed" else (17, key) for key in range(N)]


def races(by: str, dist: Distribution, k: int) -> list[tuple[int, ...]]:
    rng = SeededRandom(17)
    if by == "position":
        return [tuple(rng.gumbel_top_k(position, dist, k)) for _, position in keys(by)]
    return [tuple(SeededRandom(seed).gumbel_top_k(position, dist, k)) for seed, position in keys(by)]


@pytest.mark.parametrize("by", ["seed", "position"])
def test_the_first_arrival_has_the_dist(by: str) -> None:
    """Chi-square over 20 000 races, along seeds at one position and along positions of one seed."""
    dist = {(int(token),): p for token, p in zip(UNEVEN.ids, UNEVEN.probs, strict=True)}
    assert chi_square(counted(races(by, UNEVEN, 1)), dist) < critical(len(dist) - 1)


@pytest.mark.parametrize("by", ["seed", "position"])
def test_the_first_two_are_a_draw_without_replacement(by: str) -> None:
    """Ordered pairs have the distribution p_i p_j / (1 - p_i)."""
    p = {int(token): float(prob) for token, prob in zip(UNEVEN.ids, UNEVEN.probs, strict=True)}
    dist = {(i, j): p[i] * p[j] / (1 - p[i]) for i in p for j in p if i != j}
    assert chi_square(counted(races(by, UNEVEN, 2)), dist) < critical(len(dist) - 1)


def test_the_test_can_fail() -> None:
    """Negative control: the same counts against a distribution that is off by two points are rejected."""
    dist = {(0,): 0.42, (2,): 0.28, (3,): 0.2, (5,): 0.07, (6,): 0.03}
    assert chi_square(counted(races("seed", UNEVEN, 1)), dist) > critical(4)


EVEN = Distribution(np.arange(4, dtype=np.int32), np.full(4, 0.25))


@cache
def winners(position: int, first: int) -> list[int]:
    return [SeededRandom(seed).gumbel_top_k(position, EVEN)[0] for seed in range(first, first + N)]


@pytest.mark.parametrize(
    ("seed_step", "position_step"),
    [(0, 1), (1, 0), (1, -1), (0, 256)],
    ids=["next position", "next seed", "both", "far"],
)
def test_neighbouring_noise_is_independent(seed_step: int, position_step: int) -> None:
    """The joint winners of two neighbouring (seed, position) keys are uniform over all 16 pairs."""
    pairs = zip(winners(300, 0), winners(300 + position_step, seed_step), strict=True)
    assert chi_square(counted(pairs), {(i, j): 1 / 16 for i in range(4) for j in range(4)}) < critical(15)


def test_noise_of_tokens_is_independent() -> None:
    """All 24 orders of four equally likely tokens are equally frequent: no token's noise tells of another's."""
    orders = counted(races("seed", EVEN, 4))
    assert len(orders) == 24
    assert chi_square(orders, dict.fromkeys(orders, 1 / 24)) < critical(23)


def test_noise_of_positions_is_uncorrelated_over_lags() -> None:
    """The indicator "token 0 wins" has no correlation with itself up to 64 positions on: |r| < 5 / sqrt(N)."""
    rng = SeededRandom(5)
    wins = np.array([rng.gumbel_top_k(position, EVEN)[0] == 0 for position in range(N)], float)
    wins -= wins.mean()
    for lag in range(1, 65):
        assert abs((wins[lag:] * wins[:-lag]).mean() / wins.var()) < 5 / math.sqrt(N - lag)


def test_seed_and_position_are_not_interchangeable() -> None:
    """(seed 3, position 5) is not (seed 5, position 3), or two answers would share their noise."""
    orders = [(SeededRandom(a), b) for a, b in ((3, 5), (5, 3))]
    dist = Distribution(np.arange(64, dtype=np.int32), np.full(64, 1 / 64))
    left, right = (rng.gumbel_top_k(position, dist, 64) for rng, position in orders)
    assert left != right


def test_noise_does_not_depend_on_what_was_drawn_before() -> None:
    """Coins, draws and other races leave a position's noise alone: it is a function of seed and position."""
    fresh, used = SeededRandom(9), SeededRandom(9)
    for position in range(600):  # more than the random source keeps, so that keys are also made anew
        used.bernoulli(0.5)
        used.categorical(UNEVEN)
        used.gumbel_top_k(position, UNEVEN)
    assert [fresh.gumbel_top_k(position, UNEVEN, 5) for position in range(600)] == [
        used.gumbel_top_k(position, UNEVEN, 5) for position in range(600)
    ]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**20),
    weights=st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=12),
    data=st.data(),
)
def test_filters_do_not_touch_the_noise(seed: int, position: int, weights: list[float], data: st.DataObject) -> None:
    """A token's noise is the same whatever support a filter leaves: those that stay arrive in the same order."""
    size = len(weights)
    dist = Distribution.of(np.arange(size, dtype=np.int32), np.array(weights))
    kept = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    filtered = Distribution.of(np.array(sorted(kept), np.int32), dist.probs[sorted(kept)])
    rng = SeededRandom(seed)
    order = rng.gumbel_top_k(position, dist, size)
    assert sorted(order) == list(range(size))
    assert rng.gumbel_top_k(position, filtered, size) == [token for token in order if token in kept]
    assert rng.gumbel_top_k(position, dist) == order[:1]


def test_greedy_is_the_only_arrival() -> None:
    """At temperature 0 the race has one runner, whatever the noise."""
    setup = replace(SETUP, sampling=replace(OPEN, temperature=0.0), eog=frozenset())
    assert len({answer(generate(setup, SeededRandom(seed))) for seed in range(50)}) == 1
