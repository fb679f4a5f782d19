"""The socket: which addresses and certificates it takes, and which connections are cut."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import LocalspecError, NotFoundError, ResourceError, UsageError
from localspec.remote import LONGEST_FRAME
from localspec.server import listening
from localspec.server.listening import (
    HttpConnection,
    HttpServer,
    address_of,
    is_loopback,
    listener,
    require_certificate,
)
from tests.cli.harness import TIMEOUT
from tests.server.certificates import self_made

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Quiet:
    """An engine that has nothing to do."""

    is_busy = False

    def close(self) -> None:
        """Take no more."""

    abort = close


class Loop(asyncio.SelectorEventLoop):
    """A loop whose clock also jumps."""

    ahead = 0.0  # seconds

    def time(self) -> float:
        return super().time() + self.ahead

    def look(self) -> None:
        """Let the time pass between two looks at each connection, and the server look."""

        async def passed() -> None:
            self.ahead += listening.PATIENCE
            for _ in range(5):  # what is due is done, and what follows from it
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(passed(), self).result(TIMEOUT)


class Server:
    """A server in a thread; `heard` is what came on each connection, b"" where it was made."""

    def __init__(self, app: Callable[..., Any]) -> None:
        heard: queue.Queue[bytes] = queue.Queue()

        class Heard(HttpConnection):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                heard.put(b"")

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                heard.put(data)

        self.heard, self.loop = heard, Loop()
        self._server = HttpServer(app, Quiet(), patience=0.0)  # type: ignore[arg-type]
        self._server.config.http = Heard
        self._door = listener("127.0.0.1", 0)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._server.serve([self._door]))

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(TIMEOUT)

    def connected(self, said: bytes = b"") -> socket.socket:
        while not self.heard.empty():
            self.heard.get()
        made = socket.create_connection(self._door.getsockname(), TIMEOUT)
        assert self.heard.get(timeout=TIMEOUT) == b""
        made.sendall(said)
        got = b""
        while got != said:
            got += self.heard.get(timeout=TIMEOUT)
        return made


def is_cut(connection: socket.socket) -> bool:
    """Whether the server has ended a connection on which it has nothing to say."""
    connection.setblocking(False)
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(TIMEOUT)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    assert callable(scope["state"]["abort"])
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


def ask(opened: socket.socket, until: bytes = b"hi") -> None:
    opened.sendall(WHOLE)
    hear(opened, until)


def hear(opened: socket.socket, until: bytes = b"hi") -> None:
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
    """At the second look. One that was complete is not, however long the next one is waited for."""
    monkeypatch.setattr(listening, "KEEP_ALIVE", 3600)
    with Server(hello) as server, server.connected() as idle:
        ask(idle)
        with server.connected(begun) as slow:
            if begun.startswith(WHOLE):
                hear(slow)
            server.loop.look()
            assert not is_cut(slow)
            server.loop.look()
            assert is_cut(slow)
        for _ in range(3):
            server.loop.look()
        ask(idle)


def test_a_long_answer_is_not_cut() -> None:
    goes_on = threading.Event()

    async def slowly(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"h", "more_body": True})
        await asyncio.to_thread(goes_on.wait, TIMEOUT)
        await send({"type": "http.response.body", "body": b"i"})

    with Server(slowly) as server, server.connected() as asking:
        ask(asking, until=b"h")
        for _ in range(3):
            server.loop.look()
        goes_on.set()
        assert asking.recv(1000) == b"i"


def test_nothing_is_said_of_the_server_or_believed_of_proxies(caplog: pytest.LogCaptureFixture) -> None:
    """And no line is written of a request, whatever the root logger writes."""
    seen: list[Any] = []

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await hello(scope, receive, send)

    with caplog.at_level(logging.INFO), Server(noted) as server, server.connected() as asking:
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


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.EACCES, "--port N from 1024 on"), (errno.EADDRNOTAVAIL, "--host 127.0.0.1"), (0, "--host 127.0.0.1")],
)
def test_an_address_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch, number: int, hint: str) -> None:
    made: list[socket.socket] = []

    class Refusing(socket.socket):
        def bind(self, address: Any) -> None:
            made.append(self)
            raise OSError(number, os.strerror(number)) if number else OSError("no reason")

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(UsageError, match=os.strerror(number) if number else "no reason") as caught:
        listener("127.0.0.1", 0)
    assert caught.value.hint == hint
    assert made[0].fileno() == -1, "it is closed"


def test_what_the_server_is_told_to_do() -> None:
    """Bounds, and nothing of the HTTP server's own: no log, no lifespan, no packing of frames."""

    async def app(*_: Any) -> None:
        raise AssertionError

    config = HttpServer(app, Quiet(), 5.7, tls=("c.pem", "k.pem")).config  # type: ignore[arg-type]
    assert (config.ssl_certfile, config.ssl_keyfile) == ("c.pem", "k.pem")
    assert (config.ws_max_size, config.ws_per_message_deflate, config.ws) == (LONGEST_FRAME, False, "websockets-sansio")
    assert (config.limit_concurrency, config.timeout_keep_alive, config.timeout_graceful_shutdown) == (256, 60, 15)
    assert (config.lifespan, config.loop, config.log_config, config.log_level) == ("off", "asyncio", None, "critical")
    assert (config.http, config.server_header, config.proxy_headers) == (HttpConnection, False, False)


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
