"""The edge's connection to a verifier that is silent, refuses, breaks or speaks otherwise; keys; vocabularies."""

import errno
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidHandshake
from websockets.frames import Close
from websockets.sync.server import ServerConnection, serve

from localspec.errors import IncompatibleError, NetworkError, NotFoundError, ResourceError, UsageError
from localspec.remote import connection, vocabulary
from localspec.remote.connection import KEY, Address, Connection
from localspec.remote.messages import (
    VERSION,
    Cancel,
    Error,
    Facts,
    Fetch,
    Look,
    VocabularyPart,
    Wait,
    encode,
    request_of,
)
from localspec.remote.vocabulary import fetched, look, vocabulary_of
from localspec.settings.folders import cache_folder

WHOLE = bytes(range(256)) * 2000
DIGEST, PACKED = vocabulary_of(WHOLE)
FACTS = Facts(VERSION, "m", "f", DIGEST, len(PACKED), 64, 8, 2)
Handler = Callable[[ServerConnection], None]


@pytest.fixture(autouse=True)
def _own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.delenv(KEY, raising=False)


@contextmanager
def far(handler: Handler, status: int = 101, seen: list[Any] | None = None) -> Iterator[Connection]:
    """Open a connection to a verifier that does as `handler`; `seen` takes the request that it was opened with."""

    def judged(edge: ServerConnection, request: Any) -> Any:
        if seen is not None:
            seen.append(request)
        return None if status == 101 else edge.respond(status, "")

    with serve(handler, "127.0.0.1", 0, process_request=judged, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            opened = Connection.open(Address(f"ws://127.0.0.1:{server.socket.getsockname()[1]}"))
            yield opened
            opened.close()
        finally:
            server.shutdown()
            thread.join()


def saying(*said: str | bytes | msgspec.Struct) -> Handler:
    """Return a verifier that says the next of these whenever it hears something."""
    left = iter(said)

    def handle(edge: ServerConnection) -> None:
        for _ in edge:
            each = next(left)
            edge.send(encode(each) if isinstance(each, msgspec.Struct) else each)

    return handle


@pytest.mark.parametrize(
    ("status", "told", "hint", "is_final"),
    [
        (401, "wants its API key", KEY, True),
        (403, "answers its own machine only", "localspec serve --api-key", False),
        (503, "has no room for another edge", "Try again", False),
        (404, "has no verifier (status 404)", "on that machine", False),
    ],
)
def test_a_server_that_lets_nobody_in_is_one_line(status: int, told: str, hint: str, is_final: bool) -> None:
    with pytest.raises(NetworkError) as raised, far(saying(), status):
        pass
    assert told in raised.value.message
    assert "127.0.0.1:" in raised.value.message
    assert hint in raised.value.hint
    assert bool(raised.value.detail.get("is_final")) == is_final


@pytest.mark.parametrize("key", [None, "secret"])
def test_the_key_goes_to_the_verifier_and_nowhere_else(monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    if key is not None:
        monkeypatch.setenv(KEY, key)
    seen: list[Any] = []
    with far(saying(), seen=seen) as opened:
        assert opened._socket.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    (request,) = seen
    assert request.path == "/v1/verify"
    assert request.headers.get("Authorization") == (None if key is None else f"Bearer {key}")
    assert "Sec-WebSocket-Extensions" not in request.headers, "what is small is not packed"


def test_how_a_connection_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, nothing packed, and limits of time and size."""
    seen: list[Any] = []

    def noted(url: str, **how: Any) -> Any:
        seen.append((url, how))
        return nullcontext()

    monkeypatch.setattr("websockets.sync.client.connect", noted)
    Connection.open(Address("ws://tower:8080"))
    assert seen == [("ws://tower:8080/v1/verify", {
        "ssl": None, "additional_headers": {}, "compression": None, "proxy": None, "open_timeout": 10.0,
        "max_size": 64 * 2**20, "close_timeout": 1,
    })]  # fmt: skip


GONE = "Ask again: the text so far stays."
BROKEN: list[tuple[Exception, str, str]] = [
    (ConnectionClosedError(None, None), "the verifier at h:1 is gone: it closed the connection", GONE),
    (ConnectionClosedError(Close(1008, ""), None), "the verifier at h:1 is gone: it closed the connection", GONE),
    (ConnectionClosedError(Close(1008, "too\nmany"), None), "the verifier at h:1 is gone: too many", GONE),
    (InvalidHandshake("x" * 300), f"the verifier at h:1 speaks no WebSocket: {'x' * 200}", "--verifier OTHER://h:1"),
    (socket.gaierror(-2, "unknown"), "there is no machine called h", "--verifier ws://HOST:PORT"),
    (OSError(errno.ECONNREFUSED, "Refused"), "the verifier at h:1 cannot be reached: Refused",
     "on that machine: localspec serve MODEL --host ADDRESS --port 1"),
    (OSError("no reason"), "the verifier at h:1 cannot be reached: no reason",
     "on that machine: localspec serve MODEL --host ADDRESS --port 1"),
]  # fmt: skip


@pytest.mark.parametrize(("scheme", "other"), [("ws", "wss"), ("wss", "ws")])
@pytest.mark.parametrize(("error", "told", "hint"), BROKEN, ids=range(len(BROKEN)))
def test_what_goes_wrong_on_the_way_is_one_line(
    error: Exception, told: str, hint: str, scheme: str, other: str
) -> None:
    with pytest.raises(NetworkError) as raised, connection._translated(Address(f"{scheme}://h:1")):
        raise error
    assert (raised.value.message, raised.value.hint) == (told, hint.replace("OTHER", other))


def test_messages_are_counted_by_their_bytes() -> None:
    wait = Wait(3)
    with far(saying(wait)) as opened:
        assert opened.receive(0) is None
        assert opened.ask(Look(VERSION)) == wait
        assert (opened.up, opened.down) == (len(encode(Look(VERSION))), len(encode(wait)))
        opened.reopen()
        assert (opened.up, opened.down) == (len(encode(Look(VERSION))), len(encode(wait))), "of all that was opened"


@pytest.mark.parametrize(("said", "told"), [("text", "it sends text"), (b"\xc1", "this is no message")])
def test_who_speaks_another_language_is_no_verifier(said: str | bytes, told: str) -> None:
    with far(saying(said)) as opened, pytest.raises(NetworkError, match=told) as raised:
        opened.ask(Look(VERSION))
    assert f"is no verifier of version {VERSION}" in raised.value.message
    assert raised.value.hint == "pip install -U localspec, on both machines"


@pytest.mark.parametrize(("reason", "told"), [("too\nmany", "too many"), ("", "it closed the connection")])
def test_a_connection_that_the_verifier_closes_tells_why(reason: str, told: str) -> None:
    with far(lambda edge: edge.close(1008, reason)) as opened, pytest.raises(NetworkError) as raised:
        opened.receive(60)
    assert raised.value.message.endswith(f"is gone: {told}")
    assert raised.value.hint


def test_an_error_of_the_verifier_is_safe_for_a_terminal() -> None:
    error = Error("resources", "no\x1b[2J memory", "a smaller\n--ctx")
    with far(saying(error)) as opened, pytest.raises(ResourceError) as raised:
        opened.ask(Look(VERSION))
    assert raised.value.message.startswith("the verifier: no")
    assert raised.value.hint == "a smaller --ctx"
    assert raised.value.message.isprintable()


@pytest.mark.parametrize(("patience", "is_stopped"), [(0.01, False), (60.0, True)])
def test_a_verifier_that_does_not_reply_is_waited_for_with_patience(patience: float, is_stopped: bool) -> None:
    with far(lambda edge: list(edge) and None) as opened, pytest.raises(NetworkError) as raised:
        opened.ask(Look(VERSION), lambda: is_stopped, patience)
    assert f"has said nothing for {patience:g} s" in raised.value.message
    assert raised.value.hint


def test_a_machine_that_speaks_no_websocket() -> None:
    """Something else listens there; with the other scheme it may be a verifier."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        name = f"127.0.0.1:{other.getsockname()[1]}"

        def speak() -> None:
            for _ in range(2):
                there, _ = other.accept()
                there.recv(1)
                there.sendall(b"220 mail\r\n" * 20)
                there.shutdown(socket.SHUT_RDWR)
                there.close()

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(NetworkError, match=r"speaks no WebSocket: \w") as raised:
            Connection.open(Address(f"ws://{name}"))
        assert raised.value.hint == f"--verifier wss://{name}"
        with pytest.raises(NetworkError, match=r"speaks no TLS: \w") as raised:
            Connection.open(Address(f"wss://{name}"))
        assert raised.value.hint == f"--verifier ws://{name}"
        thread.join()


def test_a_vocabulary_comes_in_parts_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    n = len(PACKED) // 3

    def handle(edge: ServerConnection) -> None:
        for data in edge:
            assert isinstance(data, bytes)
            message = request_of(data)
            if isinstance(message, Fetch):
                asked.append(message.start)
                edge.send(encode(VocabularyPart(message.start, PACKED[message.start : message.start + n])))
            else:
                edge.send(encode(FACTS))

    with far(handle) as opened:
        facts = look(opened)
        kept = fetched(opened, facts)
        assert kept.read_bytes() == WHOLE
        assert kept.stem == hashlib.sha256(WHOLE).hexdigest()
        assert asked == [*range(0, len(PACKED), n)]
        assert fetched(opened, facts) == kept
        assert len(asked) == len(range(0, len(PACKED), n))
    assert list(kept.parent.iterdir()) == [kept]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vocabulary": "no digest"}, "does not say what it holds"),
        ({"vocabulary": DIGEST + "0"}, "does not say what it holds"),
        ({"size": vocabulary.LARGEST + 1}, "does not say what it holds"),
        ({"version": VERSION + 1}, f"the verifier speaks version {VERSION + 1} of the protocol"),
    ],
)
def test_a_verifier_that_cannot_be_used_is_one_line(change: dict[str, Any], told: str) -> None:
    facts = msgspec.structs.replace(FACTS, **change)
    with far(saying(facts)) as opened, pytest.raises((NetworkError, IncompatibleError), match=told) as raised:
        look(opened)
    assert raised.value.hint
    assert isinstance(raised.value, IncompatibleError) == ("version" in change)


