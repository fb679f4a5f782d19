"""The loop: order of events, times, cancellation, and that cache and text agree at every yield."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from localspec.control.lengths import Fixed
from localspec.engine.context import Context, Finish, Vocabulary
from localspec.engine.draft import Draw, Source, Step
from localspec.engine.loop import Engine
from localspec.engine.protocols import Cancelled, Controller, DraftBudget, Plan, Shape, TreePolicy
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import DraftModel
from localspec.methods.plain import Plain
from localspec.settings.request import Sampling
from localspec.testing.contract import Scripted, TableBackend, random_table
from localspec.trees.static import Static
from localspec.verify.coupled import CoupledVerifier

PROMPT = [0, 1, 2]
TABLE = random_table(4, 1)
PLAIN = Shape(0, 0, 1)
TREE = Shape(4, 2, 2)


class Ticking:
    """A clock that moves by one at every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def context(n_ctx: int = 64, max_tokens: int | None = 20) -> Context:
    return Context(
        list(PROMPT), Vocabulary(lambda token: False, lambda token: b"x"), n_ctx=n_ctx, max_tokens=max_tokens
    )


def engine(
    shape: Shape = TREE,
    *,
    target: TableBackend | None = None,
    draft: TableBackend | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    cancel: Callable[[], bool] = lambda: False,
    controller: Controller | None = None,
    policy: TreePolicy | None = None,
) -> Engine:
    sampler = Sampler(Sampling())
    near = random_table(4, 2, near=TABLE, distance=1.0)
    drafter = DraftModel(draft or TableBackend(near, 4), sampler, policy or Static((2, 1)), cancel)
    return Engine.local(
        target=target or TableBackend(TABLE, 4),
        drafters={"d": drafter, "plain": Plain()},
        verifier=CoupledVerifier(),
        controller=controller or Fixed("d", shape, Draw.COUPLED),
        sampler=sampler,
        rng=SeededRandom(5),
        clock=clock,
        cancel=cancel,
    )


def test_the_cache_holds_all_but_the_pending_token() -> None:
    """After the prompt and after every pass, whatever was accepted."""
    for shape in (PLAIN, TREE):
        text, parts = context(), engine(shape)
        for index, step in enumerate(parts.generate(text)):
            assert parts.judge.target.committed == text.tokens[:-1]
            assert parts.judge.target.open == 0
            assert step.position + len(step.tokens) == len(text.tokens)
            if index > 0 and text.finish is None:
                assert (len(step.draft) > 0) == (shape is TREE)
        assert text.finish is Finish.LENGTH


@pytest.mark.parametrize("n", [1, 3, 9])
def test_of_a_long_chain_all_is_kept_that_was_accepted(n: int) -> None:
    """The draft is the target itself, so that everything is."""
    text, parts = context(max_tokens=31), engine(Shape(n, n, 1), draft=TableBackend(TABLE, 4), policy=Static((1,) * n))
    steps = []
    for step in parts.generate(text):
        assert parts.judge.target.committed == text.tokens[:-1]
        steps.append(len(step.tokens))
    assert max(steps) == n + 1


def test_one_evaluation_a_pass() -> None:
    """The target is asked once for the prompt and once a pass, and never for a token it holds."""
    text, parts = context(), engine()
    steps = list(parts.generate(text))
    assert parts.judge.target.calls == len(steps)
    assert parts.judge.target.evaluated == parts.judge.target.length + parts.judge.target.dropped
    assert len(steps) < text.generated, "drafting saved passes"


def test_the_first_token_is_plain_and_committed_before_any_draft() -> None:
    """The prompt's own pass: no draft, no probe, the source plain."""
    first = next(engine().generate(context()))
    assert first.sources == (Source.PLAIN,)
    assert (len(first.draft), first.position, first.plan.is_probe) == (0, len(PROMPT), False)


