"""`/v1/verify`: edges on other machines draft, and this machine's target judges their drafts (docs/edge-and-cloud.md).

An edge has a WebSocket. Each of its rounds is a job in the queue of the engine, as a chat's request is. Nothing of a
session is kept here but what its next round takes along: the engine's process may die and forget it.
"""

import asyncio
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from localspec.engine.events import Inspected, Loaded
from localspec.errors import LocalspecError, UsageError, refused_with
from localspec.models.gguf.header import bare
from localspec.remote.messages import (
    LONGEST_PART,
    VERSION,
    Bye,
    Cancel,
    Error,
    Facts,
    Fetch,
    Hello,
    Look,
    MessageError,
    Prefix,
    ToEdge,
    ToVerifier,
    Verify,
    VocabularyPart,
    Wait,
    Welcome,
    encode,
    request_of,
)
from localspec.remote.vocabulary import vocabulary_of
from localspec.server.engine import ClientGoneError, QueuedJob, ServerEngine
from localspec.server.fields import ServedPair
from localspec.server.guard import Receive, Scope, Send, refused
from localspec.server.refusal import Refusal
from localspec.settings.jobs import VerifyRound
from localspec.settings.sizes import counted
from localspec.settings.structure import require_short

MOST_EDGES = 32  # connections at once
MOST_WRONG = 8  # messages of a connection that are none of the protocol
IDLE = 1800.0  # seconds that an edge may say nothing
SILENCE = 2.0  # seconds after which an edge is told that its round waits
SLOWEST = 30.0  # seconds that an edge may take nothing
POLICY, GOING_AWAY, UNSUPPORTED = 1008, 1001, 1003  # why a WebSocket is closed
SESSION = re.compile(r"[A-Za-z0-9_-]{22}")