def test_who_says_something_else_does_not_say_what_it_holds() -> None:
    with far(saying(Wait(1))) as opened, pytest.raises(NetworkError, match="does not say what it holds") as raised:
        look(opened)
    assert raised.value.hint == "pip install -U localspec"


def test_the_largest_vocabulary_may_be_held() -> None:
    facts = msgspec.structs.replace(FACTS, size=vocabulary.LARGEST)
    with far(saying(facts, Cancel(1))) as opened:
        assert look(opened) == facts


def test_a_vocabulary_that_cannot_be_written_is_one_line() -> None:
    cache_folder("vocabularies").parent.mkdir(parents=True, exist_ok=True)
    cache_folder("vocabularies").write_text("a file")
    parts = [VocabularyPart(start, PACKED[start : start + 1000]) for start in range(0, len(PACKED), 1000)]
    with far(saying(*parts)) as opened, pytest.raises(ResourceError, match=r"cannot write to .*vocabularies") as raised:
        fetched(opened, FACTS)
    assert raised.value.hint == "LOCALSPEC_HOME=FOLDER"


def test_a_machine_that_takes_the_call_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of the network like any other: one that a broken session waits out."""
    monkeypatch.setattr(connection, "OPENING", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NetworkError, match="cannot be reached: timed out") as raised:
            Connection.open(Address(url))
    assert raised.value.hint


@pytest.mark.parametrize("key", ["sec\nret", "sec\rret", "sec\x1b[2Jret", "geheimnis-ß"])
def test_a_key_that_fits_in_no_header_is_told_without_it(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv(KEY, key)
    with pytest.raises(UsageError) as raised:
        Address("ws://127.0.0.1:1").key()
    assert KEY in raised.value.message
    assert key not in f"{raised.value.message} {raised.value.hint}"
    assert raised.value.hint == f"{KEY}=KEY"


@pytest.mark.parametrize("held", ["\n", "", "geheimnis-\u00df\n", " \nsecret\n"])
def test_a_file_without_a_key_is_named_with_its_option(tmp_path: Path, held: str) -> None:
    file = tmp_path / "key"
    file.write_text(held, encoding="utf-8")
    with pytest.raises(UsageError, match=r"the first line of .*key holds no key") as raised:
        Address("ws://127.0.0.1:1", key_file=str(file)).key()
    assert raised.value.hint == "--verifier-key-file FILE"
    file.write_text(" secret \nsecond\n")
    assert Address("ws://127.0.0.1:1", key_file=str(file)).key() == "secret"


def test_files_that_cannot_be_read_are_named_with_their_options(tmp_path: Path) -> None:
    none, empty = str(tmp_path / "none"), tmp_path / "empty"
    empty.touch()
    with pytest.raises(NotFoundError, match=r"--verifier-key-file .*none cannot be read: No such file") as raised:
        Address("ws://h:1", key_file=none).key()
    assert raised.value.hint == "--verifier-key-file FILE"
    assert Address("ws://h:1", ca=none).context() is None
    with pytest.raises(NotFoundError, match=r"--verifier-ca .*none cannot be read: No such file") as raised:
        Address("wss://h:1", ca=none).context()
    assert raised.value.hint == "--verifier-ca FILE.pem"
    with pytest.raises(UsageError, match=r"--verifier-ca .*empty holds no certificates") as wrong:
        Address("wss://h:1", ca=str(empty)).context()
    assert wrong.value.hint == "--verifier-ca FILE.pem"
    assert Address("wss://h:1").context() is not None


def test_white_space_around_a_key_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for held, key in (("secret\n", "secret"), ("", None), (" \n", None)):
        monkeypatch.setenv(KEY, held)
        assert Address("ws://127.0.0.1:1").key() == key
