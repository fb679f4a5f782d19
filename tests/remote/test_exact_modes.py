"""Every mode gives the target's distribution through real messages, by enumeration; forms that would not are caught."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localspec.engine.distribution import Distribution, Ids
from localspec.engine.draft import Draft, Draw, Source, Verdict
from localspec.engine.protocols import Cancel, Distributions, RandomSource
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.remote import judge, messages, modes, verifier
from localspec.remote.judge import RemoteJudge
from localspec.remote.messages import Error, Prefix, Result, Resync, SentDist, Verify, quantised, reply_of
from localspec.remote.verifier import Session, random_of
from localspec.testing.enumeration import enumerate_branches
from localspec.trees.sequoia import Sequoia
from localspec.trees.specinfer import SpecInfer
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.spectr import SpecTrVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import (
    EXACT,
    FILTERS,
    OPEN,
    PENALTIES,
    Answer,
    Setup,
    assert_exact,
    build,
    first_tokens,
    target_answers,
    total_variation,
)
from tests.remote import edges
from tests.remote.edges import Line, Remote, one_pass, run

IID, WOR, FIXED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED
CHAIN, TREE, DRAFTS = Chain(), Sequoia(accept="0.5/0.3/0.1"), SpecInfer((2, 1))
CASES = {
    "ids chain": (MatchVerifier(), "ids", CHAIN, IID),
    "ids fixed": (MatchVerifier(), "ids", CHAIN, FIXED),
    "ids tree": (MatchVerifier(), "ids", DRAFTS, IID),
    "scalar-q": (TokenVerifier(), "scalar-q", CHAIN, IID),
    "scalar-q fixed": (TokenVerifier(), "scalar-q", CHAIN, FIXED),
    "sparse-q token": (TokenVerifier(), "sparse-q", CHAIN, IID),
    "sparse-q block": (BlockVerifier(), "sparse-q", CHAIN, IID),
    "sparse-q traversal": (TraversalVerifier(), "sparse-q", DRAFTS, IID),
    "sparse-q traversal, without replacement": (TraversalVerifier(), "sparse-q", TREE, WOR),
    "sparse-q tree": (TreeVerifier(), "sparse-q", DRAFTS, IID),
    "sparse-q tree, without replacement": (TreeVerifier(), "sparse-q", TREE, WOR),
    "sparse-q fixed": (TokenVerifier(), "sparse-q", CHAIN, FIXED),
    "laws token": (TokenVerifier(), "laws", CHAIN, IID),
    "laws block": (BlockVerifier(), "laws", CHAIN, IID),
    "laws match": (MatchVerifier(), "laws", DRAFTS, IID),
    "laws tree": (TreeVerifier(), "laws", TREE, WOR),
    "laws traversal": (TraversalVerifier(), "laws", DRAFTS, IID),
    "laws spectr": (SpecTrVerifier(), "laws", DRAFTS, IID),
}
WRONG = 1e-2  # total variation that a wrong form has at least


def remote(case: str, **changes: Any) -> Remote:
    rule, mode, policy, draw = CASES[case]
    n = 2 if policy is CHAIN else 3
    return Remote(replace(Setup(rule, policy, n, 2, draw, max_tokens=4, seed=3), **changes), mode)


def answers(one: Remote) -> dict[Answer, float]:
    """Return the distribution of the answer over every branch of chance on both sides."""
    target, draft = one.setup.tables()
    found: dict[Answer, float] = {}
    for weight, answer in enumerate_branches(lambda rng: tuple(run(one, target, draft, rng)[0])):
        found[answer] = found.get(answer, 0.0) + weight
    return found


def after_one_pass(one: Remote) -> dict[Answer, float]:
    """Return the distribution of what follows when the target alone goes on after one pass."""
    target, draft = one.setup.tables()
    return first_tokens(one.setup, list(enumerate_branches(lambda rng: one_pass(one, target, draft, rng))))


def worst_of(one: Remote) -> float:
    return total_variation(after_one_pass(one), target_answers(one.setup))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sampling", FILTERS)
def test_one_pass_has_the_target_distribution(case: str, sampling: str) -> None:
    """Drafts of two levels, with penalties and filters that are at the verifier."""
    one = remote(case, sampling=FILTERS[sampling])
    assert_exact(after_one_pass(one), target_answers(one.setup))


@pytest.mark.parametrize("case", CASES)
def test_an_answer_has_the_target_distribution(case: str) -> None:
    """Several rounds, so that what the edge drew goes up with the next."""
    one = remote(case, n_vocab=2, nodes=2, depth=2 if "chain" in case else 1, max_tokens=4)
    assert_exact(answers(one), target_answers(one.setup))


class Form:
    """What may follow depends on the last token."""

    def allowed(self, text: Sequence[int]) -> Ids:
        return np.array([0, 1] if text[-1] == 2 else [0, 2], np.int32)


class Anything:
    """No form is known."""

    def allowed(self, text: Sequence[int]) -> Ids:
        return np.arange(3, dtype=np.int32)


@pytest.mark.parametrize("case", ["scalar-q", "sparse-q block", "laws token", "ids chain"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_form_is_kept_whether_the_edge_knows_it_or_not(case: str, is_known: bool) -> None:
    """It is part of the verifier's law; where the edge drafts by it as well, more is accepted."""
    one = remote(case, constraint=Form(), draft_constraint=Form() if is_known else Anything())
    assert_exact(after_one_pass(one), target_answers(one.setup))


