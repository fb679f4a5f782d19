"""The edge's connection to a verifier: a WebSocket, with TLS where the address says wss, and a key where one is known.

All that can go wrong on the way is one line here: a machine that does not answer, a key, a certificate, another
version.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError, NetworkError, NotFoundError, UsageError, from_wire
from localspec.remote import PATH
from localspec.remote.messages import VERSION, Error, MessageError, ToEdge, ToVerifier, encode, reply_of
from localspec.sanitize import one_line

KEY = "LOCALSPEC_VERIFIER_KEY"  # the variable that holds the verifier's key
OPENING = 10.0  # seconds to reach a verifier
GLANCE = 0.1  # seconds between two looks at whether to stop
LONGEST_KEY = 4096  # bytes
LONGEST_REPLY = 64 << 20  # bytes
WITH_KEY = f"{KEY}=KEY, or --verifier-key-file FILE"
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a verifier is, and what it takes to be let in. `ca` is a file of certificates, None for the system's."""

    url: str
    key_file: str | None = None
    ca: str | None = None

    @property
    def name(self) -> str:
        return self.url.partition("://")[2]

    def key(self) -> str | None:
        """Return the key, None where there is none. Raises NotFoundError or UsageError for what holds none."""
        if self.key_file is None:
            key = os.environ.get(KEY, "").strip()
            return _key(key, f"the variable {KEY}", f"{KEY}=KEY") if key else None
        try:
            with Path(self.key_file).open("rb") as file:
                first = file.read(LONGEST_KEY).decode("ascii", "replace").splitlines()[:1]
        except OSError as error:
            reason = f"--verifier-key-file {self.key_file} cannot be read: {error.strerror}"
            raise NotFoundError(reason, hint="--verifier-key-file FILE") from None
        return _key("".join(first).strip(), f"the first line of {self.key_file}", "--verifier-key-file FILE")

    def context(self) -> ssl.SSLContext | None:
        """Return how TLS is spoken, None for ws. Raises NotFoundError or UsageError as `key`."""
        if not self.url.startswith("wss:"):
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise UsageError(f"--verifier-ca {self.ca} holds no certificates", hint="--verifier-ca FILE.pem") from None
        except OSError as error:
            reason = f"--verifier-ca {self.ca} cannot be read: {error.strerror}"
            raise NotFoundError(reason, hint="--verifier-ca FILE.pem") from None


@dataclass(slots=True)
class Connection:
    """A connection that is open. `up` and `down` count the bytes of messages."""

    address: Address
    up: int = 0
    down: int = 0
    _socket: Any = None
    _opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @staticmethod
    def open(address: Address) -> Connection:
        """Connect. Raises NetworkError, or UsageError where a key is missing."""
        made = Connection(address)
        made.reopen()
        return made

    def reopen(self) -> None:
        self.close()
        from websockets.sync.client import connect  # late: few targets are elsewhere

        key = self.address.key()
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        tls = self.address.context()
        with _translated(self.address):
            opening = connect(
                self.address.url + PATH,
                ssl=tls,
                additional_headers=headers,
                compression=None,
                proxy=None,
                open_timeout=OPENING,
                max_size=LONGEST_REPLY,
                close_timeout=1,
            )
            self._socket = self._opened.enter_context(opening)

    def send(self, message: ToVerifier) -> None:
        """Send a message. Raises NetworkError."""
        data = encode(message)
        with _translated(self.address):
            self._socket.send(data)
        self.up += len(data)

    def receive(self, seconds: float | None = None) -> ToEdge | None:
        """Return the next message, None where none came within `seconds`. Raises NetworkError."""
        with _translated(self.address):
            try:
                data = self._socket.recv(seconds)
            except TimeoutError:
                return None
        if isinstance(data, str):
            raise _no_verifier(self.address, "it sends text")
        self.down += len(data)
        try:
            return reply_of(data)
        except MessageError as error:
            raise _no_verifier(self.address, str(error)) from None

    def ask(self, message: ToVerifier, stop: Stop = lambda: False, patience: float = OPENING) -> ToEdge:
        """Send a message and return the reply. Raises NetworkError after `patience` seconds, and what an Error says."""
        self.send(message)
        ends = time.monotonic() + patience
        while time.monotonic() < ends and not stop():
            reply = self.receive(GLANCE)
            if isinstance(reply, Error):
                raise error_of(reply)
            if reply is not None:
                return reply
        hint = "Try again when the network is better, or ask who runs it."
        raise NetworkError(f"the verifier at {self.address.name} has said nothing for {patience:g} s", hint=hint)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._opened.close()


def _key(key: str, where: str, hint: str) -> str:
    """Return a key that fits in a header. Raises UsageError, which does not repeat it."""
    if not (key and key.isascii() and key.isprintable()):
        raise UsageError(f"{where} holds no key", hint=hint)
    return key


def error_of(reply: Error) -> LocalspecError:
    """Return the error of a verifier as one of ours, its words made safe for a terminal."""
    wire = {"kind": reply.code, "message": f"the verifier: {one_line(reply.message)}", "hint": one_line(reply.hint)}
    return from_wire(wire)


def _no_verifier(address: Address, why: str) -> NetworkError:
    hint = "pip install -U localspec, on both machines"
    return NetworkError(f"{address.name} is no verifier of version {VERSION}: {one_line(why)}", hint=hint)


@contextlib.contextmanager
def _translated(address: Address) -> Any:
    """Turn what the network raises into one line."""
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException

    there = f"the verifier at {address.name}"
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        reason = f"the certificate of {address.name} is not to be trusted: {one_line(error.verify_message)}"
        raise NetworkError(reason, hint="--verifier-ca FILE, with the certificate that was made for it") from None
    except ssl.SSLError as error:
        raise NetworkError(f"{there} speaks no TLS: {error.reason}", hint=f"--verifier ws://{address.name}") from None
    except InvalidStatus as error:
        raise _refused(address, error.response.status_code) from None
    except ConnectionClosed as error:
        why = error.rcvd.reason if error.rcvd is not None and error.rcvd.reason else "it closed the connection"
        raise NetworkError(f"{there} is gone: {one_line(why)}", hint="Ask again: the text so far stays.") from None
    except (InvalidHandshake, WebSocketException) as error:
        hint = f"--verifier {'ws' if address.url.startswith('wss') else 'wss'}://{address.name}"
        raise NetworkError(f"{there} speaks no WebSocket: {one_line(str(error))[:200]}", hint=hint) from None
    except socket.gaierror:
        host = address.name.rpartition(":")[0]
        raise NetworkError(f"there is no machine called {host}", hint="--verifier ws://HOST:PORT") from None
    except OSError as error:
        hint = f"on that machine: localspec serve MODEL --host ADDRESS --port {address.name.rpartition(':')[2]}"
        raise NetworkError(f"{there} cannot be reached: {error.strerror or error}", hint=hint) from None


def _refused(address: Address, status: int) -> NetworkError:
    """Return the error of a server that lets nobody in, or not us."""
    if status == 401:
        refusal = "does not take this key" if address.key() else "wants its API key"
        return NetworkError(f"the verifier at {address.name} {refusal}", hint=WITH_KEY, detail={"is_final": True})
    if status == 403:
        hint = "on that machine: localspec serve --api-key KEY --host ADDRESS"
        return NetworkError(f"the verifier at {address.name} answers its own machine only", hint=hint)
    if status == 503:
        hint = "Try again in a while."
        return NetworkError(f"the verifier at {address.name} has no room for another edge", hint=hint)
    return NetworkError(
        f"{address.name} has no verifier (status {status})", hint="pip install -U localspec on that machine"
    )
