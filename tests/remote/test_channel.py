"""What an edge hears from its verifier, and what a person is told while it waits."""

import random
from itertools import pairwise
from types import SimpleNamespace

import pytest

from localspec.engine.events import Event, Loading, Waiting
from localspec.engine.events import Way as Taken
from localspec.engine.protocols import Cancelled
from localspec.errors import IntegrityError, LocalspecError, NetworkError
from localspec.remote import channel as channel_module
from localspec.remote import vocabulary as vocabulary_module
from localspec.remote.channel import WAITS, Channel
from localspec.remote.messages import (
    LONGEST_PART,
    Bye,
    Cancel,
    Error,
    Facts,
    Fetch,
    Hello,
    Result,
    ToEdge,
    ToVerifier,
    Verify,
    VocabularyPart,
    Wait,
    Welcome,
)
from localspec.remote.vocabulary import fetched, vocabulary_of

HELLO, VERIFY, RESULT = Hello(1, "v"), Verify(1, 1, 0), Result(1, 0, 5, 2)


class Way:
    """A connection that brings some messages, in order; an error breaks it until it is opened anew."""

    def __init__(self, *news: ToEdge | NetworkError | None) -> None:
        self.address = SimpleNamespace(name="far:8080")
        self.up = self.down = 0
        self.is_closed = False
        self.sent: list[ToVerifier] = []
        self.fails: list[NetworkError] = []  # of attempts to open it anew
        self._news: list[ToEdge | NetworkError | None] = list(news)

    def send(self, message: ToVerifier) -> None:
        self.sent.append(message)

    def receive(self, seconds: float | None = None) -> ToEdge | None:
        one = self._news.pop(0)
        if isinstance(one, NetworkError):
            raise one
        return one

    def ask(self, message: ToVerifier, cancel: object = None) -> ToEdge:
        assert callable(cancel) == isinstance(message, Hello), "who takes a session up may be stopped"
        self.send(message)
        reply = self.receive()
        assert reply is not None
        return reply

    def reopen(self) -> None:
        """Nothing is lost of what is to come."""
        if self.fails:
            raise self.fails.pop(0)

    def close(self) -> None:
        self.is_closed = True


def begun(*news: ToEdge | NetworkError | None) -> tuple[Channel, Way, list[Event]]:
    """Return a channel whose first round was asked, its connection, and what a person is told."""
    told: list[Event] = []
    way = Way(Welcome(0, 0, "s"), *news)
    channel = Channel(way, lambda: False, told.append)  # type: ignore[arg-type]
    channel.send(HELLO)
    assert isinstance(channel.receive(), Welcome)
    channel.send(VERIFY)
    return channel, way, told


@pytest.mark.parametrize("is_looked_for", [False, True])
def test_a_person_is_told_how_many_come_first(is_looked_for: bool) -> None:
    """Nobody before: the verifier works for this one, which is no queue."""
    channel, _, told = begun(Wait(2), Wait(0), RESULT)
    looks = [channel.has_come() for _ in range(3)] if is_looked_for else []
    assert channel.receive() == RESULT
    assert looks in ([], [False, False, True])
    assert told == [Waiting(2), Loading(WAITS, 0.0)]


