"""The socket, and the HTTP server on it: uvicorn, without its signals and its log."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from localspec.errors import NotFoundError, ResourceError, UsageError
from localspec.remote import LONGEST_FRAME
from localspec.server.engine import ServerEngine
from localspec.server.guard import App
from localspec.worker.runtime import peer

MOST_CONNECTIONS = 256
PATIENCE = 30.0  # seconds between looks at a connection, and those that the last answer has after a stop
LAST_WORDS = 10  # seconds that an answer has to say that it was stopped
Door = socket.socket  # that listens
KEEP_ALIVE = 60  # seconds that a client's connection may idle


def listener(host: str, port: int) -> Door:
    """Return a socket that listens at an address. Port 0 is any that is free.

    Raises UsageError for an address that is none of this machine's, ResourceError for a port that is taken.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise UsageError(f"--host {host!r} is no address", hint="--host 127.0.0.1") from None
    made = socket.socket(family, kind, proto)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()  # now, so that a second server on the port learns of it before it loads
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise ResourceError(f"port {port} is taken by another program", hint="--port N, or --port 0") from None
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "--port N from 1024 on" if error.errno == errno.EACCES else "--host 127.0.0.1"
        raise UsageError(f"cannot listen at {host}:{port}: {reason}", hint=hint) from None
    return made


def require_certificate(certificate: str | None, key: str | None) -> None:
    """Raise UsageError or NotFoundError where TLS cannot be spoken with these files; None of both is no TLS."""
    if certificate is None:
        if key is not None:
            raise UsageError("--ssl-keyfile needs --ssl-certfile", hint="--ssl-certfile FILE")
        return
    for flag, path in (("--ssl-certfile", certificate), ("--ssl-keyfile", key or certificate)):
        if not os.path.isfile(path):
            raise NotFoundError(f"{flag}: there is no file {path}", hint=f"{flag} FILE.pem")
    try:
        # A key behind a passphrase would be asked for on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, lambda: b"")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        message = f"{certificate} and its key cannot be used: {str(reason).lower().replace('_', ' ')}"
        raise UsageError(
            message, hint="--ssl-certfile CERT.pem --ssl-keyfile KEY.pem, the key without a passphrase"
        ) from None


def is_loopback(made: Door) -> bool:
    return ip_address(made.getsockname()[0].partition("%")[0]).is_loopback


def address_of(made: Door) -> str:
    host, port = made.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class HttpConnection(H11Protocol):
    """A connection that can be cut, and that is cut where a request does not become complete."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        opened = transport.get_extra_info("socket")
        self.app_state = {**self.app_state, "abort": transport.abort}
        self._was_reading = False
        self._timer = self.loop.call_later(PATIENCE, self._look)
        if opened.family == socket.AF_UNIX and peer(opened) != os.geteuid():
            transport.abort()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection on to the protocol of WebSockets, which looks after it itself."""
        self._timer.cancel()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Cut it if it was in the middle of a request the last time, too."""
        has_part = self.cycle is None or bool(self.conn.trailing_data[0])
        is_reading = self.conn.their_state is h11.SEND_BODY or (self.conn.their_state is h11.IDLE and has_part)
        if is_reading and self._was_reading:
            self.transport.abort()
            return
        self._was_reading = is_reading
        self._timer = self.loop.call_later(PATIENCE, self._look)


class HttpServer(uvicorn.Server):
    """Serves until `leave`. The answer that is being made has `patience` seconds to end, and is then stopped.

    The command line handles signals, so this handles none. `tls` are the files of certificate and key. `on_wait` is
    called where an answer is given that time.
    """

    def __init__(
        self,
        app: App,
        engine: ServerEngine,
        patience: float = PATIENCE,
        *,
        tls: tuple[str | None, str | None] = (None, None),
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ssl_certfile=tls[0],
                ssl_keyfile=tls[1],
                http=HttpConnection,
                ws="websockets-sansio",
                ws_max_size=LONGEST_FRAME,
                ws_per_message_deflate=False,
                lifespan="off",
                loop="asyncio",
                log_config=None,
                log_level="critical",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=int(patience) + LAST_WORDS,
            )
        )
        self._engine = engine
        self._patience = patience
        self._on_wait = on_wait

    def leave(self) -> None:
        """Begin to stop. Safe in a signal handler."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse those that wait, first; an answer that does not end is told of it, too."""
        self._engine.close()
        if self._engine.is_busy and not self._engine.is_aborted:
            self._on_wait()
        asyncio.get_running_loop().call_later(self._patience, self._engine.abort)
        await super().shutdown(sockets)
