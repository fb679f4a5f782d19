"""What a verifier refuses, what it forgets, and what an edge does not believe."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from localspec.engine.context import Vocabulary
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import Cancelled, Rows
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.errors import IncompatibleError, UsageError
from localspec.remote.judge import RemoteJudge
from localspec.remote.messages import (
    Error,
    Hello,
    Prefix,
    Result,
    Resync,
    SentDist,
    ToEdge,
    ToVerifier,
    Verify,
    Wait,
    digest_of,
    packed,
)
from localspec.remote.modes import MODES, QuantisedSampler, mode_of
from localspec.remote.verifier import MOST_SESSIONS, Served, VerifyingSessions, random_of
from localspec.settings.request import Sampling
from localspec.testing.contract import TableBackend, random_table
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.token import TokenVerifier
from tests.exact.harness import OPEN

V, N_CTX, TEXT = 5, 24, (0, 1, 2)
HELLO = Hello(1, "v", mode="coupled", verify="coupled", seed=7, sampling=OPEN, prompt_n=len(TEXT))
TABLE = random_table(V, 1)


class Replaying(TableBackend):
    """A target that must read a token again before the next pass can draft; of numbers that llama.cpp takes."""

    replay = 0

    def extend(self, tokens: Any, parents: Any, outputs: Any) -> Rows:
        assert (tokens.dtype, parents.dtype, outputs.dtype) == (np.int32, np.int32, np.bool_)
        return super().extend(tokens, parents, outputs)

    @property
    def to_replay(self) -> int:
        return self.replay


def backend() -> Replaying:
    made = Replaying(TABLE, V, N_CTX)
    made.capabilities = replace(made.capabilities, max_rows=8, max_leaves=3)
    return made


def verifier(target: TableBackend, eog: int = -1, piece: bytes = b"x") -> VerifyingSessions:
    vocabulary = Vocabulary(lambda token: token == eog, lambda token: piece)
    return VerifyingSessions(lambda hello: Served(target, Sampler(hello.sampling), vocabulary), clock=lambda: 0.0)


def ask(one: VerifyingSessions, verify: Verify, *prefixes: Prefix, hello: Hello = HELLO, name: str = "s") -> ToEdge:
    return one.answer(name, hello, prefixes, verify, lambda: False)


def first(number: int = 1, draft: tuple[int, ...] = (), **fields) -> Verify:
    return Verify(number, len(TEXT), digest_of(TEXT), draft, **fields)


def test_a_text_that_is_not_there_is_asked_for() -> None:
    """None at all, one that ends elsewhere, and one with another token."""
    one = verifier(backend())
    assert ask(one, first()) == ask(one, first(), Prefix(0, ())) == Resync(0, 0)
    assert ask(one, first(), Prefix(0, TEXT[:2])) == Resync(2, digest_of(TEXT[:2]))
    assert ask(one, first(), Prefix(0, (0, 1, 3))) == Resync(3, digest_of((0, 1, 3)))
    assert ask(one, first(), Prefix(9, TEXT)) == Resync(3, digest_of((0, 1, 3))), "what does not fit changes nothing"
    assert isinstance(ask(one, first(), Prefix(2, TEXT[2:])), Result)


def test_a_round_is_judged_once() -> None:
    """Asked again it has its Result, even if the draft is another by now; an older one has none that an edge takes."""
    target = backend()
    one = verifier(target)
    found = ask(one, first(4, (1, 2)), Prefix(0, TEXT))
    evaluated = target.evaluated
    assert ask(one, first(4, (1, 2))) == found
    assert ask(one, first(4)) == found
    assert ask(one, first(3)) == Result(3, 0, None, 0)
    assert target.evaluated == evaluated


@pytest.mark.parametrize(
    ("verify", "told"),
    [
        (first(draft=(1, V)), "no token 5"),
        (first(committed=(V,)), "no token 5"),
        (first(draft=(1,) * 8), "too long"),
        (first(draft=(1, 2, 3, 4), parents=(0, 0, 0, 0)), "too wide"),
        (first(draft=(1, 2), parents=(0, 2)), "no tree"),
        (first(draft=(1,) * 3, committed=(1,) * 19), "does not fit"),
        (first(draft=(1,), laws=(SentDist(b"abc", b""),)), "no probability"),
        (
            first(draft=(1,), laws=(SentDist.of(Distribution(np.array([2], np.int32), np.ones(1))),)),
            "not drawn from its law",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_judged_is_one_line(verify: Verify, told: str) -> None:
    """And nothing of the session changes by it."""
    target = backend()
    one = verifier(target)
    found = ask(one, verify, Prefix(0, TEXT), hello=msgspec.structs.replace(HELLO, answer=7))
    assert isinstance(found, Error)
    assert told in found.message
    assert (found.code, found.answer) == ("usage", 7)
    assert target.evaluated == 0
    assert isinstance(ask(one, first()), Result)


def test_scalar_needs_a_chance_for_each_token() -> None:
    hello = msgspec.structs.replace(HELLO, mode="scalar-q", verify="token")
    one = verifier(backend())
    for q in (b"", packed(np.zeros(2)), packed(np.ones(1))):
        found = ask(one, first(draft=(1, 2), q=q), Prefix(0, TEXT), hello=hello)
        assert isinstance(found, Error)
        assert "probability" in found.message
    tree = ask(one, first(draft=(1, 2), parents=(0, 0), q=packed(np.full(2, 0.5))), hello=hello)
    assert isinstance(tree, Error)
    assert "of 2 leaves is too wide" in tree.message
    assert isinstance(ask(one, first(draft=(1, 2), q=packed(np.full(2, 0.5))), hello=hello), Result)


@pytest.mark.parametrize("mode", ["scalar-q", "laws"])
def test_a_law_of_the_target_has_eight_bytes_a_token(mode: str) -> None:
    """It is quantised, in the coins too: what comes back is what the token was tested by."""
    hello, tested = msgspec.structs.replace(HELLO, mode=mode, verify="token"), 0
    for seed in range(20):
        one = verifier(backend())
        found = ask(
            one,
            first(draft=(1,), q=packed(np.ones(1))),
            Prefix(0, TEXT),
            hello=msgspec.structs.replace(hello, seed=seed),
        )
        assert isinstance(found, Result)
        for law in found.laws:
            assert len(law.probs) == len(law.ids)
            tested += 1
        assert mode == "scalar-q" or found.node == 0
    assert tested > 10


def test_a_law_of_a_draft_has_eight_bytes_a_token() -> None:
    """And is what was drawn from, with what the draft thinks of it at temperature 1."""
    sampler, row = QuantisedSampler(replace(OPEN, temperature=0.7)), TABLE(TEXT)
    dist = sampler.dist(row, with_belief=True)
    law = SentDist.of(dist)
    assert len(law.probs) == len(law.ids)
    arrived = law.distribution(V)
    assert arrived is not None
    assert arrived.probs.tolist() == dist.probs.tolist()
    assert dist.untempered is not None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"mode": "dense"}, "no mode dense"),
        ({"mode": "ids", "verify": "token"}, "no rule token"),
        ({"mode": "sparse-q", "verify": "spectr"}, "no rule spectr"),
    ],
)
def test_a_mode_that_there_is_not_is_one_line(change: dict[str, str], told: str) -> None:
    hello = msgspec.structs.replace(HELLO, answer=7, **change)
    found = ask(verifier(backend()), first(), Prefix(0, TEXT), hello=hello)
    assert isinstance(found, Error)
    assert told in found.message
    rules = MODES[hello.mode].rules if hello.mode in MODES else ()
    assert found.hint == (f"--verify {rules[0]}" if rules else "one of coupled, ids, scalar-q, sparse-q, laws")
    assert found.answer == 7


def test_laws_without_a_limit_are_refused_where_the_vocabulary_is_large() -> None:
    for name, mode in MODES.items():
        verify = mode.rules[0] if mode.rules else "token"
        mode.require(verify, OPEN, 1000)
        mode.require(verify, Sampling(top_k=40), 150_000)
        mode.require(verify, replace(OPEN, temperature=0.0), 150_000)
        mode.require(verify, OPEN, 4096)
        if mode.has_laws:
            for n in (4097, 150_000):
                with pytest.raises(UsageError, match=f"{n} tokens") as caught:
                    mode.require(verify, OPEN, n)
                assert caught.value.hint == "--top-k 40"
        assert mode_of(name) is mode


def test_what_the_modes_can_do() -> None:
    assert {mode.name: (mode.rules, mode.has_laws, mode.trees) for mode in MODES.values()} == {
        "coupled": (("coupled",), False, True),
        "ids": (("match",), False, True),
        "scalar-q": (("token",), True, False),
        "sparse-q": (("token", "block", "traversal", "tree"), True, True),
        "laws": ((), True, True),
    }


def test_a_text_longer_than_the_context_is_refused() -> None:
    found = ask(verifier(backend()), first(), Prefix(0, (1,) * N_CTX))
    assert isinstance(found, Error)
    assert (found.code, "24" in found.message) == ("prompt_too_long", True)
    assert "localspec serve --ctx N" in found.hint
    longest = (1,) * (N_CTX - 1)
    found = ask(verifier(backend()), Verify(1, len(longest), digest_of(longest)), Prefix(0, longest))
    assert isinstance(found, Result)


def test_the_largest_draft_that_there_may_be() -> None:
    """As many nodes, leaves and tokens of the context as the verifier has."""
    for verify in (
        first(draft=(1,) * 7),
        first(draft=(1, 2, 3), parents=(0, 0, 0)),
        first(draft=(1,) * 3, committed=(1,) * 18),
    ):
        assert isinstance(ask(verifier(backend()), verify, Prefix(0, TEXT)), Result)


def test_a_target_that_cannot_take_a_draft_back_is_sent_none() -> None:
    target = backend()
    target.capabilities = replace(target.capabilities, can_rollback=False)
    one = verifier(target)
    found = ask(one, first(draft=(1,)), Prefix(0, TEXT))
    assert isinstance(found, Error)
    assert "a draft of 1 token is too long" in found.message
    assert isinstance(ask(one, first()), Result)


def test_a_draft_behind_one_token() -> None:
    """That token is the draft's root, and before it is nothing to be read."""
    one = verifier(backend())
    found = ask(one, Verify(1, 1, digest_of((3,)), (1,)), Prefix(0, (3,)))
    assert isinstance(found, Error)
    assert "a text of one token has no draft yet" in found.message
    assert isinstance(ask(one, Verify(1, 2, digest_of((3, 1)), (1,)), Prefix(0, (3, 1))), Result)


