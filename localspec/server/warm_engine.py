"""An engine that programs of this user share, behind a Unix socket: who uses it, and when it ends.

The clients (`localspec.worker.engines`) speak HTTP, as those of any server do. They attach by a request that lasts as
long as they need the pair: it tells them of the load, and of the engine's end. A client that leaves stops its answer
within a pass.
"""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from localspec.engine.events import Event, Failed, Finished, Loaded, Loading
from localspec.errors import EngineStoppedError, LocalspecError
from localspec.server.answering import watched
from localspec.server.engine import ClientGoneError, QueuedJob, ServerEngine
from localspec.server.guard import App, Receive, Scope, Send
from localspec.server.refusal import Refusal
from localspec.settings.jobs import LoadedJob
from localspec.settings.request import LoadSettings
from localspec.worker.client import Worker
from localspec.worker.codec import event_line, event_wire, job_of, kinds
from localspec.worker.engines import identity, left
from localspec.worker.keep_policy import SLOW
from localspec.worker.runtime import Runtime

JOBS = kinds(LoadedJob)
JSON_LINES = "application/x-ndjson"
FIRST_PATIENCE = 30.0  # seconds in which the client that started it must come
SILENCE = 60.0  # seconds


class Visitor:
    """A client that needs the pair: what it is told, None at the end, and how it calls the pair."""

    def __init__(self, name: str, by: str, pid: int) -> None:
        self.name, self.by, self.pid = name, by, pid
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._began = time.monotonic()

    def tell(self, event: Event) -> None:
        """Tell of the load as of its own: with its name, and the time that it waited."""
        wire = event_wire(event, 0)
        if isinstance(event, Loaded):
            wire |= {"name": self.name, "load_ms": 1e3 * (time.monotonic() - self._began)}
        self.lines.put_nowait(json.dumps(wire).encode("ascii") + b"\n")


