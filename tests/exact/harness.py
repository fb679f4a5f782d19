"""Exact distributions of whole generations: the shipped engine, drafter, tree policies and verifiers, with every branch
of chance replayed (no sampling, so a bias of 1e-9 is as visible as one of 0.1).

A `Setup` is everything a generation depends on. `answers` returns the distribution of the finished answer, `passes`
every way one pass of the target can go, and `target_answers` the distribution that both must have, from the reference
distribution alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from localspec.control.lengths import Fixed
from localspec.engine.constraint import Constraint
from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draw, Step
from localspec.engine.loop import Engine
from localspec.engine.protocols import (
    Controller,
    DraftBudget,
    Drafter,
    DraftState,
    History,
    Plan,
    RandomSource,
    Rows,
    Shape,
    TreePolicy,
    Verifier,
)
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.stopwatch import Stopwatch
from localspec.methods.draft_model import DraftModel
from localspec.settings.request import Sampling
from localspec.testing.contract import TableBackend, random_table
from localspec.testing.enumeration import enumerate_branches
from localspec.trees.static import Chain
from tests.exact.reference import reference_dist

PROMPT = (0, 1)
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)  # no filter at all
PENALTIES = replace(OPEN, repeat_penalty=1.25, presence_penalty=0.5, frequency_penalty=0.25, penalty_last_n=3)
FILTERS: dict[str, Sampling] = {"open": OPEN, "top-p": replace(OPEN, top_p=0.9, min_p=0.1), "penalties": PENALTIES}
EXACT = 1e-9

Answer = tuple[int, ...]
Table = Callable[[tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class Setup:
    """One generation: the pair, the distribution, the draft's shape, the rule, the limits."""

    verifier: Verifier
    policy: TreePolicy = field(default_factory=Chain)
    nodes: int = 2
    depth: int = 2
    draw: Draw = Draw.IID
    sampling: Sampling = OPEN
    draft_sampling: Sampling | None = None  # None: drafted under the target's own settings
    draft_temperature: float | None = None
    seed: int = 0
    n_vocab: int = 3
    distance: float = 1.2  # of the draft's logits from the target's; 0 makes q equal p
    target: Table | None = None  # instead of a random one
    draft: Table | None = None
    drafter: Callable[[Table], Drafter] | None = None  # made from the target's table, instead of a draft model
    eog: frozenset[int] = frozenset()
    max_tokens: int = 4
    n_ctx: int = 64
    controller: Callable[[Controller], Controller] = lambda inner: inner
    go_on: Callable[[DraftState], bool] | None = None
    steer: Callable[[dict[str, Drafter]], Controller] | None = None  # the controller, which may add drafters
    constraint: Constraint | None = None  # of target and draft
    draft_constraint: Constraint | None = None  # instead, of the draft

    def tables(self) -> tuple[Table, Table]:
        """Return target and draft table, each row computed once."""
        target = cache(self.target or random_table(self.n_vocab, self.seed))
        near = random_table(self.n_vocab, self.seed + 1000, near=target, distance=self.distance)
        return target, cache(self.draft or near)


class Ruled:
    """Another controller's plans with a rule that is asked before each draw."""

    def __init__(self, inner: Controller, go_on: Callable[[DraftState], bool]) -> None:
        self._inner = inner
        self._go_on = go_on

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        return replace(self._inner.plan(history, budget), go_on=self._go_on)

    def observe(self, step: Step, seconds: float) -> None:
        self._inner.observe(step, seconds)


def build(setup: Setup, target: Table, draft: Table, rng: RandomSource) -> tuple[Engine, Context]:
    """Compose the shipped parts for one replay."""
    sampler = Sampler(setup.sampling, constraint=setup.constraint)
    drafting = Sampler(
        setup.draft_sampling or setup.sampling,
        temperature=setup.draft_temperature,
        constraint=setup.draft_constraint or setup.constraint,
        drafts=True,
    )
    drafter: Drafter = DraftModel(TableBackend(draft, setup.n_vocab), drafting, setup.policy, lambda: False)
    if setup.drafter is not None:
        drafter = setup.drafter(target)
    controller: Controller = Fixed("d", Shape(setup.nodes, setup.depth, 1), setup.draw)
    if setup.go_on is not None:
        controller = Ruled(controller, setup.go_on)
    drafters = {"d": drafter}
    if setup.steer is not None:
        controller = setup.steer(drafters)
    engine = Engine.local(
        TableBackend(target, setup.n_vocab, setup.n_ctx),
        drafters,
        setup.verifier,
        setup.controller(controller),
        sampler,
        rng,
        lambda: 0.0,
        lambda: False,
    )
    vocabulary = Vocabulary(lambda token: token in setup.eog, lambda token: b"x")
    return engine, Context(list(PROMPT), vocabulary, n_ctx=setup.n_ctx, max_tokens=setup.max_tokens)