@pytest.mark.parametrize(("n", "passes"), [(3, 1), (4, 2)])
def test_what_fits_into_one_pass_is_one(n: int, passes: int) -> None:
    """Eight rows: the token before, what the edge drew, and four of the draft."""
    target = backend()
    one, hello = verifier(target), msgspec.structs.replace(HELLO, mode="laws")
    assert isinstance(ask(one, first(), Prefix(0, TEXT), hello=hello), Result)
    calls = target.calls
    found = ask(one, first(2, (1, 2, 3, 4), committed=(1,) * (n + 1)), hello=hello)
    assert isinstance(found, Result)
    assert target.calls == calls + passes


def test_a_result_tells_its_time_and_at_the_end_the_memory() -> None:
    times = iter([1.0, 1.25, 2.0, 2.5])
    vocabulary = Vocabulary(lambda token: False, lambda token: b"x")
    one = VerifyingSessions(
        lambda hello: Served(backend(), Sampler(hello.sampling), vocabulary), clock=lambda: next(times), peak=lambda: 9
    )
    hello = msgspec.structs.replace(HELLO, mode="ids", verify="match", max_tokens=2)
    found = ask(one, first(), Prefix(0, TEXT), hello=hello)
    assert isinstance(found, Result)
    assert (found.micros, found.finish, found.peak) == (250_000, "", 0)
    text = (*TEXT, found.token)
    last = ask(one, Verify(2, 4, digest_of(text)), hello=hello)
    assert isinstance(last, Result)
    assert (last.micros, last.finish, last.peak) == (500_000, "length", 9)
    unknown = ask(verifier(backend()), first(), Prefix(0, TEXT), hello=msgspec.structs.replace(hello, max_tokens=1))
    assert isinstance(unknown, Result)
    assert (unknown.finish, unknown.peak) == ("length", 0)


