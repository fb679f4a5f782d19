"""Reading on while a verdict is under way: it changes no chance, and saves the draft's passes where all stood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import History, Path, Plan, RandomSource
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.translation import SameTokens
from localspec.methods._source import ModelSource
from localspec.methods.draft_model import DraftModel
from localspec.remote.ahead import FEW, QUIET, REST, DraftingOn
from localspec.remote.verifier import random_of
from localspec.settings.request import Sampling
from localspec.testing.contract import TableBackend
from localspec.trees.chain_with_siblings import ChainWithSiblings
from localspec.trees.static import Chain, Static
from localspec.verify.coupled import CoupledVerifier
from tests.exact.harness import EXACT, PENALTIES, Setup, assert_exact, build, target_answers, total_variation
from tests.integration.gguf_models import never
from tests.remote.edges import Remote, run
from tests.remote.test_exact_modes import CASES, CHAIN, WRONG, answers, remote


class Reading:
    """Reads on for as many passes as there are, in each round."""

    def __init__(self, reader: DraftModel, rng: RandomSource, most: int = 64) -> None:
        self.reader, self.rng, self.left, self.most = reader, rng, 0, most

    def wait(self, draft: Draft, has_come: Callable[[], bool]) -> None:
        self.left = self.most
        self.reader.draft_on(draft, self.rng, self.goes_on)

    def goes_on(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def verdict_came(self, draft: Draft, seconds: float) -> None:
        """Nothing is measured."""


class Counting(DraftModel):
    """Counts the tokens that took no pass of the draft model when a draft was asked for."""

    n_saved = 0

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        type(self).n_saved += self.ready(history)
        return super().propose(history, plan, rng)


def reading_on(one: Remote, **more: Any) -> Remote:
    return replace(one, reads_on=Reading, **more)


def short(case: str, **changes: Any) -> Remote:
    """Return an answer in drafts of one level: one or two of them begin with what was read on for."""
    n = 6 if CASES[case][2] is CHAIN else 5
    return remote(case, **{"n_vocab": 2, "nodes": 2, "depth": 1, "max_tokens": n, "distance": 0.5, **changes})


@pytest.mark.parametrize("case", CASES)
def test_an_answer_has_the_target_distribution(case: str) -> None:
    Counting.n_saved = 0
    one = short(case, sampling=PENALTIES)
    assert_exact(answers(reading_on(one, drafter=Counting)), target_answers(one.setup))
    assert Counting.n_saved > 0


class Argmax(DraftModel):
    """The tokens that were read on for are the next draft, as if they had been drawn from their laws."""

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        source, n = self._open, self.ready(history)
        if not n:
            return super().propose(history, plan, rng)
        path, dists, tokens = (), [], []
        for _ in range(min(n, plan.max_nodes, plan.max_depth)):
            dist = source.dists[path]
            dists.append(dist)
            tokens.append(int(dist.ids[dist.probs.argmax()]))
            path = (*path, tokens[-1])
            if path not in source.dists:
                break
        return Draft.of([history.tokens[-1], *tokens], range(-1, len(tokens)), [None, *dists], Draw.IID)


@pytest.mark.parametrize("case", ["sparse-q token", "scalar-q", "sparse-q block"])
def test_a_draft_of_likely_tokens_told_as_drawn_is_caught(case: str) -> None:
    one = short(case)
    assert total_variation(answers(reading_on(one)), target_answers(one.setup)) < EXACT
    assert total_variation(answers(reading_on(one, drafter=Argmax)), target_answers(one.setup)) > WRONG


KINDS = {
    "chain": Setup(CoupledVerifier(), Chain(), 3, 3, Draw.COUPLED, max_tokens=16, n_vocab=5, distance=0.6),
    "penalties": Setup(
        CoupledVerifier(), Chain(), 3, 3, Draw.COUPLED, max_tokens=16, n_vocab=5, distance=0.6, sampling=PENALTIES
    ),
    "siblings": Setup(CoupledVerifier(), ChainWithSiblings(), 5, 3, Draw.COUPLED, max_tokens=16, n_vocab=5),
    "tree": Setup(CoupledVerifier(), Static((2, 2)), 6, 3, Draw.COUPLED, max_tokens=16, n_vocab=5, distance=0.6),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 2, 3, 64])
def test_the_text_of_a_seed_is_the_local_one(kind: str, most: int) -> None:
    """Whatever was read on for, and however far it came; where it was right, the draft model makes fewer passes."""
    setup = KINDS[kind]
    target, draft = setup.tables()
    Counting.n_saved = 0
    for seed in range(60):
        one = Remote(setup, "coupled", seed, drafter=Counting, reads_on=lambda reader, rng: Reading(reader, rng, most))
        text, _ = run(one, target, draft, SeededRandom(seed), random_of)
        engine, context = build(setup, target, draft, SeededRandom(seed))
        for _ in engine.generate(context):
            pass
        assert text == context.tokens[2:]
    assert (Counting.n_saved > 20) == (most > 1), "one pass reads the draft's last token alone"


def said(case: str, *, reads_on: bool) -> list[tuple[list[int], list[bytes]]]:
    setup = replace(remote(case).setup, n_vocab=5, max_tokens=16, distance=0.5)
    target, draft = setup.tables()
    found = []
    for seed in range(20):
        one = Remote(setup, CASES[case][1], seed, reads_on=Reading if reads_on else None)
        text, wire = run(one, target, draft, SeededRandom(seed), random_of)
        found.append((text, wire.up))
    return found


@pytest.mark.parametrize("case", CASES)
def test_round_for_round_the_same_draft_goes_up(case: str) -> None:
    """With the same laws: reading on takes no chance, and a law is that of its place."""
    assert said(case, reads_on=True) == said(case, reads_on=False)


def test_chance_that_is_taken_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeededRandom, "copy", lambda own: own)
    assert said("sparse-q token", reads_on=True) != said("sparse-q token", reads_on=False)


def test_laws_of_another_place_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the draft began behind the accepted tokens, and not behind the target's own."""
    behind = ModelSource._behind

    def early(own: ModelSource, run: Path) -> ModelSource:
        found = behind(own, run)
        found.dists[()] = own.dists[run[:-1]]
        return found

    monkeypatch.setattr(ModelSource, "_behind", early)
    assert said("sparse-q token", reads_on=True) != said("sparse-q token", reads_on=False)


