"""A warm engine: the process that owns the child with the models, and answers one client of this user after the other.

`localspec.worker.kept` starts it, and is the client's side. Clients hand over pipes of a child's kind. Each command
goes to the child when its turn comes (`turns.py`), and the child's events go to the client that asked.

Invariants: a client that leaves stops its answer within a pass. The socket, the child and this process end together:
when nobody came for the time of the last --keep-alive, when told to, or with a child that died while nobody waits.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localspec.worker.process import Log
from localspec.worker.request_queue import GRACE, Turns
from localspec.worker.runtime import Runtime, peer
from localspec.worker.visitor import GoneError, Visitor

FIRST_PATIENCE = 30.0  # seconds in which the client that started it must come
ENDED = -signal.SIGTERM


class Keeper:
    """The socket, the clients, and the end of it all."""

    def __init__(self, listener: socket.socket, runtime: Runtime, name: str, command: list[str], log: Log) -> None:
        self._listener = listener
        self._runtime = runtime
        self._name = name
        self._log = log
        self._visitors: list[Visitor] = []
        self._keep_alive = 0.0
        self._since = time.time()
        self._leave_at: float | None = time.monotonic() + FIRST_PATIENCE
        self._status: int | None = None  # that ends it all
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._turns = Turns(command, log, self._tell, self._lost)

    def run(self) -> None:
        """Serve until the end; then nothing of it is left."""
        try:
            while self._status is None:
                self._turn()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with self._runtime.locked():
                self._runtime.remove(self._name)
                self._listener.close()
            for visitor in self._visitors:
                if visitor.is_attached:
                    visitor.reply({"status": ENDED if self._status is None else self._status})
            self._turns.child.end(GRACE)
            for visitor in self._visitors:
                visitor.close()

    def _turn(self) -> None:
        """Wait for something to happen, and do what it asks for."""
        turns = self._turns
        self._listen_to_child()
        times = [at for at in (self._leave_at, turns.stuck_at, turns.look_at or None) if at is not None]
        patience = max(0.0, min(times) - time.monotonic()) if times else None
        for key, _ in self._selector.select(patience):
            act: Callable[[], None] = key.data
            act()
        now = time.monotonic()
        if turns.look_at and now >= turns.look_at:
            turns.hear()
        if turns.stuck_at is not None and now >= turns.stuck_at:
            turns.kill()
        if turns.status is not None:
            self._status = turns.status
        elif self._leave_at is not None and now >= self._leave_at:
            self._status = ENDED

    def _listen_to_child(self) -> None:
        """Wake for what the child says, but not while it is to be looked at later."""
        events, listened = self._turns.child.events, self._selector.get_map()
        if self._turns.look_at and events in listened:
            self._selector.unregister(events)
        elif not self._turns.look_at and events not in listened:
            self._selector.register(events, selectors.EVENT_READ, self._hear)

    def _hear(self) -> None:
        events = self._turns.child.events
        self._turns.hear()
        if self._turns.child.events != events:  # it died, and there is another
            self._selector.unregister(events)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # who knocked has gone
            connection, _ = self._listener.accept()
            if peer(connection) != os.geteuid():
                connection.close()
                return
            visitor = Visitor(connection)
            self._visitors.append(visitor)
            self._watch(visitor, connection, self._asked)

    def _watch(self, visitor: Visitor, fd: socket.socket | int, act: Callable[[Visitor], None]) -> None:
        """Call `act` when something can be read, and drop the client if it has left."""

        def guarded() -> None:
            try:
                if visitor in self._visitors:
                    act(visitor)
            except GoneError:
                self._drop(visitor)

        events = selectors.EVENT_WRITE if act == self._flush else selectors.EVENT_READ
        self._selector.register(fd, events, guarded)

    def _asked(self, visitor: Visitor) -> None:
        """Do what a client asks for on its connection. Raises GoneError."""
        was_attached = visitor.is_attached
        asked = visitor.asked()
        if asked is None:
            return
        match asked.get("ask"):
            case "attach" if visitor.is_attached and not was_attached:
                self._attach(visitor, asked.get("keep_alive"))
            case "facts":
                visitor.reply(self._facts())
            case "leave":  # for another pair, unless it is in use
                if self._turns.visitors:
                    visitor.reply({"is_used": True})
                else:
                    self._status = ENDED
            case "stop":
                self._status = ENDED
            case "kill":  # it hangs
                self._turns.child.process.kill()
            case _:
                raise GoneError

    def _attach(self, visitor: Visitor, keep_alive: object) -> None:
        if isinstance(keep_alive, int | float):
            self._keep_alive = float(keep_alive)
        self._leave_at = None
        visitor.reply({"pid": self._turns.child.process.pid}, (self._log.file.fileno(),))
        self._watch(visitor, visitor.commands, self._commanded)
        self._watch(visitor, visitor.control, self._cancelled)
        self._turns.attach(visitor)

    def _commanded(self, visitor: Visitor) -> None:
        for command in visitor.read_commands():
            self._turns.take(visitor, command)

    def _cancelled(self, visitor: Visitor) -> None:
        visitor.read_control()
        self._turns.drop_cancelled(visitor)

    def _drop(self, visitor: Visitor) -> None:
        """Forget a client; the last one leaves the engine idle."""
        if visitor not in self._visitors:
            return
        self._visitors.remove(visitor)
        for fd in (visitor.connection, visitor.commands, visitor.control, visitor.events):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(fd)
        was_attached = visitor.is_attached
        self._turns.drop(visitor)
        visitor.close()
        if was_attached and not self._turns.visitors:
            # What is not loaded yet has nothing to lose, and reading a file cannot be interrupted.
            self._leave_at = time.monotonic() + (self._keep_alive if self._turns.loaded is not None else 0.0)

    def _lost(self, visitor: Visitor, status: int) -> None:
        """Tell a client that the child died with its request."""
        visitor.reply({"status": status})
        self._drop(visitor)

    def _tell(self, visitor: Visitor, event: dict[str, Any]) -> None:
        """Tell a client an event; what it does not take at once follows when it does."""
        if visitor not in self._visitors:
            return
        try:
            visitor.tell(event)
        except GoneError:
            self._drop(visitor)
        else:
            self._flush_later(visitor)

    def _flush_later(self, visitor: Visitor) -> None:
        is_watched = visitor.events in self._selector.get_map()
        if visitor.unsent and not is_watched:
            self._watch(visitor, visitor.events, self._flush)
        elif is_watched and not visitor.unsent:
            self._selector.unregister(visitor.events)

    def _flush(self, visitor: Visitor) -> None:
        visitor.flush()
        self._flush_later(visitor)

    def _facts(self) -> dict[str, Any]:
        """Return what `localspec ps` shows. Times are seconds since 1970."""
        turns = self._turns
        return {
            "loaded": turns.loaded,
            "settings": None if turns.load is None else turns.load["settings"],
            "pid": turns.child.process.pid,
            "since": self._since,
            "state": "loading" if turns.loaded is None else "answering" if turns.is_answering else "idle",
            "clients": len(turns.visitors),
            "waiting": turns.n_waiting,
            "keep_alive": self._keep_alive,
            "idle_until": None if self._leave_at is None else time.time() + self._leave_at - time.monotonic(),
            "tokens": turns.n_cached,
        }


def main(arguments: list[str]) -> None:
    """Keep an engine. Arguments: numbers of the listening socket and the folder, its path, the name, the command."""
    listening, folder, path, name, *command = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    for fd in (int(listening), int(folder)):
        os.set_inheritable(fd, False)
    listener = socket.socket(fileno=int(listening))
    listener.setblocking(False)
    log = Log(None, os.fdopen(2, "rb", buffering=0, closefd=False))
    Keeper(listener, Runtime(Path(path), int(folder)), name, command, log).run()


if __name__ == "__main__":
    main(sys.argv[1:])
