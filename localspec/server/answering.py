"""Sends an answer while it comes: as a stream, or as one object at its end."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from localspec.server.engine import ClientGoneError, Engine
from localspec.server.fields import Asked
from localspec.server.guard import Receive, Scope, Send, respond
from localspec.server.refusal import Refusal
from localspec.server.reply import encoded

SILENCE = 10.0  # seconds without news after which a stream begins or goes on with a sign of life
SLOWEST = 30.0  # seconds that a client may take nothing, before it is cut off


class Answer:
    """The response to one request, which has its place in the queue from here on."""

    def __init__(self, engine: Engine, asked: Asked) -> None:
        self._engine = engine
        self._asked = asked
        self._reply = asked.reply
        self._job = engine.submit(asked.request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; a client that leaves stops it."""
        watching = asyncio.create_task(self._watch(receive))
        try:
            sender = _Sender(scope, send)
            await (self._stream(sender) if self._asked.is_streamed else self._whole(sender))
        except ClientGoneError:
            pass
        finally:
            watching.cancel()
            self._engine.stop(self._job)

    async def _watch(self, receive: Receive) -> None:
        """Wait until the client has left, and stop its answer."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._engine.stop(self._job)
        self._job.tell(ClientGoneError())

    async def _whole(self, sender: _Sender) -> None:
        async for _ in self._job.events(SILENCE):
            pass
        await respond(sender.send, 200, encoded(self._reply.whole(self._job.stats)))

    async def _stream(self, sender: _Sender) -> None:
        """Send pieces as they come; before the first one an error is a status, after it a part of the stream."""
        reply, is_open = self._reply, False
        try:
            async for event in self._job.events(SILENCE):
                wires = [] if event is None else reply.pieces(event)
                if not wires and event is not None:
                    continue
                body = b"".join(map(reply.frame, wires)) if wires else reply.waiting
                if not is_open:
                    is_open = True
                    await sender.begin(reply.media_type)
                    body = b"".join(map(reply.frame, reply.opening())) + body
                await sender.put(body)
        except Refusal as refusal:
            if not is_open:
                raise
            await sender.put(reply.frame(reply.failure(refusal)), is_last=True)
            return
        if not is_open:  # an answer without a token of text
            await sender.begin(reply.media_type)
            await sender.put(b"".join(map(reply.frame, reply.opening())))
        closing = b"".join(map(reply.frame, reply.closing(self._job.stats)))
        await sender.put(closing + reply.end, is_last=True)


class _Sender:
    """Sends, and cuts off a client that takes nothing."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._abort = scope["state"]["abort"]
        self._send = send

    async def begin(self, media_type: str) -> None:
        """Begin a stream, which no proxy is to hold back."""
        headers = {"content-type": media_type, "cache-control": "no-store", "x-accel-buffering": "no"}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": 200, "headers": raw})

    async def put(self, body: bytes, *, is_last: bool = False) -> None:
        """Send a part of a stream."""
        await self.send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a message; raises ClientGoneError for a client that does not read."""
        try:
            async with asyncio.timeout(SLOWEST):
                await self._send(message)
        except TimeoutError:
            self._abort()
            raise ClientGoneError from None
