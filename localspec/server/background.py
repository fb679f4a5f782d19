"""The process that is left behind: `localspec serve` without a port, for programs of this user alone (`warm_engine`).

`localspec.worker.engines` starts it, and then says on its standard input which pair it is to load, and where it
listens. The child is started first: it takes longest to be ready.

Invariants: the socket, the child and this process end together: when nobody came for the time of the last
--keep-alive, when told to, or with a child that died while nobody waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.chat.pair_loader import PairLoader
from localspec.engine.events import Event, Failed, Finished, Loaded
from localspec.errors import LocalspecError
from localspec.settings.jobs import PairJob
from localspec.settings.request import LoadSettings
from localspec.worker.client import Worker
from localspec.worker.codec import job_of, kinds
from localspec.worker.job_queue import Job
from localspec.worker.runtime import Runtime

if TYPE_CHECKING:
    from localspec.server.engine import ServerEngine
    from localspec.server.listening import HttpServer
    from localspec.server.warm_engine import SharedEngine

LOOK = 1.0  # seconds between looks at a child that has nothing to do
GRACE = 2.0  # seconds for an answer to end once its child was told to
LONGEST_SPEC = 1 << 20  # bytes


class _Loading(Job):
    """The load at the start. Its last event is told once the next job can begin."""

    def __init__(self, loader: PairLoader, settings: LoadSettings, tell: Callable[[Event], None]) -> None:
        self._loader, self._settings, self._tell = loader, settings, tell
        self._last: Event | None = None

    def run(self) -> Iterator[Event]:
        return self._loader.load(self._settings, lambda: self.is_cancelled)

    def observe(self, event: Event) -> None:
        if isinstance(event, Loaded | Finished):
            self._last = event
        else:
            self._tell(event)

    def end(self, error: LocalspecError | None) -> None:
        last = self._last if error is None else Failed(error.to_wire())
        if last is not None:
            self._tell(last)


class Background:
    """The process: from the pair that it is to load, to its end."""

    def __init__(self, worker: Worker, runtime: Runtime, name: str, listener: socket.socket) -> None:
        self._worker, self._runtime, self._name, self._listener = worker, runtime, name, listener
        self._queue: ServerEngine
        self._shared: SharedEngine
        self._server: HttpServer
        self._ending: asyncio.Task[None] | None = None

    async def run(self, settings: LoadSettings) -> None:
        from localspec.server.app import Routes
        from localspec.server.engine import ServerEngine
        from localspec.server.fields import ServedPair
        from localspec.server.listening import HttpServer
        from localspec.server.refusal import called
        from localspec.server.served_pairs import Pairs
        from localspec.server.warm_engine import SharedEngine
        from localspec.settings.request import Request

        loader = PairLoader(self._worker)
        first = ServedPair(called(settings), (), 0, 0, "", None, settings, Request())
        pairs = Pairs(first)
        loop = asyncio.get_running_loop()

        def died(error: LocalspecError) -> None:
            loop.call_soon_threadsafe(self._end, error)

        queue = ServerEngine(self._worker, loader, settings, most_waiting=16, on_loaded=pairs.loaded, on_death=died)
        self._queue = queue
        self._shared = SharedEngine(queue, self._worker, settings, self._stop, partial(self._end, None))
        queue.submit_job(_Loading(loader, settings, self._shared.tell))
        self._server = HttpServer(Routes(queue, pairs).app(self._shared.routes()), queue)
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.call_later(LOOK, self._look)
        try:
            await self._server.serve([self._listener])
            if self._ending is not None:
                await self._ending
        finally:
            self._worker.close()

    def _stop(self) -> None:
        self._end(self._shared.stopped())

    def _end(self, error: LocalspecError | None) -> None:
        if self._ending is None:
            self._queue.close(error)
            with self._runtime.locked():
                self._runtime.remove(self._name)
            self._ending = asyncio.create_task(self._ended(error))

    async def _ended(self, error: LocalspecError | None) -> None:
        """Stop the child, tell all that it is over, and let the server end."""
        queue, worker = self._queue, self._worker
        if queue.is_busy and worker.pid is not None:  # it loads or answers: whoever waits is told by its death
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
        await asyncio.to_thread(queue.join, GRACE)
        self._shared.end(error)
        await asyncio.to_thread(worker.close)
        self._server.leave()

    def _look(self) -> None:
        lost = None if self._queue.is_busy else self._worker.lost()
        if lost is not None:
            self._end(lost)
        asyncio.get_running_loop().call_later(LOOK, self._look)


def main(command: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker(command=command or None)
    worker.prepare()
    from localspec.server import app, listening, warm_engine  # noqa: F401 - before the pair is known

    spec, fds = _received(socket.socket(fileno=os.dup(0)))
    if spec is None:
        worker.close()
        return
    settings = job_of(spec["load"], kinds(PairJob)).settings
    listener = socket.socket(fileno=fds[0])
    listener.setblocking(False)
    asyncio.run(Background(worker, Runtime(Path(spec["path"]), fds[1]), spec["name"], listener).run(settings))
    os._exit(0)  # nothing is left to be tidied up, and a thread that hangs would hold it


def _received(given: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return what the client gives, and its descriptors; None and none if it needs no engine after all."""
    line, fds = b"", list[int]()
    with given:
        while not line.endswith(b"\n"):
            try:
                chunk, more, _, _ = socket.recv_fds(given, LONGEST_SPEC, 2)
            except OSError:
                chunk, more = b"", []
            fds += more
            if not chunk:
                return None, []
            line += chunk
    return json.loads(line), fds


if __name__ == "__main__":
    main(sys.argv[1:])