@pytest.mark.parametrize("rule", ["end", "stop", "limit"])
def test_an_answer_ends_at_the_verifier_too(rule: str) -> None:
    """An accepted end cuts what stands behind it, and the Result says why."""
    every = verifier(backend())
    found = ask(every, first(), Prefix(0, TEXT))
    assert isinstance(found, Result)
    token = found.token
    assert token is not None
    one = verifier(backend(), token if rule == "end" else -1)
    hello = msgspec.structs.replace(
        HELLO, stops=("x",) if rule == "stop" else (), max_tokens=1 if rule == "limit" else 9
    )
    found = ask(one, first(draft=(token, 0, 1)), Prefix(0, TEXT), hello=hello)
    assert isinstance(found, Result)
    assert (found.finish, found.length) == ("length" if rule == "limit" else "stop", len(TEXT) + 1)


@pytest.mark.parametrize(
    ("prompt_n", "most", "finish"), [(1, 4, "length"), (1, 5, ""), (0, 1, "length"), (9, 1, "length")]
)
def test_the_prompt_is_no_part_of_the_answer(prompt_n: int, most: int, finish: str) -> None:
    """Sent again with what followed, the text has the answer's limits from where it began."""
    hello = msgspec.structs.replace(HELLO, max_tokens=most, prompt_n=prompt_n)
    text = (*TEXT, 3)
    found = ask(verifier(backend()), Verify(1, 4, digest_of(text)), Prefix(0, text), hello=hello)
    assert isinstance(found, Result)
    assert found.finish == finish