class SharedEngine:
    """Who uses an engine, and when it ends. For the loop of the server, but for `tell`.

    `stop` ends the process and its answers, at once. `leave` ends one that was left behind and that nobody uses; it is
    None in a server.
    """

    def __init__(
        self,
        queue: ServerEngine,
        worker: Worker,
        settings: LoadSettings,
        stop: Callable[[], None],
        leave: Callable[[], None] | None = None,
    ) -> None:
        self.visitors: set[Visitor] = set()
        self.loaded: Loaded | None = None
        self._keep_alive, self._is_auto = 0.0, False
        self._idle_until: float | None = None
        self._since = time.time()
        self._queue, self._worker, self._settings = queue, worker, settings
        self._stop, self._leave = stop, leave
        queue.tell_close(self._close)
        self._jobs: dict[str, QueuedJob] = {}
        self._load_events: list[Event] = []  # of the load, but for its progress
        self._progress: list[Event] = []  # the last of it
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wait(FIRST_PATIENCE)

    def tell(self, event: Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._tell, event)

    def _tell(self, event: Event) -> None:
        if isinstance(event, Loaded):
            self.loaded = event
            if self._is_auto and event.load_ms < 1e3 * SLOW:
                self._keep_alive = 0.0
        if isinstance(event, Loading):
            self._progress = [event]
        else:
            self._progress = []
            self._load_events.append(event)
        for visitor in self.visitors:
            visitor.tell(event)
        if isinstance(event, Failed) and self.visitors:
            self._go()

    def attach(self, visitor: Visitor, keep_alive: float | None, *, is_auto: bool) -> None:
        """Let a client in. `keep_alive` None leaves the time as it is."""
        if keep_alive is not None:
            self._keep_alive, self._is_auto = keep_alive, is_auto
        self._idle_until = None
        if self._timer is not None:
            self._timer.cancel()
        self.visitors.add(visitor)
        for event in (*self._load_events, *self._progress):
            visitor.tell(event)
        if self._load_events and isinstance(self._load_events[-1], Failed):
            self._go()

    def detach(self, visitor: Visitor) -> None:
        """Let a client go. What is not loaded yet has nothing to lose, and reading a file cannot be interrupted."""
        self.visitors.discard(visitor)
        self._wait(self._keep_alive if self.loaded is not None else 0.0)

    def stopped(self, doing: str = "idle") -> EngineStoppedError:
        by = "with its server" if self._leave is None else "by localspec stop or by SIGTERM"
        return EngineStoppedError(f"The engine was stopped, {by}, while {doing}", hint="the same again")

    def _close(self, error: LocalspecError | None) -> None:
        """Tell clients at once that the engine ends: those that ask nothing need not wait for those that do."""
        for visitor in self.visitors if self.loaded is not None else ():
            visitor.tell(Failed((error or self.stopped()).to_wire()))

    def end(self, error: LocalspecError | None) -> None:
        for visitor in self.visitors:
            if error is not None:
                visitor.tell(Failed(error.to_wire()))
            visitor.lines.put_nowait(None)

    def facts(self) -> dict[str, Any]:
        """Return what `localspec ps` shows. Times are seconds since 1970."""
        settings, queue = self._settings, self._queue
        state = "loading" if self.loaded is None else "answering" if queue.is_busy else "idle"
        server = [] if self._leave is not None else [{"by": "serve", "pid": os.getpid()}]
        return {
            "settings": {"name": settings.name, "target": settings.target, "draft": settings.draft},
            "loaded": None if self.loaded is None else event_wire(self.loaded, 0),
            "pid": self._worker.pid,
            "engine_pid": os.getpid(),
            "since": self._since,
            "state": "ending" if queue.is_closed else state,
            "clients": [*server, *({"by": each.by, "pid": each.pid, "name": each.name} for each in self.visitors)],
            "waiting": queue.n_waiting,
            "keep_alive": self._keep_alive,
            "idle_until": self._idle_until,
            "tokens": queue.n_cached,
        }

    def routes(self) -> list[BaseRoute]:
        """Return the routes of clients of this user, which no other client reaches."""
        return [
            Route("/v1/engine", self._facts, methods=["GET"]),
            Route("/v1/engine/log", self._log, methods=["GET"]),
            Route("/v1/engine/leave", self._leaves, methods=["POST"]),
            Route("/v1/engine/stop", self._stops, methods=["POST"]),
            Route("/v1/engine/cancel", self._cancel, methods=["POST"]),
            Route("/v1/engine/attach", self._attach, methods=["POST"]),
            Route("/v1/events", self._events, methods=["POST"]),
        ]

    def _wait(self, seconds: float) -> None:
        if self._leave is not None and not self.visitors:
            self._idle_until = time.time() + seconds
            self._timer = self._loop.call_later(seconds, self._go)

    def _go(self) -> None:
        if self._leave is not None:
            self._leave()

    async def _facts(self, _request: Request) -> Response:
        return JSONResponse(self.facts())

    async def _log(self, _request: Request) -> Response:
        return Response(self._worker.log_tail(1000), media_type="text/plain")

    async def _leaves(self, _request: Request) -> Response:
        if self._leave is None or self.visitors or self._queue.is_busy:
            return JSONResponse({}, 409)
        self._loop.call_soon(self._go)
        return JSONResponse({})

    async def _stops(self, _request: Request) -> Response:
        self._loop.call_soon(self._stop)
        return JSONResponse({})

    async def _cancel(self, request: Request) -> Response:
        job = self._jobs.get(str((await request.json()).get("id")))
        if job is not None:
            await asyncio.to_thread(self._queue.stop, job)
        return JSONResponse({})

    async def _attach(self, request: Request) -> App:
        body = await request.json()
        keep_alive, is_auto = body.get("keep_alive"), bool(body.get("is_auto"))
        visitor = Visitor(str(body["name"]), str(body["by"]), int(body["pid"]))

        async def lines() -> AsyncGenerator[bytes, None]:
            try:
                self.attach(visitor, None if keep_alive is None else float(keep_alive), is_auto=is_auto)
                yield json.dumps({"type": "attached", "pid": self._worker.pid or 0}).encode("ascii") + b"\n"
                while (line := await visitor.lines.get()) is not None:
                    yield line
            finally:
                self.detach(visitor)

        if self._queue.is_closed:
            return JSONResponse({}, 503)
        return _streamed(lines(), lambda: visitor.lines.put_nowait(None))

    async def _events(self, request: Request) -> App:
        """Answer a job of any kind: whoever asks might as well load the pair."""
        body = await request.json()
        try:
            (job,) = self._queue.submit(job_of(body["job"], JOBS), settings=self._settings, is_limited=False)
        except Refusal:  # it is leaving
            return Response(event_line(Failed(self.stopped().to_wire()), 0), media_type=JSON_LINES)
        name = str(body["id"])
        self._jobs[name] = job

        async def lines() -> AsyncGenerator[bytes, None]:
            try:
                async for event in job.news(SILENCE):
                    if isinstance(event, Finished) and event.reason == "interrupted" and not job.is_cancelled:
                        raise self.stopped("answering")
                    if event is not None:
                        yield event_line(event, 0)
            except LocalspecError as error:
                yield event_line(Failed(error.to_wire()), 0)
            finally:
                del self._jobs[name]
                await asyncio.to_thread(self._queue.stop, job)

        return _streamed(lines(), lambda: job.tell(ClientGoneError()))


def _streamed(lines: AsyncGenerator[bytes, None], leave: Callable[[], object]) -> App:
    """Return a response of lines, until they end. `leave` is called once the client has gone."""

    async def respond(_scope: Scope, receive: Receive, send: Send) -> None:
        async with watched(receive, leave), contextlib.aclosing(lines):
            await StreamingResponse(lines, media_type=JSON_LINES).stream_response(send)

    return respond


@contextlib.contextmanager
def own_door(settings: LoadSettings) -> Iterator[socket.socket | None]:
    """Yield a socket for this user's programs, which find a pair there; None where there is no safe place for it.

    An idle engine that has the pair leaves.
    """
    with contextlib.ExitStack() as stack:
        listener = None
        with contextlib.suppress(LocalspecError, OSError):
            runtime = stack.enter_context(Runtime.opened(make=True))
            assert runtime is not None
            name = identity(settings)
            listener = runtime.listen(name)
            if listener is None and left(runtime, name):
                listener = runtime.listen(name)
            if listener is None:  # it is in use
                name = f"{name}-{os.getpid()}"
                listener = runtime.listen(name)
            stack.callback(runtime.remove, name)
        yield listener
