"""The socket: which addresses and certificates it takes, and which connections are cut."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import LocalspecError, NotFoundError, ResourceError, UsageError
from localspec.server import listening
from localspec.server.listening import HttpServer, address_of, is_loopback, listener, require_certificate
from tests.cli.harness import TIMEOUT
from tests.server.certificates import self_made

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Quiet:
    """An engine that has nothing to do."""

    is_busy = False

    def close(self) -> None:
        """Take no more."""

    abort = close


@contextmanager
def serving(app: Callable[..., Any]) -> Iterator[tuple[str, int]]:
    server, door = HttpServer(app, Quiet(), patience=0.0), listener("127.0.0.1", 0)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, args=([door],))
    thread.start()
    try:
        yield door.getsockname()
    finally:
        server.should_exit = True
        thread.join(TIMEOUT)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once, whatever is asked."""
    assert callable(scope["state"]["abort"])
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


def ask(opened: socket.socket, until: bytes = b"hi") -> None:
    """Ask, and read the answer up to a part of its body."""
    opened.sendall(WHOLE)
    heard = b""
    while not heard.endswith(b"\r\n\r\n" + until):
        more = opened.recv(1000)
        assert more, heard
        heard += more


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc", WHOLE + b"GET"],
    ids=["nothing", "head", "body", "second"],
)
def test_a_request_that_does_not_become_complete_is_cut(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    """One that was complete is not, however long the next one is waited for."""
    monkeypatch.setattr(listening, "PATIENCE", 0.05)
    with serving(hello) as address, socket.create_connection(address, TIMEOUT) as idle:
        ask(idle)
        for _ in range(3):
            with socket.create_connection(address, TIMEOUT) as slow:
                slow.sendall(begun)
                heard = b""
                try:
                    while more := slow.recv(1000):
                        heard += more
                except ConnectionResetError:
                    pass
                assert heard.count(b"200 OK") == begun.count(b"\r\n\r\nGET")
        ask(idle)


def test_a_long_answer_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on while two others are cut, one after the other: the server has looked at it twice."""
    monkeypatch.setattr(listening, "PATIENCE", 0.05)
    goes_on = threading.Event()

    async def slowly(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"h", "more_body": True})
        await asyncio.to_thread(goes_on.wait, TIMEOUT)
        await send({"type": "http.response.body", "body": b"i"})

    with serving(slowly) as address, socket.create_connection(address, TIMEOUT) as asking:
        ask(asking, until=b"h")
        for _ in range(2):
            with socket.create_connection(address, TIMEOUT) as slow:
                assert slow.recv(1) == b""
        goes_on.set()
        assert asking.recv(1000) == b"i"


def test_nothing_is_said_of_the_server_or_believed_of_proxies(caplog: pytest.LogCaptureFixture) -> None:
    """And no line is written of a request, whatever the root logger writes."""
    seen: list[Any] = []

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await hello(scope, receive, send)

    with caplog.at_level(logging.INFO), serving(noted) as address, socket.create_connection(address, TIMEOUT) as asking:
        asking.sendall(WHOLE[:-2] + b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\r\n")
        heard = b""
        while not heard.endswith(b"hi"):
            heard += asking.recv(1000)
    assert seen == [("127.0.0.1", "http")]
    assert b"\r\nserver:" not in heard.lower()
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_addresses() -> None:
    with listener("127.0.0.1", 0) as made:
        assert is_loopback(made)
        assert address_of(made) == f"127.0.0.1:{made.getsockname()[1]}"
        with pytest.raises(ResourceError, match="is taken by another program") as caught:
            listener("127.0.0.1", made.getsockname()[1])
        assert caught.value.hint == "--port N, or --port 0"
    with listener("0.0.0.0", 0) as made:
        assert not is_loopback(made)
    with pytest.raises(UsageError, match="--host 'no such host' is no address") as refused:
        listener("no such host", 0)
    assert refused.value.hint == "--host 127.0.0.1"
    with pytest.raises(UsageError, match="is no address"):
        listener("a" * 70, 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_an_address_of_ipv6() -> None:
    try:
        made = listener("::1", 0)
    except UsageError:
        pytest.skip("no IPv6")
    with made:
        assert is_loopback(made)
        assert address_of(made) == f"[::1]:{made.getsockname()[1]}"


def test_certificates(tmp_path: Path) -> None:
    certificate, key = map(str, self_made(tmp_path))
    both, empty = tmp_path / "both.pem", tmp_path / "empty.pem"
    both.write_bytes(Path(certificate).read_bytes() + Path(key).read_bytes())
    empty.touch()
    require_certificate(None, None)
    require_certificate(certificate, key)
    require_certificate(str(both), None)
    wrong: list[tuple[str | None, str | None, type[LocalspecError], str, str]] = [
        (None, key, UsageError, "--ssl-keyfile needs --ssl-certfile", "--ssl-certfile FILE"),
        ("none.pem", key, NotFoundError, "--ssl-certfile: there is no file none.pem", "--ssl-certfile FILE.pem"),
        (certificate, "none.pem", NotFoundError, "--ssl-keyfile: there is no file none.pem", "--ssl-keyfile FILE.pem"),
        (str(empty), key, UsageError, f"{empty} and its key cannot be used: ", "--ssl-certfile CERT.pem --ssl-keyfile"),
        (certificate, None, UsageError, f"{certificate} and its key cannot be used: ", "without a passphrase"),
    ]
    for one, other, kind, told, hint in wrong:
        with pytest.raises(kind) as caught:
            require_certificate(one, other)
        assert caught.value.message.startswith(told)
        assert hint in caught.value.hint
        assert "_" not in caught.value.message.removeprefix(told)
