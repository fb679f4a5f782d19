"""The child of a warm engine, and the clients' requests to it, one after the other.

Invariants: one answer at a time, in the order in which the clients asked. The load is told to all who ask for it, as
far as it is, and again once it is over. Nothing here waits but for a child that is to end.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.engine.events import Finished, Waiting
from localspec.worker.codec import event_wire
from localspec.worker.process import Child, Log, ProtocolError
from localspec.worker.visitor import Visitor

FRAME = 1 / 30  # seconds between two looks at an answer's tokens: see `localspec.worker.client`
STUCK = 60.0  # seconds that a cancelled answer of a client that left may take to end
GRACE = 1.0  # seconds for a child that is told to end
SEND = 30.0  # seconds in which a child takes a command
LAST = frozenset({"loaded", "finished", "inspected", "failed"})  # types of the events that end a request

Wire = dict[str, Any]


@dataclass(slots=True)
class ClientCommand:
    """A command of a client, `visitor` None once that has left. `number` is the child's for it, 0 while it waits.

    `before` is how many are answered before it, as its client was told.
    """

    visitor: Visitor | None
    sequence: int
    command: Wire
    number: int = 0
    before: int = 0


class Turns:
    """One child and the requests for it. `command` starts the child, `log` takes what it prints.

    `tell` hands an event to a client. `lost` takes a client whose request the child had when it died, and the child's
    exit status.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Log,
        tell: Callable[[Visitor, Wire], None],
        lost: Callable[[Visitor, int], None],
    ) -> None:
        self.look_at = 0.0  # when the child is to be read again; 0: whenever it says something
        self.stuck_at: float | None = None
        self.status: int | None = None  # of a child that died while nobody waited
        self.load: Wire | None = None  # the command that loads
        self.loaded: Wire | None = None
        self.n_cached = 0
        self.visitors: list[Visitor] = []  # those that are attached
        self._command = command
        self._log = log
        self._tell = tell
        self._lost = lost
        self._numbers = 0
        self._load_number = 0
        self._told: list[Wire] = []  # what the load told, but for its progress
        self._ready: Wire | None = None
        self._job: ClientCommand | None = None
        self._waiting: deque[ClientCommand] = deque()
        self.child = Child.start(command, log.again())

    @property
    def is_answering(self) -> bool:
        """Whether a request is at the child."""
        return self._job is not None

    @property
    def n_waiting(self) -> int:
        """Return how many requests wait for their turn."""
        return len(self._waiting)

    def attach(self, visitor: Visitor) -> None:
        self.visitors.append(visitor)
        if self._ready is not None:
            self._tell(visitor, self._ready)

    def drop(self, visitor: Visitor) -> None:
        """Forget a client, and stop its answer."""
        if visitor not in self.visitors:
            return
        self.visitors.remove(visitor)
        for job in self._of(visitor):
            self._waiting.remove(job)
        if self._job is not None and self._job.visitor is visitor:
            self._job.visitor = None
            self.child.cancel(self._job.number)
            self.stuck_at = time.monotonic() + STUCK
        self._tell_places()

    def kill(self) -> None:
        """End a child that does not stop."""
        self.child.process.kill()
        self.stuck_at = None

    def take(self, visitor: Visitor, command: Wire) -> None:
        """Take a command of a client."""
        if command["command"] == "load":
            self._ask_load(visitor, command)
            return
        self._waiting.append(ClientCommand(visitor, command["seq"], command))
        self.drop_cancelled(visitor)
        self._next()
        self._tell_places()

    def drop_cancelled(self, visitor: Visitor) -> None:
        """Stop what the client cancelled; what waits ends at once."""
        for job in self._of(visitor):
            if job.sequence <= visitor.cancelled:
                self._waiting.remove(job)
                over = Finished(reason="interrupted", tail="", wall_ms=0.0, ttft_ms=0.0, peak_memory=0)
                self._tell(visitor, event_wire(over, job.sequence))
        job_ = self._job
        if job_ is not None and job_.visitor is visitor and job_.sequence <= visitor.cancelled:
            self.child.cancel(job_.number)

    def hear(self) -> None:
        """Hand on all that the child says by now."""
        self.look_at = 0.0
        try:
            while (wire := self.child.read(0.0)) is not None:
                self._said(wire)
                if wire.get("type") == "committed":
                    self.look_at = time.monotonic() + FRAME
        except EOFError:
            self._died()
        except ProtocolError:
            self.child.process.kill()
            self._died()

    def _of(self, visitor: Visitor) -> list[ClientCommand]:
        """Return the requests of a client that wait."""
        return [job for job in self._waiting if job.visitor is visitor]

    def _ask_load(self, visitor: Visitor, command: Wire) -> None:
        """Load for the first who asks; tell the others what was told of it."""
        visitor.wait_for(command["seq"], command["settings"]["name"])
        if self.load is None:
            # What only this client expects is no part of the engine.
            self.load = {**command, "settings": {**command["settings"], "expected": None}}
            self._send_load()
        for event in list(self._told):
            self._tell_of_load(visitor, event)

    def _send_load(self) -> None:
        assert self.load is not None
        self._told = []
        self._load_number = self._send(self.load)

    def _send(self, command: Wire) -> int:
        """Give the child a command; return its number."""
        self._numbers += 1
        line = json.dumps({**command, "seq": self._numbers}).encode("ascii") + b"\n"
        self.child.send(line, SEND)
        return self._numbers

    def _next(self) -> None:
        """Begin the next answer if none is on its way."""
        is_loading = self.load is not None and self.loaded is None
        if self._job is not None or not self._waiting or is_loading:
            return
        job = self._job = self._waiting.popleft()
        job.number = self._send(job.command)
        if job.visitor is not None and job.sequence <= job.visitor.cancelled:
            self.child.cancel(job.number)

    def _said(self, wire: Wire) -> None:
        number, kind, job = wire.get("seq"), wire.get("type"), self._job
        if number == 0:
            self._ready = wire
            for visitor in list(self.visitors):
                self._tell(visitor, wire)
        elif number == self._load_number:
            self._said_of_load(wire)
        elif job is not None and number == job.number:
            self._count(wire)
            if job.visitor is not None:
                self._tell(job.visitor, {**wire, "seq": job.sequence})
            if kind in LAST:
                self._job = self.stuck_at = None
                self._next()
                self._tell_places()

    def _said_of_load(self, wire: Wire) -> None:
        if wire["type"] != "loading":
            self._told.append(wire)
        if wire["type"] == "loaded":
            self.loaded = wire
        elif wire["type"] == "failed":
            self.load, self._told = None, []
        for visitor in list(self.visitors):
            self._tell_of_load(visitor, wire)
        for job in list(self._waiting):  # for the second time: the child before died
            if job.visitor is not None and wire["type"] == "loading":
                self._tell(job.visitor, {**wire, "seq": job.sequence})
        if wire["type"] in LAST:
            self._next()

    def _tell_of_load(self, visitor: Visitor, wire: Wire) -> None:
        """Tell a client that waits for the load, as its own: by its name, and with the time that it waited."""
        if not visitor.loads:
            return
        self._tell(visitor, visitor.of_load(wire, is_last=wire["type"] in LAST))

    def _died(self) -> None:
        """Tell those whose request the child had; load again for those that wait, else it is over."""
        status = self.child.end(GRACE)
        waiting = [] if self.loaded is None else [job.visitor for job in self._waiting]
        for visitor in list(self.visitors):
            if visitor not in waiting:
                self._lost(visitor, status)
        self._job = self.stuck_at = self.loaded = self._ready = None
        if not self._waiting:
            self.status = status
            return
        self.child = Child.start(self._command, self._log.again())
        self._send_load()

    def _tell_places(self) -> None:
        """Tell each client that waits how many are answered before it."""
        for before, job in enumerate(list(self._waiting), int(self._job is not None)):
            if job.visitor is not None and before != job.before:
                job.before = before
                self._tell(job.visitor, event_wire(Waiting(before), job.sequence))

    def _count(self, wire: Wire) -> None:
        """Note how many tokens the cache holds."""
        if wire["type"] == "prefilled":
            self.n_cached = int(wire["prompt_n"])
        elif wire["type"] == "committed":
            self.n_cached += len(wire["out"])
