"""A draft model of another vocabulary that writes text: chains of its likeliest tokens, in the target's."""

from collections.abc import Sequence

import numpy as np
import pytest

from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draft, Draw
from localspec.engine.loop import Engine
from localspec.engine.protocols import DraftState, Plan, TreePolicy
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Intersection, Lexicon
from localspec.methods.draft_model import DraftModel
from localspec.settings.request import Sampling
from localspec.testing.contract import ContractLimits, DrafterUnderTest, Scripted, Table, TableBackend, random_table
from localspec.trees.static import Chain
from localspec.verify.coupled import CoupledVerifier
from tests.lexicons import BYTES, lexicon
from tests.methods.test_translated_draft import TEXTS, Backwards, TestTranslatedDraft
from tests.recorded import recorded_expressions

GREEDY = Sampling(temperature=0.0)
TARGET = lexicon([*BYTES, b"ab", b"abc", b"<stop>", "汉".encode()], specials={b"<stop>": 258}, ends=(258,))
AB, ABC, STOP, HAN = 256, 257, 258, 259


class TestStringDraft(TestTranslatedDraft):
    """Under every plan, the draft's likeliest tokens."""

    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        backend = Backwards(table, 4, n_ctx)
        translation = Intersection(lexicon(TEXTS), lexicon(TEXTS[::-1]))
        drafter = DraftModel(backend, Sampler(GREEDY), policy, lambda: False, translation=translation, writes_text=True)
        return DrafterUnderTest(drafter, (backend,))


def saying(text: Sequence[int], n_vocab: int, likely: float = 50.0) -> Table:
    """Return a model that writes `text`, over and over; the chance of its token is that of `likely` beside zeros."""

    def table(tokens: tuple[int, ...]) -> np.ndarray:
        row = np.zeros(n_vocab, np.float32)
        row[text[(len(tokens) - 1) % len(text)]] = likely
        return row

    return table


def drafting(table: Table, draft: Lexicon, n_ctx: int = 64) -> tuple[DraftModel, TableBackend]:
    backend = TableBackend(table, draft.n_vocab, n_ctx=n_ctx)
    translation = Intersection(TARGET, draft)
    drafter = DraftModel(backend, Sampler(GREEDY), Chain(), lambda: False, translation=translation, writes_text=True)
    return drafter, backend


def proposed(drafter: DraftModel, plan: Plan) -> Draft:
    return drafter.propose(ContractLimits().context([ord("x")]), plan, SeededRandom(1))


def drafted(text: Sequence[int], draft: Lexicon, k: int) -> tuple[list[int], int]:
    """Return the draft of a model that writes `text` after "x", and how many tokens it evaluated."""
    drafter, backend = drafting(saying(text, draft.n_vocab), draft)
    draft_of_target = proposed(drafter, Plan("it", k, k))
    assert set(draft_of_target.draws) == {Draw.FIXED}
    assert draft_of_target.dists == (None,) * len(draft_of_target.tokens)
    assert draft_of_target.is_chain
    return draft_of_target.tokens[1:].tolist(), backend.evaluated


def test_one_token_may_be_several() -> None:
    """What is more than the plan wants is left out."""
    assert drafted([256], lexicon([*BYTES, b"defg"]), 3) == ([*b"def"], 1)


def test_the_end_is_the_targets() -> None:
    draft = lexicon([*BYTES, b"<eos>", b"<m>"], specials={b"<eos>": 256, b"<m>": 257}, ends=(256,))
    assert drafted([*b"a", 256, *b"b"], draft, 4) == ([ord("a"), STOP], 2)
    assert drafted([*b"a", 257, *b"b"], draft, 4) == ([ord("a")], 2)
    assert drafted(["汉".encode()[0], 256], draft, 4) == ([], 2)  # in a character nothing ends


def recorded(plan_says: Sequence[bool], look_on_says: Sequence[bool] = (True,) * 9):
    asked: list[DraftState] = []
    looked: list[tuple[int, float]] = []

    def go_on(state: DraftState) -> bool:
        asked.append(state)
        return plan_says[len(asked) - 1]

    def look_on(depth: int, share: float) -> bool:
        looked.append((depth, share))
        return look_on_says[len(looked) - 1]

    drafter, backend = drafting(saying(b"abcd", 256, likely=2.0), lexicon(BYTES))
    return proposed(drafter, Plan("it", 4, 4, go_on=go_on, look_on=look_on)), asked, looked, backend


