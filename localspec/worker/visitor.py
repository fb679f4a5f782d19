"""A client of a warm engine as the engine's keeper sees it: its connection, and its ends of three pipes.

The pipes are those of `localspec.worker.process`: a client talks to a warm engine as to a child of its own. On the
connection it says what it wants first, as one JSON object on a line, with the pipes beside it. The answer comes the
same way.
Nothing here waits: what a client does not read is kept for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import Any

MOST_UNREAD = 64 * 1024 * 1024  # bytes that are kept for a client that does not read; then it is as good as gone
MAX_LINE = 256 * 1024 * 1024  # bytes of a command, of which the prompt is a part
CHUNK = 1 << 16
N_PIPES = 3
CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class GoneError(Exception):
    """The client has left, or says what no client says."""


class WholeLines:
    """Whole lines out of what is read from a descriptor that never waits."""

    def __init__(self) -> None:
        self._received = bytearray()

    def read(self, fd: int) -> list[bytes]:
        """Return the lines that are whole by now. Raises GoneError at the end of the file."""
        try:
            chunk = os.read(fd, CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            raise GoneError from None
        if not chunk or len(self._received) > MAX_LINE:
            raise GoneError
        self._received += chunk
        if b"\n" not in chunk:
            return []
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        return [bytes(line) for line in lines]


class Visitor:
    """One connection. `loads` is the number of the load that the client waits for, 0 where it waits for none."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.commands = self.control = self.events = -1
        self.loads = 0
        self.name = ""  # of the pair, as the client spells it
        self._began = 0.0  # when it asked for that load
        self.cancelled = 0  # the number of the last request that it cancelled
        self.unsent = bytearray()
        self._asked = bytearray()
        self._commands, self._control = WholeLines(), WholeLines()

    def wait_for(self, number: int, name: str) -> None:
        """Wait for the load of this number, of a pair that is spelled so."""
        self.loads, self.name, self._began = number, name, time.monotonic()

    def of_load(self, wire: dict[str, Any], *, is_last: bool) -> dict[str, Any]:
        """Return what is told of the load, as its own: with the time that it waited. It waits no more for the last."""
        told = {**wire, "seq": self.loads}
        if wire["type"] == "loaded":
            told |= {"load_ms": 1e3 * (time.monotonic() - self._began), "name": self.name}
        self.loads = 0 if is_last else self.loads
        return told

    @property
    def is_attached(self) -> bool:
        """Whether it has handed over its pipes."""
        return self.events >= 0

    def asked(self) -> dict[str, Any] | None:
        """Return the next object on the connection, None if it is not whole yet. Raises GoneError at its end."""
        try:
            chunk, fds, _, _ = socket.recv_fds(self.connection, 4096, N_PIPES, CLOSE_ON_EXEC)
        except BlockingIOError:
            return None
        except OSError:
            raise GoneError from None
        if len(fds) == N_PIPES and not self.is_attached:
            self.commands, self.control, self.events = fds
            for fd in fds:
                os.set_blocking(fd, False)
        elif fds:
            for fd in fds:
                os.close(fd)
            raise GoneError
        self._asked += chunk
        if not chunk or len(self._asked) > CHUNK:
            raise GoneError
        line, found, rest = self._asked.partition(b"\n")
        if not found:
            return None
        self._asked = rest
        return _object(bytes(line))

    def reply(self, answer: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Answer on the connection. A client that cannot take that is found gone when it is read."""
        line = json.dumps(answer).encode("ascii") + b"\n"
        with contextlib.suppress(OSError):
            socket.send_fds(self.connection, [line], fds)

    def read_commands(self) -> list[dict[str, Any]]:
        """Return the commands that are whole by now. Raises GoneError at the end."""
        found = [_object(line) for line in self._commands.read(self.commands)]
        if not all(isinstance(each.get("seq"), int) and isinstance(each.get("command"), str) for each in found):
            raise GoneError
        return found

    def read_control(self) -> None:
        """Note what is cancelled. Raises GoneError at the end."""
        try:
            self.cancelled = max([self.cancelled, *map(int, self._control.read(self.control))])
        except ValueError:
            raise GoneError from None

    def tell(self, event: dict[str, Any]) -> None:
        """Hand on one event. Raises GoneError if too much is unread, or nobody can read it."""
        self.unsent += json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what the client takes now. Raises GoneError."""
        try:
            while self.unsent:
                n = os.write(self.events, bytes(self.unsent[:CHUNK]))
                del self.unsent[:n]
        except BlockingIOError:
            if len(self.unsent) > MOST_UNREAD:
                raise GoneError from None
        except OSError:
            raise GoneError from None

    def close(self) -> None:
        for fd in (self.commands, self.control, self.events):
            if fd >= 0:
                os.close(fd)
        self.commands = self.control = self.events = -1
        self.connection.close()


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise GoneError from None
    if not isinstance(found, dict):
        raise GoneError
    return found