def test_what_comes_after_a_break_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is taken up, the round is asked again, and the caller gets its result."""
    monkeypatch.setattr(channel_module, "FIRST_PAUSE", 0.0)
    channel, way, _ = begun(NetworkError("gone"), Welcome(0, 0, "s"), RESULT)
    assert channel.receive() == RESULT
    assert way.sent[-1] == VERIFY
    assert channel.n_broken == 1


def test_a_round_tells_what_it_took_on_the_way() -> None:
    """Bytes since the last one; the seconds from the question to the reply, and those in the verifier."""
    now = 10.0
    way = Way(Welcome("s", 64, 8), Result(1, 0, 5, 2, micros=3000, peak=7))
    channel = Channel(way, lambda: False, [].append, clock=lambda: now)  # type: ignore[arg-type]
    assert channel.taken() == Taken(0, 0, 0.0, 0.0)
    channel.send(HELLO)
    channel.receive()
    channel.send(VERIFY)
    way.up, way.down, now = 100, 40, 10.25
    channel.receive()
    assert channel.taken() == Taken(100, 40, 250.0, 3.0, peak=7)
    way.up = 130
    assert channel.taken() == Taken(30, 0, 0.0, 0.0)


def test_a_person_is_told_of_two_seconds_of_silence() -> None:
    """Once more for each look that finds nothing; what is heard begins them anew."""
    times = iter([0.0, 0.0, 0.0, 0.0, 2.0, 2.1, 3.0, 5.0, 5.1, 6.0])
    told: list[Event] = []
    way = Way(Welcome("s", 64, 8), None, None, Wait(1), None, None, RESULT)
    channel = Channel(way, lambda: False, told.append, clock=lambda: next(times))  # type: ignore[arg-type]
    channel.send(HELLO)
    channel.receive()
    channel.send(VERIFY)
    assert channel.receive() == RESULT
    assert told == [Loading(WAITS, 0.0), Waiting(1), Loading(WAITS, 0.0)]


@pytest.mark.parametrize(
    ("said", "stop"), [((VERIFY,), [Cancel(1)]), ((VERIFY, Bye()), []), ((VERIFY, HELLO), []), ((), [])]
)
def test_a_stop_is_told_to_the_verifier_while_it_judges(said: tuple[ToVerifier, ...], stop: list[ToVerifier]) -> None:
    way = Way(Welcome("s", 64, 8), None)
    is_stopped = False
    channel = Channel(way, lambda: is_stopped, [].append)  # type: ignore[arg-type]
    channel.send(HELLO)
    channel.receive()
    for message in said:
        channel.send(message)
    n, is_stopped = len(way.sent), True
    assert channel.has_come()
    with pytest.raises(Cancelled):
        channel.receive()
    assert way.sent[n:] == stop


def test_what_belongs_to_another_round_or_answer_is_passed_over() -> None:
    """An old result, an error of another answer, and all that comes before the Welcome of a new one."""
    channel, way, _ = begun(Result(9, 0, 1, 2), Error("usage", "old", answer=2), RESULT)
    assert channel.receive() == RESULT
    way._news = [RESULT, Wait(3), Welcome("t", 64, 8), RESULT]
    channel.send(HELLO)
    channel.send(VERIFY)
    assert channel.receive() == Welcome("t", 64, 8)
    assert channel.receive() == RESULT
    channel.send(Bye())
    way._news = [RESULT, Facts(1, "t", "m", "", 9, 64, 8, 2)]
    assert isinstance(channel.receive(), Facts), "of no round is a result"


@pytest.mark.parametrize("answer", [0, 1])
def test_an_error_ends_its_answer_and_the_connection(answer: int) -> None:
    channel, way, _ = begun(Error("resources", "no memory", answer=answer), RESULT)
    with pytest.raises(LocalspecError, match="the verifier: no memory"):
        channel.receive()
    assert channel.has_come()
    n = len(way.sent)
    channel.send(Bye())
    assert len(way.sent) == n, "what else is said waits until it is open again"


def test_a_session_is_taken_up_by_its_latest_name() -> None:
    one, two = (Welcome(name, 64, 8) for name in ("one", "two"))
    way = Way(one, NetworkError("gone"), two, NetworkError("gone"), one, RESULT)
    channel = Channel(way, lambda: False, [].append)  # type: ignore[arg-type]
    channel.send(HELLO)
    channel.receive()
    channel.send(VERIFY)
    assert channel.receive() == RESULT
    told = [each.session if isinstance(each, Hello) else "round" for each in way.sent]
    assert told == ["", "round", "one", "round", "two", "round"]
    assert [each.answer for each in way.sent if isinstance(each, Hello)] == [1, 1, 1]
    assert channel.n_broken == 2


@pytest.mark.parametrize(("said", "sent"), [((), [VERIFY]), ((Bye(),), [])])
def test_a_verifier_that_opens_no_session_is_asked_as_far_as_there_is_something(
    said: tuple[ToVerifier, ...], sent: list[ToVerifier]
) -> None:
    """It says something else to the Hello; behind a Bye there is none."""
    channel, way, _ = begun(NetworkError("gone"), *[Wait(1)] * (not said), Facts(1, "t", "m", "", 9, 64, 8, 2))
    for message in said:
        channel.send(message)
    n = len(way.sent)
    assert isinstance(channel.receive(), Facts)
    assert [each for each in way.sent[n:] if not isinstance(each, Hello)] == sent
    channel.close()
    assert way.is_closed


class Clock:
    """Seconds that pass while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_connection_is_opened_anew_for_two_minutes_each_time_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, attempts = Clock(), []
    monkeypatch.setattr(channel_module, "time", clock)
    told: list[Event] = []
    way = Way(Welcome("s", 64, 8), NetworkError("gone"))
    monkeypatch.setattr(way, "fails", [NetworkError(f"attempt {i}") for i in range(100)])
    reopen = way.reopen

    def counted() -> None:
        attempts.append(clock.now)
        reopen()

    monkeypatch.setattr(way, "reopen", counted)
    channel = Channel(way, lambda: False, told.append, clock=clock.monotonic)  # type: ignore[arg-type]
    channel.send(HELLO)
    channel.receive()
    channel.send(VERIFY)
    with pytest.raises(NetworkError, match="attempt"):
        channel.receive()
    waits = [after - before for before, after in pairwise(attempts)]
    assert attempts[0] == 0.0
    assert waits[:7] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0], abs=0.11)
    assert 120 - 3.2 <= attempts[-1] <= 120 + 3.2
    assert told == [Loading(WAITS, 0.0)] * (len(attempts) - 1), "the first attempt comes at once"
    assert channel.n_broken == 0
    way.fails, way._news = [], [Welcome("s", 64, 8), RESULT]
    channel.send(VERIFY)
    assert channel.receive() == RESULT, "the next round begins anew"