def test_of_many_sessions_the_oldest_are_forgotten() -> None:
    one = verifier(backend())
    for name in range(MOST_SESSIONS + 1):
        assert isinstance(ask(one, first(), Prefix(0, TEXT), name=str(name)), Result)
    assert isinstance(ask(one, first(), name="1"), Result), "as many are remembered"
    assert isinstance(ask(one, first(2), name="0"), Resync)
    one.forget("never there")
    one.forget(str(MOST_SESSIONS))
    assert isinstance(ask(one, first(2), name=str(MOST_SESSIONS)), Resync)


@pytest.mark.parametrize("mode", ["coupled", "laws"])
def test_a_text_is_evaluated_once(mode: str) -> None:
    """One pass a round: what is accepted stays in the cache, and what the edge drew is in the next pass."""
    target, text = backend(), list(TEXT)
    one, hello = verifier(target), msgspec.structs.replace(HELLO, mode=mode, verify="coupled")
    told, fresh, prefixes = len(TEXT), (), [Prefix(0, TEXT)]
    for number in range(1, 6):
        draft = (3, 3) if number > 1 else ()
        found = ask(one, Verify(number, told, digest_of(text[:told]), draft, (), fresh), *prefixes, hello=hello)
        assert isinstance(found, Result)
        assert target.calls == number
        fresh, prefixes, told = (1, 2) if mode == "laws" else (), [], found.length
        text = [*one._sessions["s"]._text.tokens, *fresh]
    assert target.evaluated == target.length + target.dropped