def answers(setup: Setup) -> dict[Answer, float]:
    """Return the distribution of the finished answer, prompt left out, over whole generations."""
    target, draft = setup.tables()

    def run(rng: RandomSource) -> Answer:
        engine, context = build(setup, target, draft, rng)
        for _ in engine.generate(context):
            pass
        return tuple(context.tokens[len(PROMPT) :])

    dist: dict[Answer, float] = {}
    for weight, answer in enumerate_branches(run):
        dist[answer] = dist.get(answer, 0.0) + weight
    return dist


def passes(setup: Setup) -> list[tuple[float, Step]]:
    """Return every way the first pass after the prompt can go, with its probability."""
    target, draft = setup.tables()

    def run(rng: RandomSource) -> Step:
        engine, context = build(setup, target, draft, rng)
        engine.judge.target.prefill(PROMPT[:-1], lambda: False)  # as between two passes: the last token is pending
        return engine.step(context, Stopwatch(engine.clock))

    return list(enumerate_branches(run))


def first_tokens(setup: Setup, steps: Sequence[tuple[float, Step]]) -> dict[Answer, float]:
    """Return the distribution of the next `max_tokens` tokens when the target alone continues after one pass."""
    target, _ = setup.tables()
    dist: dict[Answer, float] = {}
    runs: dict[Answer, float] = {}
    for weight, step in steps:
        runs[step.tokens] = runs.get(step.tokens, 0.0) + weight
    for run, weight in runs.items():
        for answer, p in _continuations(setup, target, run):
            dist[answer] = dist.get(answer, 0.0) + weight * p
    return dist


def target_answers(setup: Setup) -> dict[Answer, float]:
    """Return the product of the target's distributions: what plain sampling gives, and everything else must."""
    target, _ = setup.tables()
    return dict(_continuations(setup, target, ()))


def _continuations(setup: Setup, target: Table, answer: Answer) -> Iterator[tuple[Answer, float]]:
    """Yield the answers that begin with `answer`, with the probability of the rest."""
    if len(answer) == setup.max_tokens or (answer and answer[-1] in setup.eog):
        yield answer, 1.0
        return
    text = (*PROMPT, *answer)
    row = target(text)
    if setup.constraint is not None:
        row = np.where(np.isin(np.arange(row.size), setup.constraint.allowed(text)), row, np.float32(-np.inf))
    for token, p in reference_dist(row, text, setup.sampling).items():
        for whole, rest in _continuations(setup, target, (*answer, token)):
            yield whole, p * rest


def worst(dist: dict[Answer, float], truth: dict[Answer, float]) -> float:
    """Return the largest difference of any answer's probability."""
    return max(abs(dist.get(answer, 0.0) - truth.get(answer, 0.0)) for answer in dist.keys() | truth.keys())


def total_variation(dist: dict[Answer, float], truth: dict[Answer, float]) -> float:
    """Return half the summed differences: the largest probability of any event that tells the two apart."""
    return 0.5 * sum(abs(dist.get(answer, 0.0) - truth.get(answer, 0.0)) for answer in dist.keys() | truth.keys())


def assert_exact(dist: dict[Answer, float], truth: dict[Answer, float]) -> None:
    """Fail unless `dist` is a distribution, and the target's."""
    assert abs(sum(dist.values()) - 1.0) < EXACT
    assert worst(dist, truth) < EXACT


def assert_texts_are_plain(setup: Setup, seeds: int = 10) -> None:
    """Fail unless each seed has one text, with drafts and without: a race has too many orders to enumerate."""
    target, draft = setup.tables()
    for seed in range(seeds):
        texts = []
        for nodes in (setup.nodes, 0):
            engine, context = build(replace(setup, nodes=nodes), target, draft, SeededRandom(seed))
            for _ in engine.generate(context):
                pass
            texts.append(context.tokens)
        assert texts[0] == texts[1]


def watched(kind: type[Any]) -> type[Any]:
    """Return a drafter's class which keeps in `seen` how many tokens of a pass were drafted and accepted."""

    class Watched(kind):
        seen: ClassVar[set[tuple[int, int]]] = set()  # shared by the replays of one test

        def observe(self, step: Step, rows: Rows) -> None:
            self.seen.add((step.n_drafted, step.n_accepted))
            super().observe(step, rows)

    return Watched


def one_hot_table(n_vocab: int, choose: Callable[[tuple[int, ...]], int]) -> Table:
    """Return a model that is certain of `choose(text)`."""

    def table(tokens: tuple[int, ...]) -> np.ndarray:
        row = np.full(n_vocab, -np.inf, np.float32)
        row[choose(tokens)] = 0.0
        return row

    return table


def masked(table: Table, tokens: Sequence[int]) -> Table:
    """Return `table` with the given tokens impossible."""

    def masked_table(text: tuple[int, ...]) -> np.ndarray:
        row = table(text).copy()
        row[list(tokens)] = -np.inf
        return row

    return masked_table