def test_a_key_that_is_refused_is_not_tried_again() -> None:
    channel, way, _ = begun(NetworkError("gone"))
    way.fails = [NetworkError("the key", detail={"is_final": True}), NetworkError("again")]
    with pytest.raises(NetworkError, match="the key"):
        channel.receive()
    assert len(way.fails) == 1


def test_a_stop_ends_the_pause_before_a_connection_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(channel_module, "time", clock)
    way = Way(Welcome("s", 64, 8), NetworkError("gone"))
    way.fails = [NetworkError("away") for _ in range(9)]
    channel = Channel(way, lambda: clock.now > 1.0, [].append)  # type: ignore[arg-type]
    channel.send(HELLO)
    channel.receive()
    channel.send(VERIFY)
    with pytest.raises(Cancelled):
        channel.receive()
    assert 1.0 < clock.now < 1.3
    assert way.fails


@pytest.mark.parametrize(
    "part",
    [RESULT, VocabularyPart(1, b"x"), VocabularyPart(0, b""), VocabularyPart(0, bytes(LONGEST_PART + 1))],
    ids=["another", "gap", "nothing", "too long"],
)
def test_a_part_that_is_none_of_the_vocabulary(part: ToEdge, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    way = Way(part)
    with pytest.raises(NetworkError, match="far:8080 does not send its vocabulary") as raised:
        fetched(way, Facts(1, "t", "m", "0" * 64, 9, 64, 8, 2))  # type: ignore[arg-type]
    assert raised.value.hint == "Ask again."
    assert way.sent == [Fetch(0)]
    assert not list(tmp_path.rglob("*"))


WHOLE = random.Random(1).randbytes(100_000)  # which cannot be packed
DIGEST, PACKED = vocabulary_of(WHOLE)


def parts(*ends: int) -> Way:
    return Way(*(VocabularyPart(start, PACKED[start:end]) for start, end in pairwise((0, *ends))))


def test_a_part_may_be_as_long_as_a_slow_line_brings_or_one_byte(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the second vocabulary has its place beside the first."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    facts = Facts(1, "t", "m", DIGEST, len(PACKED), 64, 8, 2)
    way = parts(LONGEST_PART, len(PACKED) - 1, len(PACKED))
    kept = fetched(way, facts)  # type: ignore[arg-type]
    assert kept.read_bytes() == WHOLE
    kept.rename(kept.with_name("other.gguf"))
    again = fetched(parts(LONGEST_PART, len(PACKED)), facts)  # type: ignore[arg-type]
    assert again == kept
    assert again.read_bytes() == WHOLE


@pytest.mark.parametrize("kind", ["no stream", "longer than it may be"])
def test_a_vocabulary_that_is_damaged(kind: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(vocabulary_module, "LARGEST", len(WHOLE) - 1)
    way = Way(VocabularyPart(0, b"\0" * 9)) if kind == "no stream" else parts(LONGEST_PART, len(PACKED))
    size = 9 if kind == "no stream" else len(PACKED)
    with pytest.raises(IntegrityError, match="the vocabulary of far:8080 is damaged") as raised:
        fetched(way, Facts(1, "t", "m", DIGEST, size, 64, 8, 2))  # type: ignore[arg-type]
    assert raised.value.hint == "Ask again."
    assert not list(tmp_path.rglob("*.gguf"))