def test_the_text_of_a_seed_is_the_local_one() -> None:
    """Mode coupled, on chains and trees: the text that the loop gives with a target at hand."""
    for policy, nodes in ((Chain(), 3), (Static((2, 2)), 6)):
        setup = Setup(CoupledVerifier(), policy, nodes, 3, Draw.COUPLED, max_tokens=12, n_vocab=5, sampling=PENALTIES)
        target, draft = setup.tables()
        saved = 0
        for seed in range(60):
            text, wire = run(Remote(setup, "coupled", seed), target, draft, SeededRandom(seed), random_of)
            engine, context = build(setup, target, draft, SeededRandom(seed))
            for _ in engine.generate(context):
                pass
            assert text == context.tokens[2:]
            saved += 1 + len(text) - len(wire.down)
        assert saved > 60, "drafts are of use"


class ScalarOnly(RemoteJudge):
    """After a rejection the edge takes q from the rejected token alone, for want of the others'."""

    def _decided(self, draft: Draft, tokens: Sequence[int], result: Result) -> Verdict:
        if result.token is not None:
            return super()._decided(draft, tokens, result)
        p, (child,) = result.laws[0].distribution(3), draft.children[result.node]
        token = int(draft.tokens[child])
        left = p.probs - np.where(p.ids == token, draft.dist(child).prob(token), 0.0)
        return draft.verdict(result.node, self.rng.categorical(Distribution.of(p.ids, np.maximum(left, 0.0))))


def test_a_residual_from_one_scalar_is_caught() -> None:
    assert worst_of(replace(remote("scalar-q", seed=1), judge=ScalarOnly)) > WRONG


class Rounding:
    """Laws that are rounded as they are sent."""

    @staticmethod
    def of(dist: Distribution | None) -> SentDist:
        return SentDist() if dist is None else SentDist.of(quantised(dist))


@pytest.mark.parametrize("case", ["sparse-q token", "sparse-q block", "sparse-q traversal", "scalar-q"])
def test_laws_are_quantised_before_the_draw(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With units as coarse as sixteenths: exact where drawn from the quantised law, and caught where not."""
    one = remote(case, sampling=replace(OPEN, temperature=1.7))
    monkeypatch.setattr(messages, "UNITS", 16.0)
    monkeypatch.setattr(verifier, "quantised", lambda dist: dist)  # the target's own law is not in question
    assert worst_of(one) < EXACT
    monkeypatch.setattr(edges, "QuantisedSampler", Sampler)  # what is drawn from is rounded on its way only
    monkeypatch.setattr(judge, "packed", lambda probs: messages.packed(np.maximum(np.rint(probs * 16.0), 1.0) / 16.0))
    monkeypatch.setattr(judge, "SentDist", Rounding)
    assert worst_of(one) > WRONG / 4


class NoBonus(TokenVerifier):
    """A row for each drafted token and none after the last: the token after all of them is from the row before."""

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        verdict = super().verify(draft, dists, rng, position)
        if verdict.source is not Source.BONUS or len(verdict.path) < 2:
            return verdict
        return replace(verdict, token=rng.categorical(dists[verdict.path[-2]]))


def test_a_missing_bonus_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    one = remote("sparse-q token", distance=0.3, sampling=PENALTIES)
    assert worst_of(one) < EXACT
    monkeypatch.setitem(modes.RULES, "token", NoBonus())
    assert worst_of(one) > WRONG


class Unfiltered:
    """Laws told with a fifth spread over all tokens, as they were before the filters."""

    @staticmethod
    def of(dist: Distribution | None) -> SentDist:
        every = np.arange(3, dtype=np.int32)
        assert dist is not None
        return SentDist.of(quantised(Distribution.of(every, 0.8 * dist.at(every) + 0.2 / 3)))


def test_a_law_before_the_filters_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    one = remote("sparse-q token", sampling=FILTERS["top-p"])
    assert worst_of(one) < EXACT
    monkeypatch.setattr(judge, "SentDist", Unfiltered)
    assert worst_of(one) > WRONG


class Losing(Line):
    """The first Result of a round is lost where it accepts nothing: what is lost depends on what was drawn."""

    def hear(self, data: bytes) -> list[bytes]:
        replies = super().hear(data)
        found = [reply_of(each) for each in replies]
        return super().hear(data) if any(isinstance(each, Result) and each.node == 0 for each in found) else replies


class Forgetful(Session):
    """A verifier that judges a round anew when it is asked again."""

    def judge(self, verify: Verify, cancel: Cancel) -> Result | Resync | Error:
        if self._last is not None and self._last.round == verify.round:
            assert self._text is not None
            self._last = None
            self.read(Prefix(0, tuple(self._text.tokens[: verify.base])))
        return super().judge(verify, cancel)


@pytest.mark.parametrize("case", ["ids chain", "scalar-q", "sparse-q block"])
def test_a_round_is_never_redrawn(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost Result comes again as it was; drawn again, the text leans to what is not lost."""
    monkeypatch.setattr(edges, "Line", Losing)
    one = remote(case)
    assert worst_of(one) < EXACT
    monkeypatch.setattr(verifier, "Session", Forgetful)
    assert worst_of(one) > WRONG
