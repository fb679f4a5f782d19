"""While a prompt is read nobody hears nothing: a stream is open at once, and a connection that waits is used."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pytest

from localspec.engine.events import Event, Finished, Prefilled, Reading
from localspec.errors import WorkerDiedError
from localspec.server import answering, anthropic, llama_server, ollama, openai, responses
from localspec.server.answering import AnswerResponse
from localspec.server.engine import ServerEngine
from localspec.server.fields import ClientRequest
from tests.cli.fakes import committed
from tests.server.test_fields import HELLO, SERVED
from tests.server.test_leaving import SETTINGS, SOON, Loader
from tests.server.test_openai_replies import STARTED

BODIES: dict[str, tuple[Callable[..., Any], dict[str, Any], bytes]] = {  # path: reader, body, a sign of life
    "/v1/chat/completions": (openai.chat, {"messages": HELLO}, b": waiting\n\n"),
    "/v1/responses": (responses.responses, {"input": "Hello"}, b"event: response.in_progress\n"),
    "/v1/messages": (anthropic.messages, {"messages": HELLO}, b"event: ping\n"),
    "/api/chat": (ollama.chat, {"messages": HELLO}, b'"content":""},"done":false}\n'),
    "/completion": (llama_server.completion, {"prompt": "Hello"}, b": waiting\n\n"),
}


class ReadingWorker:
    """Reads a prompt until it is let go, and then answers, or dies where `error` says so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.goes_on = threading.Event()
        self.error = error

    def start(self, job: object) -> Iterator[Event]:
        yield STARTED
        n = 0
        while not self.goes_on.wait(0.001):
            n += 1
            yield Reading(n)
        if self.error is not None:
            raise self.error
        yield Prefilled(16, 6, 10.0)
        yield committed(0, "Once", k=0)
        yield Finished("stop", "", 100.0, 20.0, 0)

    def cancel(self) -> None:
        self.goes_on.set()


def body_of(worker: ReadingWorker, asked: ClientRequest, path: str, sign: bytes) -> tuple[bytes, bool]:
    """Return all that a client got, who saw two signs of life before the prompt was read, and whether it was cut."""
    sent, is_cut = bytearray(), threading.Event()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.extend(message.get("body", b""))
        if sent.count(sign) >= 3:
            worker.goes_on.set()

    async def going() -> None:
        engine = ServerEngine(worker, Loader(), SETTINGS, most_waiting=1)  # type: ignore[arg-type]
        scope = {"type": "http", "path": path, "state": {"abort": is_cut.set}}
        try:
            await asyncio.wait_for(AnswerResponse(engine, SETTINGS, asked)(scope, receive, send), SOON)
        finally:
            worker.cancel()
            engine.end(SOON)

    asyncio.run(going())
    return bytes(sent), is_cut.is_set()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing: reading is no silence, and so each of its events is a time to look."""
    for name in ("FIRST", "SILENCE"):
        monkeypatch.setattr(answering, name, 0.0)


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_is_open_while_the_prompt_is_read(path: str) -> None:
    read, body, sign = BODIES[path]
    sent, _ = body_of(ReadingWorker(), read({**body, "stream": True}, SERVED), path, sign)
    assert b"Once" in sent


@pytest.mark.parametrize("path", BODIES)
def test_a_whole_answer_keeps_its_connection(path: str) -> None:
    read, body, _ = BODIES[path]
    sent, is_cut = body_of(ReadingWorker(), read({**body, "stream": False}, SERVED), path, b" ")
    assert sent.startswith(b"   ")
    assert "Once" in json.dumps(json.loads(sent))
    assert not is_cut


def test_what_fails_behind_a_blank_is_no_answer() -> None:
    """The status was sent: the error is told, and the connection breaks."""
    asked = openai.chat({"messages": HELLO}, SERVED)
    worker = ReadingWorker(WorkerDiedError("The engine was killed"))
    sent, is_cut = body_of(worker, asked, "/v1/chat/completions", b" ")
    assert json.loads(sent)["error"]["code"] == "engine_died"
    assert is_cut


def test_what_fails_in_a_stream_is_its_last_part() -> None:
    asked = openai.chat({"messages": HELLO, "stream": True}, SERVED)
    worker = ReadingWorker(WorkerDiedError("The engine was killed"))
    sent, _ = body_of(worker, asked, "/v1/chat/completions", b": waiting")
    assert json.loads(sent.decode().rpartition("data: ")[2])["error"]["code"] == "engine_died"