def test_a_target_that_replays_does_so_before_a_draft() -> None:
    target = backend()
    one = verifier(target)
    found = ask(one, first(), Prefix(0, TEXT))
    assert isinstance(found, Result)
    text, target.replay, calls = (*TEXT, found.token), 1, target.calls
    assert isinstance(ask(one, Verify(2, 4, digest_of(text), (1, 2))), Result)
    assert target.calls == calls + 2


def test_a_state_of_another_text_is_never_gone_on_with() -> None:
    """Another's round puts a longer state back and is stopped before its first pass: nothing was evaluated."""
    target = backend()
    one = verifier(target)
    found = ask(one, first(), Prefix(0, TEXT))
    assert isinstance(found, Result)
    text = [*TEXT, found.token]
    target.committed = [4]
    assert isinstance(ask(one, Verify(2, 4, digest_of(text), (1, 2))), Result)
    assert target.committed[:4] == text


def test_reading_a_text_may_be_stopped() -> None:
    class Stopped(TableBackend):
        def prefill(self, tokens, cancel):
            raise Cancelled

    one = verifier(Stopped(TABLE, V))
    with pytest.raises(Cancelled):
        ask(one, first(), Prefix(0, TEXT))


def test_rounds_have_chances_of_their_own() -> None:
    """The same when asked again; other ones in the next round, in another session, and at the edge."""
    law = Distribution(np.arange(1000, dtype=np.int32), np.full(1000, 1e-3))
    hello = msgspec.structs.replace(HELLO, mode="ids", verify="match")

    def drawn(source) -> tuple[int, ...]:
        return tuple(source.categorical(law) for _ in range(4))

    sources: list[Callable] = [lambda n=n: random_of(hello, n) for n in range(1, 6)]
    sources += [lambda: SeededRandom(7), lambda: random_of(msgspec.structs.replace(hello, seed=8), 1)]
    assert len({drawn(make()) for make in sources}) == len(sources)
    assert all(drawn(make()) == drawn(make()) for make in sources)
    assert drawn(random_of(hello, 3)) == drawn(SeededRandom(3 << 64 | 7))
    for position in range(5):  # races are those of a local run
        assert random_of(HELLO, 3).gumbel_top_k(position, law) == SeededRandom(7).gumbel_top_k(position, law)


class Saying:
    """A verifier that gives one answer, whatever it is asked."""

    def __init__(self, answer: ToEdge) -> None:
        self.answer = answer
        self.heard: list[ToVerifier] = []

    def send(self, message: ToVerifier) -> None:
        self.heard.append(message)

    def receive(self) -> ToEdge:
        return self.answer

    def has_come(self) -> bool:
        return True


ROW = SentDist.of(Distribution(np.arange(V, dtype=np.int32), np.full(V, 0.2)))


@pytest.mark.parametrize(
    ("mode", "answer", "told"),
    [
        ("coupled", Result(1, 3, 1, 7), "it names what there is not"),
        ("coupled", Result(1, 0, V, 4), "it names what there is not"),
        ("coupled", Result(1, 0, 1, 2), "the verifier's text has 2 tokens, and the edge's 4"),
        ("coupled", Result(1, 0, 1, 9), "the verifier's text has 9 tokens, and the edge's 4"),
        ("coupled", Result(1, 0, None, 3), "fits no draft"),
        ("scalar-q", Result(1, 2, None, 5, laws=(ROW,)), "fits no draft"),
        ("scalar-q", Result(1, 0, None, 3, laws=(SentDist(),)), "a law is empty"),
        ("laws", Result(1, 0, None, 3, laws=(ROW,)), "it has 1 laws for 3 rows"),
        ("laws", Result(1, 0, None, 3, laws=(ROW,) * 4), "it has 4 laws for 3 rows"),
        ("laws", Result(1, 0, None, 3, laws=(ROW, ROW, SentDist(b"abcd", b"abcdefgh"))), "do not ascend"),
        ("coupled", Resync(0, 0), "the verifier has another text, however often it is sent"),
    ],
    ids=range(11),
)
def test_an_answer_that_fits_no_draft_is_not_believed(mode: str, answer: ToEdge, told: str) -> None:
    hello = msgspec.structs.replace(HELLO, mode=mode, verify=(MODES[mode].rules or ("token",))[0])
    rule = CoupledVerifier() if mode == "coupled" else TokenVerifier()
    judge = RemoteJudge(Saying(answer), hello, backend().capabilities, rule, SeededRandom(1))
    judge._n_sent, judge._digest = len(TEXT), digest_of(TEXT)
    draft = Draft.of((TEXT[-1], 1, 2), (-1, 0, 1))
    with pytest.raises(IncompatibleError) as caught:
        judge.verdict(draft, list(TEXT), lambda: None)
    assert told in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint == "pip install -U localspec, on both machines"
    channel = judge.channel
    assert isinstance(channel, Saying)
    assert sum(isinstance(each, Verify) for each in channel.heard) == (17 if isinstance(answer, Resync) else 1)


