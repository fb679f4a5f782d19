"""What an edge hears from its verifier, and what a person is told while it waits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from localspec.engine.events import Event, Loading, Waiting
from localspec.errors import NetworkError
from localspec.remote import channel as channel_module
from localspec.remote.channel import WAITS, Channel
from localspec.remote.messages import (
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
from localspec.remote.vocabulary import fetched

HELLO, VERIFY, RESULT = Hello(1, "v"), Verify(1, 1, 0), Result(1, 0, 5, 2)


class Way:
    """A connection that brings some messages, in order; an error breaks it until it is opened anew."""

    def __init__(self, *news: ToEdge | NetworkError) -> None:
        self.address = SimpleNamespace(name="far:8080")
        self.up = self.down = 0
        self.sent: list[ToVerifier] = []
        self._news = list(news)

    def send(self, message: ToVerifier) -> None:
        self.sent.append(message)

    def receive(self, seconds: float | None = None) -> ToEdge | None:
        one = self._news.pop(0)
        if isinstance(one, NetworkError):
            raise one
        return one

    def ask(self, message: ToVerifier, cancel: object = None) -> ToEdge:
        self.send(message)
        reply = self.receive()
        assert reply is not None
        return reply

    def reopen(self) -> None:
        """Nothing is lost of what is to come."""

    def close(self) -> None:
        """Nothing to close."""


def begun(*news: ToEdge | NetworkError) -> tuple[Channel, Way, list[Event]]:
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
    while is_looked_for and not channel.has_come():
        pass
    assert channel.receive() == RESULT
    assert told == [Waiting(2), Loading(WAITS, 0.0)]


def test_what_comes_after_a_break_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is taken up, the round is asked again, and the caller gets its result."""
    monkeypatch.setattr(channel_module, "FIRST", 0.0)
    channel, way, _ = begun(NetworkError("gone"), Welcome(0, 0, "s"), RESULT)
    assert channel.receive() == RESULT
    assert way.sent[-1] == VERIFY
    assert channel.n_broken == 1


@pytest.mark.parametrize(
    "part", [RESULT, VocabularyPart(1, b"x"), VocabularyPart(0, b"")], ids=["another", "gap", "nothing"]
)
def test_a_part_that_is_none_of_the_vocabulary(part: ToEdge, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    way = Way(part)
    with pytest.raises(NetworkError, match="far:8080 does not send its vocabulary") as raised:
        fetched(way, Facts(1, "t", "m", "0" * 64, 9, 64, 8, 2))  # type: ignore[arg-type]
    assert raised.value.hint
    assert way.sent == [Fetch(0)]
    assert not list(tmp_path.rglob("*"))