def test_the_plan_is_asked_once_for_each_token() -> None:
    """The text "abc" is one token of the target and three of the draft, whose chances multiply."""
    draft, asked, looked, _ = recorded([True] * 9)
    assert draft.tokens[1:].tolist() == [ABC, ord("d"), ABC, ord("d")]
    assert [state.depth for state in asked] == [state.n_nodes for state in asked] == [0, 1, 2, 3]
    assert [depth for depth, _ in looked] == [1, 2, 3]
    one = asked[0].share
    assert one is not None
    assert 0.0 < one < 0.99
    assert [draft.share(node) for node in range(1, 5)] == pytest.approx([one**3, one, one**3, one])
    assert asked[1].chance == pytest.approx(one**3)


def test_the_plan_ends_the_draft() -> None:
    draft, *_ = recorded([True, False])
    assert draft.tokens[1:].tolist() == [ABC]
    draft, _, _, backend = recorded([True], [False])
    assert draft.tokens[1:].tolist() == [ord("a")]
    assert backend.evaluated == 1


def generated(target_says: Sequence[int], draft_says: bytes, n: int = 24) -> tuple[set[int], list[int], TableBackend]:
    """Generate with drafts of three tokens; return the lengths accepted, the text, and the draft model."""
    drafter, backend = drafting(saying(draft_says, 256), lexicon(BYTES))
    engine = Engine.local(
        TableBackend(saying(target_says, 260), 260),
        {"it": drafter},
        CoupledVerifier(),
        Scripted([Plan("it", 3, 3)]),
        Sampler(GREEDY),
        SeededRandom(1),
        lambda: 0.0,
        lambda: False,
    )
    vocabulary = Vocabulary(lambda token: False, TARGET.piece)
    context = Context([ord("x")], vocabulary, n_ctx=64, max_tokens=n)
    accepted: set[int] = set()
    for index, step in enumerate(engine.generate(context)):
        accepted.add(step.n_accepted)
        if index:
            text = b"".join(map(TARGET.piece, context.tokens))
            assert bytes(backend.committed) == text[: backend.length]
            assert backend.length < len(text)
    return accepted, list(context.tokens), backend


def test_what_was_accepted_stays_in_its_cache() -> None:
    """The draft writes what the target does, byte by byte, and no byte is evaluated twice."""
    accepted, text, backend = generated([ord("d"), ABC, ord("d"), ABC], b"dabc")
    assert max(accepted) == 3
    assert text[1:5] == [ord("d"), ABC, ord("d"), ABC]
    assert backend.evaluated == backend.length + backend.dropped


def test_its_cache_agrees_with_the_text_whatever_is_accepted() -> None:
    lengths: set[int] = set()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        draft_says = bytes(rng.choice([*b"abd"], 7).tolist())
        said = rng.choice([*b"abd", AB], 11).tolist()
        accepted, text, _ = generated(said, draft_says, n=30)
        assert text[1:] == [said[n % 11] for n in range(30)]
        lengths |= accepted
    assert lengths == {0, 1, 2, 3}


def test_its_context_ends_the_draft() -> None:
    for n_ctx in range(1, 6):
        drafter, backend = drafting(saying(b"abcd", 256), lexicon(BYTES), n_ctx=n_ctx)
        draft = proposed(drafter, Plan("it", 4, 4))
        assert len(draft) == [0, 1, 1, 1, 2][n_ctx - 1]
        assert backend.evaluated <= n_ctx


def test_text_at_temperature_zero_is_that_of_plain_decoding() -> None:
    """Random models of two vocabularies."""
    draft = lexicon([b"a", b"b", b"ba", b"aab"])
    target = lexicon([b"a", b"b", b"ab", b"abb"])
    lengths: set[int] = set()
    for seed in range(20):
        texts = []
        for plan in (Plan("it", 3, 3), Plan("it", 0, 0)):
            backend = TableBackend(random_table(4, seed), 4)
            drafter = DraftModel(
                TableBackend(random_table(4, seed + 1), 4), Sampler(GREEDY), Chain(), lambda: False,
                translation=Intersection(target, draft), writes_text=True,
            )  # fmt: skip
            engine = Engine.local(
                backend, {"it": drafter}, CoupledVerifier(), Scripted([plan]), Sampler(GREEDY), SeededRandom(1),
                lambda: 0.0, lambda: False,
            )  # fmt: skip
            context = Context([0, 1], Vocabulary(lambda token: False, target.piece), n_ctx=64, max_tokens=30)
            lengths |= {step.n_accepted for step in engine.generate(context)}
            texts.append(list(context.tokens))
        assert texts[0] == texts[1]
    assert lengths == {0, 1, 2, 3}


test_what_is_recorded = recorded_expressions(__file__, drafted, lexicon, BYTES=BYTES)