def test_what_was_held_of_the_prompt_is_reused() -> None:
    """A second text with the same beginning evaluates only what is new, in target and draft."""
    target = TableBackend(TABLE, 4)
    parts = engine(target=target)
    list(parts.generate(context()))
    before = target.evaluated
    list(parts.generate(context(max_tokens=1)))
    assert target.evaluated - before == 1, "the last prompt token gives the row"


def test_the_times_of_a_pass_add_up() -> None:
    """Draft, verify, sample and what lies between account for the whole time between two passes."""
    clock = Ticking()
    steps = list(engine(clock=clock).generate(context()))
    looks = [(step.times.draft, step.times.verify, step.times.sample) for step in steps[1:]]
    assert set(looks) == {(1.0, 1.0, 1.0)}, "one look at the clock between each part"
    assert steps[0].times.draft == 0.0
    prefill, began = steps[0].times.total, 1.0
    after = 2.0  # the looks after the last pass was made, and after it was told
    assert prefill + sum(step.times.total for step in steps[1:]) == pytest.approx(clock.now - began - after)


def test_a_slow_reader_is_charged_as_other() -> None:
    """What the reader of the stream does between two passes is nobody's draft or verification."""
    clock = Ticking()
    stream = engine(clock=clock).generate(context())
    next(stream)
    next(stream)
    clock.now += 100.0
    assert next(stream).times.other > 100.0


