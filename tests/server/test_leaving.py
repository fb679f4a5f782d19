"""A client that leaves stops its answer and gives up its place: seen within seconds, on a worker that never ends."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator, MutableMapping
from typing import Any

import pytest

from localspec.engine.events import Event, Finished
from localspec.server.answering import AnswerResponse
from localspec.server.engine import ServerEngine
from localspec.server.fields import ClientRequest
from localspec.server.openai import OpenAI
from localspec.settings.request import LoadSettings, Request
from tests.cli.harness import TIMEOUT
from tests.server.test_openai_replies import STARTED

SOON = TIMEOUT / 3  # seconds
SETTINGS = LoadSettings("m.gguf")


class EndlessWorker:
    """Answers until it is cancelled."""

    def __init__(self) -> None:
        self.is_running, self.is_cancelled = threading.Event(), threading.Event()

    def start(self, job: object) -> Iterator[Event]:
        self.is_running.set()
        yield STARTED
        self.is_cancelled.wait(3 * SOON)
        yield Finished("interrupted", "", 0.0, 0.0, 0)

    def cancel(self) -> None:
        self.is_cancelled.set()


class Loader:
    """Has loaded the pair already."""

    held = None

    def has(self, settings: LoadSettings) -> bool:
        return True

    def ready(self, settings: LoadSettings, is_stopped: Callable[[], bool]) -> Generator[Event, None, bool]:
        yield from ()
        return True

    def prepare(self, request: Request) -> None:
        """Read nothing beside the models."""


class Client:
    """Somebody who asked, and may leave."""

    def __init__(self, engine: ServerEngine, *, is_streamed: bool = False) -> None:
        asked = ClientRequest(Request(prompt="x"), OpenAI("m", is_chat=True, has_usage=False), is_streamed)
        self._leaving, self.is_cut_off = asyncio.Event(), asyncio.Event()
        scope = {"type": "http", "path": "/v1/chat/completions", "state": {"abort": self.is_cut_off.set}}
        self._task = asyncio.ensure_future(AnswerResponse(engine, SETTINGS, asked)(scope, self._receive, self._send))

    async def _receive(self) -> MutableMapping[str, Any]:
        await self._leaving.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        pass

    async def leave(self) -> None:
        self._leaving.set()
        await asyncio.wait_for(self._task, SOON)


class DeafClient(Client):
    """Somebody who stays, and takes nothing of what is sent."""

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self._leaving.wait()


def talk(going: Callable[[ServerEngine, EndlessWorker], Any], most_waiting: int = 4) -> None:
    async def run() -> None:
        worker = EndlessWorker()
        engine = ServerEngine(worker, Loader(), SETTINGS, most_waiting=most_waiting)
        try:
            await going(engine, worker)
        finally:
            worker.cancel()
            engine.end(SOON)

    asyncio.run(run())


@pytest.mark.parametrize("is_streamed", [True, False])
def test_it_stops_its_answer(is_streamed: bool) -> None:
    async def going(engine: ServerEngine, worker: EndlessWorker) -> None:
        client = Client(engine, is_streamed=is_streamed)
        assert await asyncio.to_thread(worker.is_running.wait, SOON)
        await client.leave()
        stopped = await asyncio.to_thread(worker.is_cancelled.wait, SOON)
        assert stopped, "a client left, and its answer goes on"

    talk(going)


def test_it_gives_up_its_place() -> None:
    async def going(engine: ServerEngine, worker: EndlessWorker) -> None:
        Client(engine)
        assert await asyncio.to_thread(worker.is_running.wait, SOON)
        waiting = [Client(engine, is_streamed=i % 2 == 0) for i in range(4)]
        await asyncio.sleep(0)
        assert engine.n_waiting == 4
        for left, client in enumerate(waiting, start=1):
            await client.leave()
            assert engine.n_waiting == 4 - left, "a client left, and keeps its place in the queue"
        assert not worker.is_cancelled.is_set(), "the answer of another one goes on"

    talk(going)


def test_who_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer stops too. The first thing to be sent is a sign of life."""
    monkeypatch.setattr("localspec.server.answering.SILENCE", 0.01)
    monkeypatch.setattr("localspec.server.answering.SLOWEST", 0.01)

    async def going(engine: ServerEngine, worker: EndlessWorker) -> None:
        client = DeafClient(engine, is_streamed=True)
        await asyncio.wait_for(client.is_cut_off.wait(), SOON)
        stopped = await asyncio.to_thread(worker.is_cancelled.wait, SOON)
        assert stopped, "a client takes nothing, and its answer goes on"

    talk(going)
