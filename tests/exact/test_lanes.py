"""Two answers side by side, every branch of chance and every schedule: each keeps its distribution, and they are
independent. The shipped scheduler runs; only llama.cpp is a table, whose rows lie in one buffer as llama.cpp's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from localspec.backends.passes import Passes
from localspec.control.lengths import Fixed
from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draw
from localspec.engine.loop import Engine
from localspec.engine.protocols import Cancel, Logits, RandomSource, Rows, Shape, Tokens, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import DraftModel
from localspec.testing.contract import TableBackend
from localspec.testing.enumeration import enumerate_branches
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.spectr import SpecTrVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import PROMPT, Answer, Setup, Table, assert_exact, target_answers

RULES: dict[str, tuple[Verifier, Draw]] = {
    "token": (TokenVerifier(), Draw.IID),
    "block": (BlockVerifier(), Draw.IID),
    "tree": (TreeVerifier(), Draw.IID),
    "traversal": (TraversalVerifier(), Draw.IID),
    "spectr": (SpecTrVerifier(), Draw.IID),
    "match": (MatchVerifier(), Draw.IID),
}


class Shared:
    """One buffer of rows for all lanes, as a llama.cpp context has: each pass writes over the last."""

    def __init__(self) -> None:
        self.buffer: list[Logits] = []
        self.widths: list[int] = []  # lanes of each pass

    def decode(self, lanes: Sequence[TableLane], is_stopped: Cancel | None) -> int:
        self.buffer = []
        for lane in lanes:
            lane.put(self.buffer)
        self.widths.append(len(lanes))
        return 0


@dataclass
class _Rows:
    """Rows of a lane from entry `base` of the buffer on."""

    buffer: list[Logits]
    base: int
    first: int

    def logits(self, node: int) -> Logits:
        return self.buffer[self.base + node - self.first]


class TableLane(TableBackend):
    """A table model whose passes are asked for, and whose rows are read from the shared buffer."""

    is_reading = False

    def __init__(self, table: Table, n_vocab: int, n_ctx: int, passes: Passes, shared: Shared) -> None:
        super().__init__(table, n_vocab, n_ctx)
        self._passes = passes
        self.group = shared
        self._made: list[Logits] = []
        self._base = 0

    @property
    def n_rows(self) -> int:
        return len(self._made)

    def put(self, buffer: list[Logits]) -> None:
        self._base = len(buffer)
        buffer += self._made

    def decode(self, is_stopped: Cancel | None) -> int:
        return self.group.decode([self], is_stopped)

    def prefill(self, tokens: Tokens, cancel: Cancel) -> Rows:
        rows = super().prefill(tokens, cancel)
        return self._asked([rows.logits(0).copy()], 0)

    def extend(self, tokens: Tokens, parents: Tokens, outputs: object = None) -> Rows:
        first = self.open
        rows = super().extend(tokens, parents)
        return self._asked([rows.logits(first + i).copy() for i in range(len(tokens))], first)

    def _asked(self, made: list[Logits], first: int) -> Rows:
        self._made = made
        assert self._passes.ask(self, None, is_prompt=False) == 0
        return _Rows(self.group.buffer, self._base, first)


@dataclass
class Pair:
    """Two answers of one target; the second joins after `joins` rounds and is cancelled after `ends` of its passes."""

    setups: tuple[Setup, Setup]
    joins: int = 0
    ends: int | None = None
    lane: type[TableLane] = TableLane
    passes: type[Passes] = Passes
    widths: list[int] = field(default_factory=list)

    def run(self, sources: Sequence[RandomSource]) -> tuple[Answer, Answer]:
        passes, shared = self.passes(), Shared()
        contexts = []

        def start(setup: Setup, rng: RandomSource, ends: int | None) -> Context:
            target, draft = setup.tables()
            n = 0

            def cancelled() -> bool:
                return ends is not None and n >= ends

            sampler = Sampler(setup.sampling)
            lane = self.lane(target, setup.n_vocab, setup.n_ctx, passes, shared)
            drafter = DraftModel(TableBackend(draft, setup.n_vocab), sampler, setup.policy, lambda: False)
            controller = Fixed("d", Shape(setup.nodes, setup.depth, 1), setup.draw)
            parts = (lane, {"d": drafter}, setup.verifier, controller, sampler, rng, lambda: 0.0, cancelled)
            engine = Engine.local(*parts)
            vocabulary = Vocabulary(lambda _: False, lambda _: b"x")
            context = Context(list(PROMPT), vocabulary, n_ctx=setup.n_ctx, max_tokens=setup.max_tokens)

            def work() -> None:
                nonlocal n
                for _ in engine.generate(context):
                    n += 1

            passes.start(work)
            return context

        contexts.append(start(self.setups[0], sources[0], None))
        for _ in range(self.joins):
            passes.round()
        contexts.append(start(self.setups[1], sources[1], self.ends))
        while passes.n_running:
            passes.round()
        self.widths += shared.widths
        one, other = (tuple(context.tokens[len(PROMPT) :]) for context in contexts)
        return one, other


def setups(rule: str, seeds: tuple[int, int] = (0, 7)) -> tuple[Setup, Setup]:
    verifier, draw = RULES[rule]
    made = Setup(verifier, nodes=1, depth=1, draw=draw, n_vocab=2, max_tokens=3)
    return replace(made, seed=seeds[0]), replace(made, seed=seeds[1], nodes=2, depth=2, max_tokens=3)


def joint(pair: Pair) -> dict[tuple[Answer, Answer], float]:
    """Return the distribution of both answers together, over every branch of chance."""
    dist: dict[tuple[Answer, Answer], float] = {}
    for weight, answers in enumerate_branches(lambda rng: pair.run((rng, rng))):
        dist[answers] = dist.get(answers, 0.0) + weight
    return dist


def independent(pair: Pair) -> dict[tuple[Answer, Answer], float]:
    one, other = map(target_answers, pair.setups)
    return {(a, b): p * q for (a, p), (b, q) in product(one.items(), other.items())}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("joins", [0, 1, 2, 3])
def test_two_answers_are_each_alone(rule: str, joins: int) -> None:
    pair = Pair(setups(rule), joins)
    assert_exact(joint(pair), independent(pair))
    assert (2 in pair.widths) == (joins < 3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ends", [0, 1, 2])
def test_an_answer_that_is_cancelled_leaves_the_other_alone(rule: str, ends: int) -> None:
    pair = Pair(setups(rule), ends=ends)
    dist: dict[Answer, float] = {}
    for (answer, _), weight in joint(pair).items():
        dist[answer] = dist.get(answer, 0.0) + weight
    assert_exact(dist, target_answers(pair.setups[0]))


class WrongBase(TableLane):
    """Reads its rows where the pass begins, whoever comes first."""

    def put(self, buffer: list[Logits]) -> None:
        super().put(buffer)
        self._base = 0


class Hasty(Passes):
    """Begins a pass though not all have read their rows of the one before."""

    def _go_on(self) -> None:
        ready = [each for each in self._answers if each.ask is None and not each.is_paused]
        for answer in ready if self._rounds % 3 == 1 else [each for each in ready if each is self._answers[0]]:
            self._go_on_with(answer)


class Shorter(TableLane):
    """Leaves out its first row in what is decoded with others."""

    def put(self, buffer: list[Logits]) -> None:
        self._base = len(buffer)
        buffer += self._made[-1:] * len(self._made)


@pytest.mark.parametrize(("lane", "passes"), [(WrongBase, Passes), (Shorter, Passes), (TableLane, Hasty)])
def test_faults_of_the_bookkeeping_are_seen(lane: type[TableLane], passes: type[Passes]) -> None:
    pair = Pair(setups("token"), lane=lane, passes=passes)
    with pytest.raises((AssertionError, IndexError)):
        assert_exact(joint(pair), independent(pair))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("joins", [0, 2])
def test_a_seeded_text_is_that_alone(seed: int, joins: int) -> None:
    made = Setup(CoupledVerifier(), nodes=2, depth=2, draw=Draw.COUPLED, n_vocab=4, max_tokens=8)
    both = replace(made, seed=1), replace(made, seed=2, nodes=3, depth=3)
    together = Pair(both, joins).run((SeededRandom(seed), SeededRandom(seed + 100)))
    for setup, source, text in zip(both, (seed, seed + 100), together, strict=True):
        alone = Pair((setup, replace(setup, max_tokens=1)), joins=50)
        assert alone.run((SeededRandom(source), SeededRandom(0)))[0] == text
