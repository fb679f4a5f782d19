"""Several pairs in memory: each in a process of its own where it fits, else in place of the idle one of longest ago."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from localspec.chat.pair_loader import PairLoader
from localspec.engine.events import Event
from localspec.server.engine import QueuedJob, ServerEngine
from localspec.settings.jobs import LoadedJob
from localspec.settings.request import LoadSettings, Request
from tests.cli.fakes import FakeWorker
from tests.cli.harness import TIMEOUT, wait_for

A, B, C = (LoadSettings(f"{name}.gguf", name=name) for name in "abc")


class Held(FakeWorker):
    """Answers once `go` is set."""

    def __init__(self, go: threading.Event) -> None:
        super().__init__()
        self.go = go

    def start(self, job: LoadedJob) -> Iterator[Event]:
        self.go.wait(TIMEOUT)
        return super().start(job)


def asked(room: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[list[str]]]:
    monkeypatch.setattr("localspec.backends.limits.available_memory", lambda: room)
    answered, go = list[str](), threading.Event()
    workers: list[FakeWorker] = [Held(go)]

    def another() -> FakeWorker:
        workers.append(FakeWorker())
        return workers[-1]

    async def going() -> None:
        first = workers[0]
        engine = ServerEngine(first, PairLoader(first), A, most_waiting=9, another=another)  # type: ignore[arg-type]
        (held,) = engine.submit(Request(), settings=A)
        await asyncio.to_thread(wait_for, lambda: engine.is_busy)

        async def read(settings: LoadSettings, job: QueuedJob) -> None:
            async for _ in job.events(TIMEOUT):
                pass
            answered.append(settings.name)

        # Both wait before the first ends.
        jobs = [(each, engine.submit(Request(), settings=each)[0]) for each in (B, A)]
        tasks = [asyncio.create_task(read(*each)) for each in jobs]
        if room:
            await tasks[0]
        go.set()
        async for _ in held.events(TIMEOUT):
            pass
        await asyncio.gather(*tasks)
        await read(C, engine.submit(Request(), settings=C)[0])
        await asyncio.to_thread(engine.end, TIMEOUT)

    asyncio.run(going())
    return answered, [[each.name for each in worker.loads] for worker in workers]


def test_a_pair_does_not_wait_for_another_ones_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, loads = asked(1 << 40, monkeypatch)
    assert answered == ["b", "a", "c"]
    assert loads == [["a"], ["b"], ["c"]]


def test_without_room_they_take_turns_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, loads = asked(0, monkeypatch)
    assert answered == ["b", "a", "c"]
    assert loads == [["a", "b", "a", "c"]]