def test_the_controller_is_told_of_a_pass_with_what_its_reader_did() -> None:
    """Each pass bears the turn of its own events: a longer one is told of with the pass before it, not after."""

    class Noting(Fixed):
        seconds: list[float]

        def observe(self, step: Step, seconds: float) -> None:
            self.seconds.append(seconds)

    clock, noting = Ticking(), Noting("d", TREE, Draw.COUPLED)
    noting.seconds = []
    for index, _ in enumerate(engine(clock=clock, controller=noting).generate(context())):
        clock.now += 100.0 * index
    looks = {seconds % 100.0 for seconds in noting.seconds}
    assert len(looks) == 1
    assert [seconds // 100.0 for seconds in noting.seconds] == list(range(1, len(noting.seconds) + 1))


@pytest.mark.parametrize("after", [0, 1, 3])
def test_cancelling_between_passes(after: int) -> None:
    """The flag is looked at before each pass: the text ends where it is, interrupted, and the cache fits it."""
    seen: list[Step] = []
    parts = engine(cancel=lambda: len(seen) > after)
    text = context()
    for step in parts.generate(text):
        seen.append(step)
    assert len(seen) == after + 1
    assert text.finish is Finish.INTERRUPTED
    assert parts.judge.target.committed == text.tokens[:-1]


class Stopping(TableBackend):
    """A model whose prefill can be cancelled half-way, as a backend does it: a prefix stays."""

    is_stopping = True

    def prefill(self, tokens, cancel):
        if self.is_stopping:
            super().prefill(list(tokens)[:2], cancel)
            raise Cancelled
        return super().prefill(tokens, cancel)


def test_cancelling_the_prompt() -> None:
    """Nothing is committed, the generator ends without an error, and the same parts can start again."""
    target = Stopping(TABLE, 4)
    parts = engine(target=target)
    text = context()
    assert list(parts.generate(text)) == []
    assert (text.tokens, text.finish) == (PROMPT, Finish.INTERRUPTED)
    target.is_stopping = False
    again = context()
    list(parts.generate(again))
    assert again.finish is Finish.LENGTH
    assert target.evaluated == target.length + target.dropped + target.forgotten


def test_cancelling_the_drafts_own_prefill() -> None:
    """The draft model evaluates the prompt when it is first asked: cancelled there, target and text still agree."""
    draft = Stopping(random_table(4, 2), 4)
    parts = engine(draft=draft)
    text = context()
    assert len(list(parts.generate(text))) == 1
    assert text.finish is Finish.INTERRUPTED
    assert parts.judge.target.committed == text.tokens[:-1]
    draft.is_stopping = False
    again = context()
    list(parts.generate(again))
    assert again.finish is Finish.LENGTH


def test_dropping_the_generator_anywhere() -> None:
    """Closed after any pass, cache and text agree and the parts go on with another text."""
    parts = engine()
    for n in range(1, 5):
        text = context()
        stream = parts.generate(text)
        for _ in range(n):
            next(stream)
        stream.close()
        assert parts.judge.target.committed == text.tokens[:-1]
    full = context()
    list(parts.generate(full))
    assert full.generated == 20


def test_drafters_take_turns() -> None:
    """The plan names the drafter; the text under coupled noise does not depend on the order."""
    texts = []
    for drafters in (["plain"], ["d"], ["d", "plain"], ["plain", "d", "d"]):
        plans = [Plan(name, 4, 2, Draw.COUPLED) for name in drafters]
        text = context()
        list(engine(controller=Scripted(plans)).generate(text))
        texts.append(text.tokens)
    assert all(tokens == texts[0] for tokens in texts)


def test_the_plans_reasons_reach_the_step() -> None:
    """Why a pass drafted as it did, and whether it measured, is told with it."""

    class Explained(Fixed):
        def plan(self, history, budget) -> Plan:
            return replace(super().plan(history, budget), is_probe=True, why="because")

    steps = list(engine(controller=Explained("d", PLAIN, Draw.COUPLED)).generate(context(max_tokens=3)))
    assert [(step.plan.is_probe, step.plan.why) for step in steps[1:]] == [(True, "because")] * 2
    assert [step.drafter for step in steps] == ["", "", ""]  # nothing was drafted


class Owing(TableBackend):
    """A model that keeps a state: after a rejection it owes what was kept, until the next pass."""

    to_replay = 0

    def extend(self, tokens, parents, outputs=None):
        self.to_replay = 0
        return super().extend(tokens, parents, outputs)

    def keep(self, nodes):
        self.to_replay = len(nodes) if len(nodes) < self.open else 0
        super().keep(nodes)


def test_a_pass_that_reads_tokens_again_drafts_nothing() -> None:
    """Nor is it one that measures plain decoding, whatever the controller plans. The text is the same."""

    class Measuring(Fixed):
        def plan(self, history, budget) -> Plan:
            return replace(super().plan(history, DraftBudget(9, 9)), is_probe=True)

    text = context()
    parts = engine(target=Owing(TABLE, 4), controller=Measuring("d", TREE, Draw.COUPLED))
    steps = list(parts.generate(text))[1:]
    for before, step in pairwise(steps):
        to_replay = len(before.kept) if len(before.kept) < 1 + len(before.draft) else 0
        assert step.replayed == to_replay
        assert step.rows == 1 + len(step.draft) + to_replay
        if to_replay:
            assert len(step.draft) == 0
            assert step.plan.why == f"reads {to_replay} tokens again"
        assert step.plan.is_probe is not bool(to_replay)
    assert sum(step.replayed > 0 for step in steps) > 1
    expected = context()
    list(engine().generate(expected))
    assert text.tokens == expected.tokens


def test_who_drafted_reaches_the_step() -> None:
    """The prompt's own pass has no drafter, every other one names its own."""
    steps = list(engine().generate(context(max_tokens=4)))
    assert steps[0].drafter == ""
    assert {step.drafter for step in steps[1:] if len(step.draft)} == {"d"}


def test_a_full_context_ends_the_text() -> None:
    """Without max_tokens the cache's size does; the last pass fills it and nothing is asked beyond it."""
    target = TableBackend(TABLE, 4, n_ctx=16)
    text = context(n_ctx=16, max_tokens=None)
    list(engine(target=target).generate(text))
    assert text.finish is Finish.CONTEXT
    assert len(text.tokens) == 17
    assert target.length == 16
