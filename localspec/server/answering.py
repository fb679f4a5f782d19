"""Sends an answer while it comes: as a stream, or as one object at its end."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from localspec.engine.events import Inspected
from localspec.server.engine import ClientGoneError, QueuedJob, ServerEngine, Work
from localspec.server.fields import ClientRequest
from localspec.server.guard import Receive, Scope, Send, refusal_wire
from localspec.server.refusal import Refusal, Wire
from localspec.server.reply import encoded
from localspec.settings.request import LoadSettings, Request
from localspec.ui.stats import Stats

FIRST = 0.5  # seconds in which an error is still a status, before a stream begins without a token
SILENCE = 10.0  # seconds in which nothing was sent, after which a sign of life is
LOOK = 0.25  # seconds between two looks at these
SLOWEST = 30.0  # seconds that a client may take nothing, before it is cut off


@asynccontextmanager
async def watched(receive: Receive, leave: Callable[[], object]) -> AsyncGenerator[None, None]:
    """Call `leave` once the client has gone, and end the block where it raises ClientGoneError."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        leave()

    watching = asyncio.create_task(watch())
    try:
        yield
    except ClientGoneError:
        pass
    finally:
        watching.cancel()


class _Waiting(ABC):
    """A response that waits for jobs of a pair, which have their place in the queue from here on."""

    def __init__(self, engine: ServerEngine, settings: LoadSettings, work: Sequence[Work]) -> None:
        self._engine = engine
        self._jobs = engine.submit(*work, settings=settings) if work else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; a client that leaves stops the jobs."""
        try:
            async with watched(receive, self._leave):
                await self._send(_Sender(scope, receive, send))
        finally:
            self._stop()

    @abstractmethod
    async def _send(self, sender: _Sender) -> None:
        """Send what the jobs give."""

    def _stop(self) -> None:
        for job in self._jobs:
            self._engine.stop(job)

    def _leave(self) -> None:
        for job in self._jobs:
            job.tell(ClientGoneError())
        self._stop()


class QuestionResponse(_Waiting):
    """The response to a question of a text, which `told` makes of what was found."""

    def __init__(self, engine: ServerEngine, settings: LoadSettings, work: Work, wire: Callable[[Wire], Wire]) -> None:
        super().__init__(engine, settings, [work])
        self._wire = wire

    async def _send(self, sender: _Sender) -> None:
        reply: Wire = {}
        async for event in self._jobs[0].events(LOOK):
            if isinstance(event, Inspected):
                reply = event.content
        await sender.whole(encoded(self._wire(reply)))


class AnswerResponse(_Waiting):
    """The response to one request: of one answer, or of several, one after the other."""

    def __init__(self, engine: ServerEngine, settings: LoadSettings, asked: ClientRequest) -> None:
        super().__init__(
            engine, settings, [_numbered(each, i) for each in (asked.request, *asked.others) for i in range(asked.n)]
        )
        self._asked = asked
        self._reply = asked.reply

    async def _send(self, sender: _Sender) -> None:
        await (self._stream(sender) if self._asked.is_streamed else self._whole(sender))

    @property
    def _stats(self) -> list[Stats]:
        return [job.stats for job in self._jobs] or [Stats()]

    async def _whole(self, sender: _Sender) -> None:
        """Send the object at its end, with blanks before it that keep the connection alive.

        An error after a blank is the object, and the connection breaks, so that no client takes it for an answer.
        """
        due, is_open = time.monotonic() + SILENCE, False
        try:
            for job in self._jobs:
                async for _ in job.events(LOOK):
                    if time.monotonic() >= due:
                        if not is_open:
                            is_open = True
                            await sender.begin("application/json")
                        await sender.put(b" ")
                        due = time.monotonic() + SILENCE
        except Refusal as refusal:
            if not is_open:
                raise
            await sender.put(encoded(refusal_wire(sender.path, refusal)))
            sender.abort()
            return
        body = encoded(self._reply.whole(*self._stats))
        await (sender.put(body, is_last=True) if is_open else sender.whole(body))

    async def _stream(self, sender: _Sender) -> None:
        """Send pieces as they come; before the stream begins an error is a status, after that a part of it."""
        reply, is_open, due = self._reply, False, time.monotonic() + FIRST
        try:
            async for wires in self._wires():
                if not wires and time.monotonic() < due:
                    continue
                body = b"".join(map(reply.frame, wires))
                if not is_open:
                    is_open = True
                    await sender.begin(reply.media_type)
                    body = b"".join(map(reply.frame, reply.opening())) + body
                await sender.put(body or reply.waiting())
                due = time.monotonic() + SILENCE
        except Refusal as refusal:
            if not is_open:
                raise
            await sender.put(reply.frame(reply.failure(refusal)), is_last=True)
            return
        if not is_open:  # an answer without a token of text
            await sender.begin(reply.media_type)
            await sender.put(b"".join(map(reply.frame, reply.opening())))
        closing = b"".join(map(reply.frame, reply.closing(*self._stats)))
        await sender.put(closing + reply.end, is_last=True)

    async def _wires(self) -> AsyncIterator[list[Wire]]:
        """Yield what each event adds to the stream, often []; an answer begins by what follows the one before."""
        before: QueuedJob | None = None
        for job in self._jobs:
            following = [] if before is None else self._reply.following(before.stats)
            async for event in job.events(LOOK):
                yield [*following, *([] if event is None else self._reply.pieces(event))]
                following = []
            before = job


def _numbered(request: Request, i: int) -> Request:
    """Return the request of answer number `i`: with a seed that was given, the one so far behind it."""
    seed = request.sampling.seed
    if i == 0 or seed is None:
        return request
    return replace(request, sampling=replace(request.sampling, seed=(seed + i) % 2**64))


class _Sender:
    """Sends, and cuts off a client that takes nothing."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.abort: Callable[[], None] = scope["state"]["abort"]
        self.path: str = scope["path"]
        self._scope, self._receive, self._send = scope, receive, send

    async def whole(self, body: bytes) -> None:
        await Response(body, media_type="application/json")(self._scope, self._receive, self.send)

    async def begin(self, media_type: str) -> None:
        """Begin a stream, which no proxy is to hold back."""
        headers = {"content-type": media_type, "cache-control": "no-store", "x-accel-buffering": "no"}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": 200, "headers": raw})

    async def put(self, body: bytes, *, is_last: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a message; raises ClientGoneError for a client that does not read."""
        try:
            async with asyncio.timeout(SLOWEST):
                await self._send(message)
        except TimeoutError:
            self.abort()
            raise ClientGoneError from None
