"""A pair that `localspec serve` holds, perhaps on another machine, used as a `Worker`.

A job is one HTTP request, and its events are the lines of the answer. To cancel is to leave: the server stops the
answer within a pass. Every failure is one LocalspecError.

Requests are those of HTTP/1.0, whose answers end with the connection. The standard library's client takes as long to
import as a command takes to read its options.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import IO, Any

from localspec.engine.closing import Closing
from localspec.engine.events import Event, Finished, Inspected, Loaded, Warned
from localspec.errors import LocalspecError, NetworkError, PromptTooLongError, UsageError, WorkerDiedError, refused_with
from localspec.sanitize import one_line
from localspec.settings.jobs import ForkQuestion, Generate, LoadedJob, with_request
from localspec.settings.request import LoadSettings, Request
from localspec.worker.codec import CodecError, event_of, job_line

PATIENCE = 10.0  # seconds for a connection, and for a reply that is no answer
LEAST_BIAS = -1e6  # of a bias: JSON has no infinity, and the chance of a token with this one is 0, too
CODES: dict[str, type[LocalspecError]] = {"context_length_exceeded": PromptTooLongError, "engine_died": WorkerDiedError}

LONGEST_LINE = 1 << 16  # bytes of a line of a response's head


class MalformedError(Exception):
    """What came is no response of HTTP."""


class Connection:
    """A connection for one request. Raises OSError, `MalformedError`."""

    def __init__(self, opened: socket.socket, host: str = "localhost") -> None:
        self.socket = opened
        self._host = host
        self.lines: IO[bytes] = opened.makefile("rb")  # of the response's body, once `ask` has returned

    def ask(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> int:
        self.send(method, path, body, key)
        return self.status()

    def send(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> None:
        head = [f"{method} {path} HTTP/1.0", f"Host: {self._host}", f"Authorization: Bearer {key}" if key else ""]
        head += [] if body is None else ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.socket.sendall("".join(f"{line}\r\n" for line in head if line).encode("latin-1") + b"\r\n" + (body or b""))

    def status(self) -> int:
        first = self.lines.readline(LONGEST_LINE).split(None, 2)
        if not first:
            raise ConnectionResetError("it closed the connection without an answer")
        if len(first) < 2 or not first[0].startswith(b"HTTP/1.") or not first[1].isdigit():
            raise MalformedError
        while self.lines.readline(LONGEST_LINE).strip():
            pass
        return int(first[1])

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


class ServedWorker(Closing):
    """A client of one server. `url` is its address, `key` its API key, `model` one of its names, "" for its first."""

    stays = False  # what a server holds is its own to keep

    def __init__(self, url: str, key: str | None = None, model: str = "") -> None:
        from urllib.parse import urlsplit  # late: a socket of this machine has no address

        self._url = url
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            self._host = ""
        if parts.scheme not in ("http", "https") or not self._host:
            raise UsageError(f"--server {url!r} is no address", hint="--server http://HOST:8080")
        self._is_tls = parts.scheme == "https"
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._key = key
        self._model = model
        self._socket: socket.socket | None = None
        self._is_cancelled = False
        self._facts: dict[str, Any] = {}

    pid: int | None = None  # the process is another machine's

    def settings(self) -> LoadSettings:
        """Return the pair as commands name it; asks the server. `target` names no file."""
        from urllib.parse import quote  # late, as above

        query = f"?model={quote(self._model)}" if self._model else ""
        with contextlib.closing(self._asked("GET", f"/v1/pair{query}")) as response:
            try:
                facts = json.loads(response.lines.read(1 << 20))
                self._model, has_draft = str(facts["model"]), bool(facts["has_draft"])
                facts["localspec"], facts["loaded"]
            except (ValueError, KeyError, TypeError, OSError):
                raise self._not_ours() from None
        self._facts = facts
        where = f"{self._host}:{self._port}" if self._port else self._host
        return LoadSettings("", draft="the server's" if has_draft else None, name=f"{self._model} at {where}")

    def load(self, settings: LoadSettings) -> Iterator[Event]:
        """Yield what the server has loaded. A pair that is not loaded comes with the first answer."""
        if settings.target:
            message = "the server chooses what is loaded"
            raise UsageError(message, hint="--server URL -m NAME asks for one of its models")
        self.settings()
        wire = self._facts["loaded"]
        loaded = None if wire is None else self._event(wire)
        return iter([loaded] if isinstance(loaded, Loaded) else [])

    def start(self, job: LoadedJob) -> Iterator[Event]:
        """Answer, or say where two answers fork; ends after Finished or Inspected.

        Raises UsageError for what names files of this machine, and for any other question.
        """
        self._is_cancelled = False
        match job:
            case Generate(request):
                if request.speculation.corpus:
                    message = "--corpus names files of this machine, and the server drafts"
                    raise UsageError(message, hint="localspec serve --corpus PATH there")
                return self._events(self._body(Generate(_text(request))))
            case ForkQuestion():
                return self._inspected(self._body(with_request(job, _text(job.request))))
        raise UsageError("a server answers no such question", hint="leave out --server")

    def cancel(self) -> None:
        """Leave the answer that is running. Safe in threads and signal handlers."""
        self._is_cancelled = True
        opened = self._socket
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cancel()

    def lost(self) -> WorkerDiedError | None:
        """Return None: a server that has gone is found out by the next request."""
        return None

    def log_tail(self, lines: int = 20) -> str:
        return ""

    def _body(self, job: Generate | ForkQuestion) -> bytes:
        wire = json.loads(job_line(job))
        return json.dumps({"model": self._model, "job": wire}).encode()

    def _lines(self, body: bytes) -> Generator[Any]:
        """Yield the values in the lines of the answer to a job, until it is cancelled. Raises NetworkError."""
        try:
            with contextlib.closing(self._asked("POST", "/v1/events", body)) as response:
                while not self._is_cancelled and (line := response.lines.readline()):
                    yield json.loads(line)
        except (OSError, ValueError, RecursionError) as error:
            if not self._is_cancelled:
                raise self._broken(error) from None
        finally:
            self._socket = None

    def _inspected(self, body: bytes) -> Iterator[Event]:
        with contextlib.closing(self._lines(body)) as lines:
            reply = next(lines, None)
        if isinstance(reply, dict):
            yield Inspected(reply)
        elif not self._is_cancelled:
            raise self._broken(None)

    def _events(self, body: bytes) -> Iterator[Event]:
        started, is_over = time.monotonic(), False
        with contextlib.closing(self._lines(body)) as lines:
            while not is_over and (wire := next(lines, None)) is not None:
                event = self._event(wire)
                is_over = isinstance(event, Finished)
                if event is not None:
                    yield event
        if self._is_cancelled and not is_over:
            wall_ms = 1e3 * (time.monotonic() - started)
            yield Finished("interrupted", "", wall_ms=wall_ms, ttft_ms=0.0, peak_memory=0)
        elif not is_over:
            raise self._broken(None)

    def _event(self, wire: Any) -> Event | None:
        if not isinstance(wire, dict):
            raise self._not_ours()
        if wire.get("type") == "refused":
            status = wire.get("status")
            raise self._refusal(status if isinstance(status, int) else 500, wire)
        try:
            return event_of(wire)
        except CodecError as error:
            return Warned("server", f"an event of the server cannot be read: {error}")

    def _asked(self, method: str, path: str, body: bytes | None = None) -> Connection:
        connection: Connection | None = None
        try:
            connection = self._connected()
            if body is not None:
                connection.socket.settimeout(None)  # others may be answered first
                self._socket = connection.socket
                if self._is_cancelled:  # while it was connected: `cancel` saw no socket
                    raise ConnectionAbortedError
            status = connection.ask(method, self._base + path, body, self._key)
        except (OSError, MalformedError) as error:
            if connection is not None:
                connection.close()
            if self._is_cancelled and body is not None:
                raise ConnectionAbortedError from None
            if not isinstance(error, OSError):
                raise self._not_ours() from None
            reason = one_line(error.strerror or str(error) or type(error).__name__)
            raise NetworkError(f"no server answers at {self._url}: {reason}", hint="localspec serve, there") from None
        if status != 200:
            with contextlib.closing(connection):
                try:
                    reply = json.loads(connection.lines.read(1 << 16))
                except (ValueError, OSError):
                    raise self._not_ours() from None
            raise self._refusal(status, reply)
        return connection

    def _connected(self) -> Connection:
        opened = socket.create_connection((self._host, self._port or (443 if self._is_tls else 80)), PATIENCE)
        if self._is_tls:
            import ssl  # late: it takes long

            opened = ssl.create_default_context().wrap_socket(opened, server_hostname=self._host)
        host = f"[{self._host}]" if ":" in self._host else self._host
        return Connection(opened, f"{host}:{self._port}" if self._port else host)

    def _refusal(self, status: int, reply: Any) -> LocalspecError:
        error = reply.get("error") if isinstance(reply, dict) else None
        if not isinstance(error, dict) or "message" not in error or (status == 404 and not error.get("code")):
            return self._not_ours()
        message, code = one_line(str(error["message"])), str(error.get("code"))
        if status == 401:
            reply = "does not take this key" if self._key else "wants its API key"
            return NetworkError(f"the server at {self._url} {reply}", hint="--api-key KEY")
        if code in CODES:
            return CODES[code](message)
        hint = f"-m NAME, one of {self._url}/v1/models" if status == 404 else ""
        return refused_with(status)(f"the server at {self._url}: {message}", hint=hint)

    def _not_ours(self) -> NetworkError:
        return NetworkError(f"at {self._url} is no server of localspec", hint="localspec serve, there")

    def _broken(self, error: Exception | None) -> NetworkError:
        reason = f": {one_line(str(error))}" if error is not None and str(error) else ""
        return NetworkError(f"the server at {self._url} broke off its answer{reason}", hint="the same command again")


def _text(request: Request) -> Request:
    """Return a request as text alone: the server has tokens of its own, and nothing of this is kept there."""
    bias = tuple((token, max(LEAST_BIAS, min(-LEAST_BIAS, value))) for token, value in request.sampling.logit_bias)
    messages = tuple(replace(message, ids=()) for message in request.messages)
    sampling = replace(request.sampling, logit_bias=bias)
    return replace(request, messages=messages, sampling=sampling, keeps=False)
