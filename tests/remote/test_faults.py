"""A bad way and a verifier that dies: the text is the same, or there is a clear error. Nothing twice, nothing lost.

The channel, the judge and the verifier are the shipped ones. What is in between loses, doubles, delays, reorders and
cuts messages, breaks, and kills the verifier before and after it hears; all of it drawn by a seed.
"""

from collections import Counter
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from localspec.engine.draft import Draw
from localspec.engine.protocols import Verifier
from localspec.engine.randomness import SeededRandom
from localspec.errors import LocalspecError, NetworkError, ResourceError
from localspec.remote import channel as channel_module
from localspec.remote.channel import PATIENCE, Channel
from localspec.remote.messages import (
    Error,
    Hello,
    MessageError,
    Prefix,
    ToEdge,
    ToVerifier,
    Verify,
    Welcome,
    encode,
    reply_of,
    request_of,
)
from localspec.remote.verifier import Served, random_of
from localspec.testing.contract import TableBackend
from localspec.trees.specinfer import SpecInfer
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from tests.exact.harness import PENALTIES, PROMPT, Setup, Table
from tests.remote.edges import Far, Line, Remote, Wire, run

UP = ("lost", "fades", "doubled", "late", "cut", "killed before", "killed after", "forgotten", "desync")
DOWN = ("lost", "fades", "doubled", "late", "cut")
RATE = 0.25  # of messages that have a fault
SEEDS = 40  # of each case
N_FAULTS = 2000  # that are drawn, at least
CASES: dict[str, tuple[Verifier, str, Any, Draw]] = {
    "coupled": (CoupledVerifier(), "coupled", Chain(), Draw.COUPLED),
    "coupled tree": (CoupledVerifier(), "coupled", Static((2, 2)), Draw.COUPLED),
    "ids": (MatchVerifier(), "ids", Chain(), Draw.FIXED),
    "scalar-q": (TokenVerifier(), "scalar-q", Chain(), Draw.IID),
    "sparse-q block": (BlockVerifier(), "sparse-q", Chain(), Draw.IID),
    "sparse-q tree": (TraversalVerifier(), "sparse-q", SpecInfer((2, 1)), Draw.IID),
    "laws": (TokenVerifier(), "laws", Chain(), Draw.IID),
    "laws tree": (TraversalVerifier(), "laws", SpecInfer((2, 1)), Draw.IID),
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open broken connections anew without a pause."""
    monkeypatch.setattr(channel_module, "FIRST_PAUSE", 0.0)


class BadWay:
    """A connection on which faults happen. A break is heard of at once, or after some silence."""

    def __init__(self, far: Far, seed: int, rate: float) -> None:
        self.address = SimpleNamespace(name="far:8080")
        self.up = self.down = 0
        self.faults: Counter[str] = Counter()
        self._far = far
        self._rate = rate
        self._rng = np.random.default_rng(seed)
        self._late: list[tuple[Line, bytes]] = []
        self.cut_up = False
        self.reopen()

    def reopen(self) -> None:
        self._line = Line(self._far)
        self._queue: list[bytes] = []
        self._held: list[bytes] = []
        self._patience = -1  # looks until a silent break is noticed; -1: there is none
        self._is_broken = False

    def send(self, message: ToVerifier) -> None:
        self._require()
        self._carry(encode(message))

    def receive(self, seconds: float | None = None) -> ToEdge | None:
        self._require()
        if not self._queue:
            self._queue, self._held = self._held, []
        if self._patience >= 0:
            self._patience -= 1
            self._is_broken = self._patience < 0
            return None
        if not self._queue:
            if self._late:
                self._deliver(self._late.pop(0))
                return None
            self._is_broken = True  # nothing will come any more: what pings are for
            return None
        data = self._queue.pop(0)
        fault = self._fault(DOWN)
        if fault in ("lost", "fades"):
            self._break(fault)
            return None
        if fault == "doubled":
            self._queue.append(data)
        if fault == "late":
            self._held.append(data)
            return None
        try:
            return reply_of(data[: self._rng.integers(len(data))] if fault == "cut" else data)
        except MessageError:
            self._is_broken = True
            raise NetworkError("no message") from None

    def ask(self, message: ToVerifier, stop: Any = None) -> ToEdge:
        """Ask, on a way that is good for as long."""
        assert isinstance(message, Hello)
        return reply_of(self._line.hear(encode(message))[0])

    def close(self) -> None:
        self._is_broken = True

    def _require(self) -> None:
        if self._is_broken:
            raise NetworkError("the connection is gone")

    def _break(self, fault: str) -> None:
        self._is_broken = fault == "lost"
        self._patience = 2 if fault == "fades" else -1

    def _carry(self, data: bytes) -> None:
        fault = self._fault(UP)
        if fault in ("lost", "fades"):
            return self._break(fault)
        if fault == "late":
            self._late.append((self._line, data))
            return None
        if fault == "killed before":
            self._far.die()
            self._is_broken = True
            return None
        if fault == "forgotten":
            self._far.die()
        if fault == "desync":
            data = self._other(data)
        self.cut_up |= fault == "cut"
        self._deliver((self._line, data[: self._rng.integers(len(data))] if fault == "cut" else data))
        if fault == "doubled":
            self._deliver((self._line, data))
        if fault == "killed after":
            self._far.die()
            self._is_broken = True
        if self._late and self._rng.random() < 0.5:
            self._deliver(self._late.pop(0))
        return None

    def _other(self, data: bytes) -> bytes:
        """Return a text with one other token; where it is known already, the verifier has one token more."""
        message = request_of(data)
        if isinstance(message, Prefix):
            return encode(Prefix(message.base, (*message.ids[:-1], (message.ids[-1] + 1) % 5)))
        for session in self._far.verifier._sessions.values():
            if session._text is not None:
                session._text.tokens.append(0)
        return data

    def _deliver(self, late: tuple[Line, bytes]) -> None:
        line, data = late
        replies = line.hear(data)
        if line is self._line:
            self._queue += replies

    def _fault(self, kinds: tuple[str, ...]) -> str:
        if self._rng.random() >= self._rate:
            return ""
        fault = kinds[self._rng.integers(len(kinds))]
        self.faults[fault] += 1
        return fault


def remote(case: str, seed: int) -> Remote:
    rule, mode, policy, draw = CASES[case]
    n = 3 if isinstance(policy, Chain) else 6
    return Remote(Setup(rule, policy, n, 3, draw, PENALTIES, max_tokens=20, n_vocab=5, seed=seed), mode, seed)


def answered(
    one: Remote, way: BadWay, target: Table, draft: Table, seed: int
) -> tuple[list[int], LocalspecError | None]:
    return through(Channel(way, lambda: False, lambda event: None), one, target, draft, seed)


def through(
    channel: Channel, one: Remote, target: Table, draft: Table, seed: int
) -> tuple[list[int], LocalspecError | None]:
    """Return the text of an answer over a channel, and the error that ended it."""
    can = TableBackend(target, one.setup.n_vocab, one.setup.n_ctx).capabilities
    engine, context = one.engine(channel, draft, SeededRandom(seed), can)
    try:
        for _ in engine.generate(context):
            pass
    except LocalspecError as error:
        return context.tokens[len(PROMPT) :], error
    return context.tokens[len(PROMPT) :], None


@pytest.mark.parametrize("case", CASES)
def test_the_text_is_the_same_or_there_is_a_clear_error(case: str) -> None:
    """Only a message that arrives cut is an error: no network cuts one inside a connection."""
    faults: Counter[str] = Counter()
    for seed in range(SEEDS):
        one = remote(case, seed)
        target, draft = one.setup.tables()
        whole, _ = run(one, target, draft, SeededRandom(seed), random_of)
        way = BadWay(one.far(target, random_of), seed, RATE)
        text, error = answered(one, way, target, draft, seed)
        assert text == whole[: len(text)]
        assert (error is None) == (text == whole)
        if error is not None:
            assert "is no message" in error.message
            assert "\n" not in error.message
            assert error.hint
            assert way.cut_up
        faults += way.faults
    assert sum(faults.values()) >= N_FAULTS / len(CASES)
    assert set(faults) == {*UP, *DOWN}


def test_an_edge_that_is_killed_leaves_nothing_behind() -> None:
    """After any number of its passes; the next edge of the same verifier has its text as if it were alone."""
    for case in CASES:
        one = remote(case, 1)
        target, draft = one.setup.tables()
        whole, _ = run(one, target, draft, SeededRandom(1), random_of)
        far = one.far(target, random_of)
        can = TableBackend(target, one.setup.n_vocab, one.setup.n_ctx).capabilities
        for n in range(8):
            engine, context = one.engine(Wire(far), draft, SeededRandom(5), can)
            for _, _ in zip(range(n), engine.generate(context), strict=False):
                pass
            engine, context = one.engine(Wire(far), draft, SeededRandom(1), can)
            for _ in engine.generate(context):
                pass
            assert context.tokens[len(PROMPT) :] == whole


def test_edges_take_turns() -> None:
    """Two answers at once, pass by pass, with one target: each has the text that it would have alone."""
    for case in CASES:
        one = remote(case, 1)
        target, draft = one.setup.tables()
        far = one.far(target, random_of)
        can = TableBackend(target, one.setup.n_vocab, one.setup.n_ctx).capabilities
        alone = run(one, target, draft, SeededRandom(1), random_of)[0]
        parts = [one.engine(Wire(far), draft, SeededRandom(1), can) for _ in range(2)]
        for _ in zip(*(engine.generate(context) for engine, context in parts), strict=True):
            pass
        assert [context.tokens[len(PROMPT) :] for _, context in parts] == [alone, alone]


@pytest.mark.parametrize("case", CASES)
def test_what_a_stopped_answer_had_asked_is_not_the_next_ones(case: str) -> None:
    """Its Welcome and its Result are on their way when the next answer begins, whose rounds have the same numbers."""
    stopped = False
    for seed in range(8):
        one, other = remote(case, seed), remote(case, seed + 100)
        target, draft = one.setup.tables()
        whole, _ = run(one, target, draft, SeededRandom(seed), random_of)
        channel = Channel(BadWay(one.far(target, random_of), 1, 0.0), lambda: stopped, lambda event: None)  # noqa: B023
        stopped = True
        text, _ = through(channel, other, target, draft, seed)
        assert not text
        stopped = False
        assert through(channel, one, target, draft, seed) == (whole, None)


def test_a_verifier_that_breaks_on_every_round_is_given_up() -> None:
    """It lets the edge in each time, and is gone once it hears the round."""
    one = remote("coupled", 1)
    target, draft = one.setup.tables()
    way, clock = BadWay(one.far(target, random_of), 1, 0.0), count()
    hear = way.send

    def send(message: ToVerifier) -> None:
        hear(message)
        way._is_broken = isinstance(message, Verify)

    way.send = send  # type: ignore[method-assign]
    told: list[object] = []
    channel = Channel(way, lambda: False, told.append, clock=lambda: float(next(clock)))
    text, error = through(channel, one, target, draft, 1)
    assert (text, isinstance(error, NetworkError)) == ([], True)
    assert 1 < channel.n_broken < PATIENCE
    way.send = hear  # type: ignore[method-assign]
    whole, _ = run(one, target, draft, SeededRandom(1), random_of)
    assert through(channel, one, target, draft, 1) == (whole, None), "the next answer begins anew"


def test_an_error_of_a_stopped_answer_is_not_the_next_ones() -> None:
    """That the target could not judge is on its way when the person has stopped and asked anew."""
    one = remote("coupled", 1)
    target, draft = one.setup.tables()
    whole, _ = run(one, target, draft, SeededRandom(1), random_of)
    far, full, stopped = one.far(target, random_of), [True], [False]

    def served(hello: Hello) -> Served:
        if full:
            full.clear()
            raise ResourceError("no memory is left", hint="a smaller --ctx")
        return make(hello)

    make = far.verifier.served
    object.__setattr__(far.verifier, "served", served)
    way = BadWay(far, 1, 0.0)
    channel = Channel(way, lambda: stopped[0], lambda event: None)
    stopped[0] = True
    assert through(channel, one, target, draft, 1) == ([], None)
    assert [type(reply_of(data)) for data in way._queue] == [Welcome, Error]
    stopped[0] = False
    assert through(channel, one, target, draft, 1) == (whole, None)
    assert channel.n_broken == 0, "and the connection is as good as before"


def test_an_error_of_an_older_verifier_is_that_of_the_answer_at_hand() -> None:
    """It names none."""
    one = remote("coupled", 1)
    target, draft = one.setup.tables()
    way = BadWay(one.far(target, random_of), 1, 0.0)
    hear = way.send

    def send(message: ToVerifier) -> None:
        hear(message)
        if isinstance(message, Verify):
            way._queue[-1:] = [encode(Error("resources", "no memory is left"))]

    way.send = send  # type: ignore[method-assign]
    text, error = through(Channel(way, lambda: False, lambda event: None), one, target, draft, 1)
    assert (text, error and error.message) == ([], "the verifier: no memory is left")