def test_a_pass_that_fails_meanwhile_ends_no_answer() -> None:
    """The draft model's logits are no numbers behind tokens that are never committed."""
    setup = replace(KINDS["chain"], sampling=Sampling(temperature=0.0), depth=1, nodes=1, n_vocab=2)
    rows = {0: np.float32([1.0, 0.0]), 1: np.float32([np.nan, np.nan])}
    one = Remote(
        replace(setup, target=lambda tokens: rows[0], draft=lambda tokens: rows[tokens[-1]][::-1]),
        "coupled", reads_on=Reading,
    )  # fmt: skip
    text, _ = run(one, *one.setup.tables(), SeededRandom(0), random_of)
    assert text == [0] * setup.max_tokens


def test_a_copy_is_not_read_while_it_is_judged() -> None:
    """All its tokens would be one pass, which may last far longer than the passes that were timed."""
    backend = TableBackend(lambda tokens: np.float32([0.0, 1.0]), 2)
    backend.prefill([0, 0], never)
    plan, dist = Plan("d", 4, 4, Draw.FIXED), Sampler(Sampling()).dist(np.float32([0.0, 1.0]))
    source = ModelSource(backend, Sampler(Sampling()), SameTokens(2, 2), [0, 0], 2, False, {(): dist}, plan)
    copied = Draft.of([0, *[1] * 16], range(-1, 16))
    assert source.read_on(copied, SeededRandom(0), lambda: True) == 0
    source.expand([(1,) * 15])
    assert source.read_on(copied, SeededRandom(0), lambda: True) > 0


class Foretelling(SeededRandom):
    """Draws `foretold` when it is asked ahead."""

    def __init__(self, foretold: int) -> None:
        super().__init__(0)
        self.foretold = foretold

    def copy(self) -> Foretelling:
        return self

    def categorical(self, dist: Distribution) -> int:
        return self.foretold