def test_the_rows_of_the_target_are_not_to_be_had() -> None:
    channel, hello = Saying(Result(1, 0, 1, 4, micros=45_000)), msgspec.structs.replace(HELLO, prompt_n=0, session="s")
    judge = RemoteJudge(channel, hello, backend().capabilities, CoupledVerifier(), SeededRandom(1))
    _, rows = judge.start(Draft.root(TEXT[-1]), list(TEXT), lambda: None, lambda: False)
    with pytest.raises(UsageError, match="stay with its verifier") as caught:
        rows.logits(0)
    assert caught.value.hint == "--method draft-model"
    assert channel.heard == [HELLO, Prefix(0, TEXT), first()], "all at once"
    assert (judge.length, judge.evaluated, judge.to_replay) == (3, 3, 0)
    judge.keep((0, 1))
    assert judge.length == 5


def test_a_long_text_is_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.remote.judge.MOST_IDS", 2)
    channel = Saying(Result(1, 0, 1, 4))
    judge = RemoteJudge(channel, HELLO, backend().capabilities, CoupledVerifier(), SeededRandom(1))
    judge.start(Draft.root(TEXT[-1]), list(TEXT), lambda: None, lambda: False)
    assert channel.heard[1:-1] == [Prefix(0, TEXT[:2]), Prefix(2, TEXT[2:])]


@pytest.mark.parametrize(
    ("replies", "sent"),
    [
        ([Wait(1), Result(9, 0, 3, 4)], []),
        ([Resync(2, digest_of(TEXT[:2]))], [Prefix(2, TEXT[2:])]),
        ([Resync(3, digest_of(TEXT))], [Prefix(3, ())]),
        ([Resync(2, 5)], [Prefix(0, TEXT)]),
        ([Resync(4, digest_of(TEXT))], [Prefix(0, TEXT)]),  # a token more than it has told of
    ],
)
def test_what_the_verifier_lacks_is_sent_and_no_more(replies: list[ToEdge], sent: list[ToVerifier]) -> None:
    """And what is no answer to this round is passed over."""
    answer, left = Result(1, 0, 1, len(TEXT) + 1), iter(replies)
    judge = judging(answer)
    channel = judge.channel
    assert isinstance(channel, Saying)
    channel.receive = lambda: next(left, answer)  # type: ignore[method-assign]
    verdict, _ = judge.verdict(Draft.root(TEXT[-1]), list(TEXT), lambda: None)
    assert verdict.token == 1
    assert channel.heard == [first(), *sent, *[first()] * bool(sent)]