class _ClosedError(Exception):
    """The connection is to be closed, with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(slots=True)
class VerifyingApp:
    """The ASGI application of the path. `served` is the target that judges."""

    engine: ServerEngine
    served: ServedPair
    edges: int = 0
    sessions: int = 0
    _vocabulary: asyncio.Task[tuple[str, bytes]] | None = None

    @property
    def holds(self) -> Loaded:
        assert self.served.loaded is not None, "a server serves once its pair is loaded"
        return self.served.loaded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        if self.edges >= MOST_EDGES:
            refusal = Refusal(503, f"{self.edges} edges are here already")
            await refused(scope["path"], refusal)(scope, receive, send)
            return
        self.edges += 1
        edge = _Edge(self, send)
        try:
            await send({"type": "websocket.accept"})
            await edge.serve(receive)
        except _ClosedError as why:
            await send({"type": "websocket.close", "code": why.code, "reason": str(why)})
        except ClientGoneError:
            pass
        finally:
            self.edges -= 1
            edge.stop()
            edge.leave()

    async def vocabulary(self) -> tuple[str, bytes]:
        """Return the digest of the target's vocabulary, and what is sent of it; it is made once.

        Raises Refusal where the model's file cannot be read: the next edge reads it again.
        """
        if self._vocabulary is None:
            path = Path(self.holds.target.path)
            self._vocabulary = asyncio.create_task(asyncio.to_thread(lambda: vocabulary_of(bare(path))))
        try:
            return await asyncio.shield(self._vocabulary)
        except (LocalspecError, OSError) as error:
            self._vocabulary = None
            raise Refusal(503, "the verifier cannot read the file of its model") from error

    async def facts(self) -> Facts:
        digest, packed = await self.vocabulary()
        can, target = self.holds, self.holds.target
        sizes = (can.n_ctx, can.max_rows, can.max_leaves, target.n_params, target.bytes)
        return Facts(VERSION, self.served.name, target.fingerprint, digest, len(packed), *sizes)


class _Edge:
    """One connection, with one session at a time and one round at a time."""

    def __init__(self, verifying: VerifyingApp, send: Send) -> None:
        self._verifying = verifying
        self._send = send
        self._session = ""
        self._name = ""  # of the session, in the log
        self._rounds = 0
        self._began = 0.0
        self._answer_number = 0  # that errors name
        self._hello = b""
        self._prefixes: list[bytes] = []  # told since the last round
        self._n_ids = 0  # ids in them
        self._round = -1  # the number of the round that is judged
        self._task: asyncio.Task[None] | None = None
        self._jobs: list[QueuedJob] = []

    async def serve(self, receive: Receive) -> None:
        """Obey messages until the connection ends. Raises _ClosedError where it is to be closed."""
        wrong = 0
        while (data := await self._next(receive)) is not None:
            try:
                await self._obey(request_of(data), data)
            except MessageError as error:
                wrong += 1
                await self._say(Error("usage", str(error), answer=self._answer_number))
            except UsageError as error:
                await self._say(Error(error.kind, error.message, error.hint, self._answer_number))
            except Refusal as refusal:
                await self._say(_error_of(refusal, self._answer_number))
            if wrong >= MOST_WRONG:
                raise _ClosedError(POLICY, "too many messages that are none")

    def stop(self) -> None:
        for job in self._jobs:
            self._verifying.engine.stop(job)
            job.tell(ClientGoneError())
        if self._task is not None:
            self._task.cancel()
        self._task, self._round = None, -1  # it ends later; the next round may begin at once

    async def _next(self, receive: Receive) -> bytes | None:
        """Return the next message, None at the end of the connection."""
        try:
            async with asyncio.timeout(IDLE):
                event = await receive()
        except TimeoutError:
            raise _ClosedError(GOING_AWAY, f"nothing was said for {IDLE:g} s") from None
        if event["type"] != "websocket.receive":
            return None
        data = event.get("bytes")
        if not isinstance(data, bytes):
            raise _ClosedError(UNSUPPORTED, "messages are binary")
        return data

    async def _obey(self, message: ToVerifier, data: bytes) -> None:
        match message:
            case Look():
                await self._say(await self._verifying.facts())
            case Fetch(start):
                _, packed = await self._verifying.vocabulary()
                await self._say(VocabularyPart(start, packed[start : start + LONGEST_PART]))
            case Hello():
                await self._welcome(message)
            case Prefix():
                self._read(message)
            case Verify():
                self._judge(message, data)
            case Cancel(number):
                if number == self._round:
                    self.stop()
            case Bye():
                self.stop()
                self.leave()
                self._drop()

    def leave(self) -> None:
        if self._session:
            seconds = time.monotonic() - self._began
            self._verifying.engine.on_session(f"{self._name} ended: {counted(self._rounds, 'round')}, {seconds:.1f} s")
        self._session = ""

    def _begin(self, hello: Hello) -> None:
        if self._session and self._session == hello.session:
            return
        self.leave()
        self._rounds, self._began = 0, time.monotonic()
        self._session = hello.session or secrets.token_urlsafe(16)
        if hello.prompt_n:
            self._verifying.sessions += 1
            self._name = f"session {self._verifying.sessions} of an edge"
            what = f"{'goes on' if hello.session else 'begins'}: a prompt of {counted(hello.prompt_n, 'token')}"
        else:  # before its first answer an edge learns what passes cost
            self._name, what = "a measurement by an edge", "begins: the time of passes"
        self._verifying.engine.on_session(f"{self._name} {what}")

    def _read(self, prefix: Prefix) -> None:
        """Keep a part of the text for the next round. Empty parts are counted too."""
        self._require_session()
        self._n_ids += len(prefix.ids)
        most = self._verifying.holds.n_ctx
        if self._n_ids > most or len(self._prefixes) >= most:
            self._drop()
            raise Refusal(400, f"the text is longer than the context of {most} tokens")
        self._prefixes.append(encode(prefix))  # without what the edge put behind it

    def _require_session(self) -> None:
        if not self._session:
            raise Refusal(400, "a round belongs to a session: say hello first")

    async def _welcome(self, hello: Hello) -> None:
        self._answer_number = hello.answer
        facts = await self._verifying.facts()
        if hello.version != VERSION:
            message = f"it speaks version {VERSION} of the protocol, and the edge {hello.version}"
            hint = "pip install -U localspec, on the older machine"
            await self._say(Error("incompatible", message, hint, hello.answer))
            return
        if hello.vocabulary != facts.vocabulary or hello.model not in ("", facts.model):
            message = f"it holds another model than the edge was made for: {facts.name}"
            await self._say(Error("incompatible", message, "Start the edge again.", hello.answer))
            return
        if hello.session and not SESSION.fullmatch(hello.session):
            raise Refusal(400, "this is no session")
        can = self._verifying.holds
        if hello.prompt_n > can.n_ctx:
            raise Refusal(
                400, f"a prompt of {counted(hello.prompt_n, 'token')} is longer than the context of {can.n_ctx}"
            )
        if hello.form is not None:
            require_short(*hello.form)
        self.stop()
        self._drop()
        self._begin(hello)
        self._hello = encode(hello)
        await self._say(Welcome(self._session, can.n_ctx, max_rows=can.max_rows, max_leaves=can.max_leaves))

    def _judge(self, message: Verify, data: bytes) -> None:
        """Begin a round; asked again while it is judged, it is answered once."""
        self._require_session()
        if self._task is not None and not self._task.done():
            if message.round == self._round:
                return
            raise Refusal(400, "one round at a time")
        self._round = message.round
        self._rounds += 1
        work = VerifyRound(self._session, self._hello, tuple(self._prefixes), data)
        self._drop()
        self._task = asyncio.create_task(self._answer(work, self._answer_number))

    async def _answer(self, work: VerifyRound, number: int) -> None:
        """Send the reply of the engine to a round. One that dies with it is asked again, once: it forgot the text."""
        try:
            try:
                reply = await self._asked(work)
            except Refusal as refusal:
                if refusal.code != "engine_died":
                    raise
                reply = await self._asked(work)
            await self._put(reply)
        except Refusal as refusal:
            await self._say(_error_of(refusal, number))
        except ClientGoneError:
            pass

    async def _asked(self, work: VerifyRound) -> bytes:
        engine = self._verifying.engine
        self._jobs = engine.submit(work, settings=self._verifying.served.settings, is_limited=False)
        reply = b""
        async for event in self._jobs[0].events(SILENCE):
            if event is None:
                await self._say(Wait(engine.n_before(self._jobs[0])))
            elif isinstance(event, Inspected):
                reply = bytes.fromhex(event.content["reply"])
        return reply

    def _drop(self) -> None:
        self._prefixes, self._n_ids = [], 0

    async def _say(self, message: ToEdge) -> None:
        await self._put(encode(message))

    async def _put(self, data: bytes) -> None:
        """Send bytes. Raises ClientGoneError for an edge that does not read."""
        try:
            async with asyncio.timeout(SLOWEST):
                await self._send({"type": "websocket.send", "bytes": data})
        except (TimeoutError, OSError):
            raise ClientGoneError from None


def _error_of(refusal: Refusal, answer: int) -> Error:
    kind = "worker_died" if refusal.code == "engine_died" else refused_with(refusal.status).kind
    return Error(kind, refusal.message[:1000], answer=answer)