@pytest.mark.parametrize("draw", [Draw.IID, Draw.WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("n_passes", range(5))
def test_how_many_are_ready_does_not_tell_what_will_be_drawn(draw: Draw, n_passes: int) -> None:
    """A plan may go by that number, and whether a token is drafted must not depend on which one it would be.

    Five tokens are held already, since a draft was cut short: the last of them is foretold, or is not.
    """
    found = set()
    for foretold in (0, 1):
        backend = TableBackend(lambda tokens: np.float32([0.0, 1.0]), 2)
        backend.prefill([0, 0], never)
        plan, dist = Plan("d", 4, 4, draw), Sampler(Sampling()).dist(np.float32([0.0, 1.0]))
        source = ModelSource(backend, Sampler(Sampling()), SameTokens(2, 2), [0, 0], 2, False, {(): dist}, plan)
        source.expand([(1, 1, 1, 1, 1)])
        source = source._behind((1,))
        assert source.n_ready == 5
        draft, left = Draft.of([1, 1, 1], [-1, 0, 1], [None, dist, dist], draw), iter([True] * n_passes)
        source.read_on(draft, Foretelling(foretold), partial(next, left, False))
        found.add(source._behind((1, 1, 1)).n_ready)
    assert len(found) == 1


def test_the_token_in_between_is_the_likeliest_and_the_next_draft_is_foretold() -> None:
    backend = TableBackend(lambda tokens: np.float32([0.0, 1.0]), 2)
    backend.prefill([0, 0], never)
    plan, dist = Plan("d", 3, 3, Draw.IID), Sampler(Sampling()).dist(np.float32([0.0, 1.0]))
    source = ModelSource(backend, Sampler(Sampling()), SameTokens(2, 2), [0, 0], 2, False, {(): dist}, plan)
    draft = Draft.of([1, 1], [-1, 0], [None, dist], Draw.IID)
    assert source.read_on(draft, Foretelling(0), lambda: True) == 4
    assert set(source.dists) == {(), (1,), (1, 1), (1, 1, 0), (1, 1, 0, 0)}


class Far:
    """A verifier that takes `wait` seconds, `slower` more where the draft model works meanwhile; a pass takes one."""

    n_ready, seconds = 0, 1.0  # of a pass

    def __init__(self, wait: float, *, slower: float = 0.0, is_right: bool = True) -> None:
        self.now, self.until, self.wait_s, self.slower, self.is_right = 0.0, 0.0, wait, slower, is_right
        self.meantime = DraftingOn(self, SeededRandom(1), lambda: self.now)
        self.waited = 0.0  # by the verdict

    def draft_on(self, draft: Draft, rng: RandomSource, goes_on: Callable[[], bool]) -> int:
        n = 0
        while goes_on():
            self.now, n = self.now + self.seconds, n + 1
        return n

    def round(self, nodes: int = 2) -> int:
        """Return the passes during one round of a chain of so many drafted tokens."""
        draft = Draft.of([1] * (nodes + 1), range(-1, nodes))
        self.until = self.now + self.wait_s
        self.meantime.wait(draft, lambda: self.now >= self.until)
        slower = self.slower * bool(self.meantime.passes)
        self.waited = max(self.now - self.until, 0.0)
        self.now = max(self.now, self.until + slower)
        self.meantime.verdict_came(draft, 1.0 + slower)
        self.n_ready = max(self.meantime.passes - 1, 0) if self.is_right else 0
        return self.meantime.judged()[0]


def test_the_first_wait_is_measured_and_the_others_are_used() -> None:
    far = Far(3.5)
    assert [far.round() for _ in range(5)] == [0, 3, 3, 3, 3]
    assert far.waited == 0.0


def test_a_pass_that_would_end_with_the_verdict_is_begun() -> None:
    far = Far(3.0)
    assert [far.round() for _ in range(2)] == [0, 3]


def test_what_a_pass_takes_is_the_mean_of_late() -> None:
    """One that took ten times as long is a fifth of it."""
    far = Far(6.0)
    assert [far.round() for _ in range(2)] == [0, 6]
    far.seconds = 10.0
    far.round()
    assert far.meantime._pass == pytest.approx(1.0 + 0.2 * 9.0)


def test_what_is_gained_and_lost_is_counted_in_seconds() -> None:
    """A fifth of the newest round: passes that the next draft saves, and half a pass where the verdict came first."""
    far = Far(2.5)
    far.round()
    far.wait_s = 1.5
    assert far.round() == 2
    assert far.waited == 0.5
    assert (far.meantime._gain, far.meantime._loss) == pytest.approx((0.2 * 1.0, 0.2 * 0.5))
    far = Far(3.5, slower=2.0)
    far.round()
    assert far.round() == 3
    assert (far.meantime._gain, far.meantime._loss) == pytest.approx((0.2 * 2.0, 0.2 * 2.0))


def test_no_pass_fits_into_a_short_wait() -> None:
    """Once it is known what one takes."""
    far = Far(0.5)
    assert [far.round() for _ in range(6)] == [0, 1, 0, 0, 0, 0]


def test_a_wait_that_gets_shorter_waits_for_one_pass_at_most() -> None:
    far = Far(5.5)
    for _ in range(4):
        far.round()
    far.wait_s = 2.2
    for _ in range(12):
        far.round()
        assert far.waited < 1.0
    assert far.waited == 0.0, "the new wait is known"


def test_a_wait_is_expected_by_drafts_that_were_as_long() -> None:
    """One that is longer than all before waits as those did at least."""
    far = Far(1.5)
    far.round(1)
    assert far.round(4) == 1, "none was as long"
    far.wait_s = 5.5
    for _ in range(2):
        far.round(8)
    far.wait_s = 1.5
    assert far.round(1) == 1
    far.wait_s = 5.5
    assert far.round(8) == 5


def test_a_quarter_of_the_waits_may_be_shorter_than_what_is_expected() -> None:
    far = Far(5.5)
    for far.wait_s in [5.5] * 7 + [2.5] * 2:
        far.round()
    far.wait_s = 5.5
    assert far.round() == 5, "two of eight were shorter"
    far.wait_s = 2.5
    far.round()
    far.wait_s = 5.5
    assert far.round() == 2, "three were"


def test_a_verdict_that_is_there_at_once_took_no_time() -> None:
    """It is one wait of the last eight, as any other: no pass is begun after three of them, and passes come back."""
    far = Far(3.5)
    for far.wait_s in [3.5] * 5 + [0.0] * 3:
        far.round()
    assert [seconds for _, seconds in far.meantime._waits] == [3.5] * 5 + [0.0] * 3
    assert far.waited == 0.0
    far.wait_s = 3.5
    passes = [far.round() for _ in range(8)]
    assert passes[:5] == [0] * 5, "by a quarter of the waits there may be no time"
    assert passes[6:] == [3, 3], "which were measured meanwhile"


def test_one_round_of_eight_is_left_alone() -> None:
    far = Far(3.5)
    assert [n for n in range(1, 33) if far.round() == 0][1:] == [1 + QUIET, 1 + 2 * QUIET, 1 + 3 * QUIET]


@pytest.mark.parametrize("far", [Far(3.5, slower=4.0), Far(1.9, slower=1.0, is_right=False)], ids=["slow", "wrong"])
def test_it_rests_where_it_does_not_pay(far: Far) -> None:
    """On a verifier's own processors it slows the verdict down; a draft model that is never right gains nothing."""
    passes = [far.round() for _ in range(4 * REST)]
    assert sum(n > 0 for n in passes) < REST
    assert sum(n > 0 for n in passes[:REST]) == FEW, "it is judged once there were so many"
    rest = (REST - 1) * [0]
    assert rest in [passes[n : n + len(rest)] for n in range(len(passes))]


def test_it_goes_on_where_nothing_is_gained_or_lost() -> None:
    far = Far(3.5, is_right=False)
    assert sum(far.round() > 0 for _ in range(4 * REST)) > 3 * REST