class Meantime:
    """Notes what a judge tells of a round."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def wait(self, draft: Draft, has_come: Callable[[], bool]) -> None:
        self.told.append((len(draft), has_come()))

    def verdict_came(self, draft: Draft, seconds: float) -> None:
        self.told.append((len(draft), seconds))


def test_who_reads_on_is_told_of_the_round_and_of_its_seconds() -> None:
    judge, meantime = judging(Result(1, 0, 1, len(TEXT) + 1, micros=45_000)), Meantime()
    judge.meantime = meantime  # type: ignore[assignment]
    judge.verdict(Draft.of((TEXT[-1], 1, 2), (-1, 0, 1)), list(TEXT), lambda: None)
    assert meantime.told == [(2, True), (2, 0.045)]


def judging(answer: ToEdge) -> RemoteJudge:
    judge = RemoteJudge(Saying(answer), HELLO, backend().capabilities, CoupledVerifier(), SeededRandom(1))
    judge._n_sent, judge._digest = len(TEXT), digest_of(TEXT)
    return judge


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("coupled", (False, 0, "")),
        ("scalar-q", (True, 0, "")),
        ("sparse-q", (False, 2, "iid")),
        ("laws", (False, 0, "")),
    ],
)
def test_a_question_has_what_its_mode_needs_and_no_more(mode: str, told: tuple[bool, int, str]) -> None:
    q = Distribution(np.arange(V, dtype=np.int32), np.full(V, 0.2))
    draft = Draft.of((TEXT[-1], 1, 2), (-1, 0, 1), (None, q, q), Draw.IID)
    judge = judging(Result(1, 0, 1, len(TEXT) + 1))
    judge.hello = msgspec.structs.replace(HELLO, mode=mode)
    sent = judge._verify(draft, list(TEXT))
    assert (bool(sent.q), len(sent.laws), sent.draw) == told
    bare = judge._verify(Draft.root(TEXT[-1]), list(TEXT))
    assert (bare.q, bare.laws, bare.draw) == (b"", (), "")


@pytest.mark.parametrize(("laws", "draw"), [((0,), "iid"), ((1,), "iid"), ((), ""), ((0, 1), "iid")])
def test_how_a_draft_was_drawn_is_told_by_those_of_its_nodes_that_were(laws: tuple[int, ...], draw: str) -> None:
    q = Distribution(np.arange(V, dtype=np.int32), np.full(V, 0.2))
    draft = Draft.of((TEXT[-1], 1, 2), (-1, 0, 1), (None, *(q if i in laws else None for i in range(2))), Draw.IID)
    judge = judging(Result(1, 0, 1, len(TEXT) + 1))
    judge.hello = msgspec.structs.replace(HELLO, mode="sparse-q")
    assert judge._verify(draft, list(TEXT)).draw == draw
    assert judge._verify(draft.only((0, 1)), list(TEXT)).draw == ("iid" if 0 in laws else "")


def test_nodes_that_cannot_stand_are_not_sent() -> None:
    """Padding, and nodes that a constraint cut; the answer's numbers are those of the nodes that were."""
    draft = Draft.of((TEXT[-1], 4, 1, 3), (-1, 0, 0, 2))
    draft = replace(draft, scratch=np.array([False, True, False, False])).padded(7)
    judge = judging(Result(1, 2, 0, len(TEXT) + 3))
    channel = judge.channel
    assert isinstance(channel, Saying)
    verdict, _ = judge.verdict(draft, list(TEXT), lambda: None)
    (verify,) = channel.heard
    assert isinstance(verify, Verify)
    assert (verify.draft, verify.parents) == ((1, 3), ())
    assert (verdict.path, verdict.token) == ((2, 3), 0)
    assert (judge._n_sent, judge._digest) == (6, digest_of((*TEXT, 1, 3, 0)))


def test_a_forced_token_that_was_rejected_is_an_error() -> None:
    draft = Draft.root(1).after(TEXT[-1], [1], outputs=True)
    with pytest.raises(IncompatibleError, match="another form") as caught:
        judging(Result(1, 0, 3, len(TEXT) + 1)).verdict(draft, list(TEXT), lambda: None)
    assert caught.value.hint == "pip install -U localspec, on both machines"
    verdict, _ = judging(Result(1, 1, 3, len(TEXT) + 2)).verdict(draft, list(TEXT), lambda: None)
    assert verdict.token == 3
