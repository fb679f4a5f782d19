"""What a client is told of its answer, in order, also after pauses."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from typing import cast

import pytest

from localspec.chat.pair_loader import PairLoader
from localspec.engine.events import Event, Finished, Warned
from localspec.errors import LocalspecError, NotFoundError, ResourceError
from localspec.server.engine import LEAVING, QueuedJob, ServerEngine
from localspec.server.refusal import Refusal
from localspec.settings.jobs import VerifyRound
from localspec.settings.request import LoadSettings, Request
from tests.cli.fakes import FakeWorker
from tests.cli.harness import TIMEOUT, wait_for


def ended(reason: str) -> Finished:
    return Finished(reason=reason, tail="", wall_ms=1.0, ttft_ms=1.0, peak_memory=1)


async def read(*news: Event | Exception) -> list[Event | None]:
    """Read a job to its end; each of `news` comes once a pause was told."""
    job = QueuedJob(Request(), LoadSettings("m.gguf"), cast(ServerEngine, None))
    told: list[Event | None] = []
    left = list(news)
    async for event in job.events(patience=0.001):
        told.append(event)
        if event is None and left:
            job.tell(left.pop(0))
    return told


def test_a_pause_is_told_and_the_answer_goes_on() -> None:
    warned, finished = Warned("request", "slow"), ended("stop")
    told = asyncio.run(read(warned, finished))
    assert [event for event in told if event is not None] == [warned, finished]
    assert told[0] is None
    assert None in told[2:], "a pause between the two"


@pytest.mark.parametrize("kind", [ResourceError, NotFoundError])
def test_a_pair_that_cannot_be_loaded_is_told_to_both(kind: type[LocalspecError]) -> None:
    """Its client reads why, and so does who runs the server. Whatever it is, the request is not at fault."""
    warned: list[Warned] = []

    class Full(FakeWorker):
        def load(self, settings: LoadSettings) -> Iterator[Event]:
            raise kind("no memory is left for t.gguf", hint="a smaller --ctx")

    async def answer() -> None:
        worker = Full()
        engine = ServerEngine(
            worker, PairLoader(worker), LoadSettings("t.gguf"), most_waiting=1, on_end=lambda stats: None,
            on_warning=warned.append,
        )  # fmt: skip
        (job,) = engine.submit(Request())
        with pytest.raises(Refusal, match=r"no memory is left for t\b(?!\.gguf)") as refused:
            [event async for event in job.events(patience=TIMEOUT)]
        assert refused.value.status == 503
        await asyncio.to_thread(engine.end, TIMEOUT)

    asyncio.run(answer())
    assert warned == [Warned("engine", "no memory is left for t.gguf")]


@pytest.mark.parametrize("how", ["stopped", "aborted"])
def test_a_job_that_is_stopped_while_its_pair_loads_is_not_begun(how: str) -> None:
    begun, goes_on, asked = threading.Event(), threading.Event(), list[bool]()

    class Slow(PairLoader):
        def ready(self, settings: LoadSettings, is_stopped: Callable[[], bool]) -> Generator[Event, None, bool]:
            begun.set()
            goes_on.wait(TIMEOUT)
            asked.append(is_stopped())
            yield from ()
            return True

    async def answer() -> None:
        worker = FakeWorker()
        engine = ServerEngine(worker, Slow(worker), LoadSettings("t.gguf"), most_waiting=1)
        (job,) = engine.submit(Request())
        await asyncio.to_thread(begun.wait, TIMEOUT)
        engine.stop(job) if how == "stopped" else engine.abort()
        goes_on.set()
        with pytest.raises(Refusal, match=LEAVING) as refused:
            [event async for event in job.events(patience=TIMEOUT)]
        assert refused.value.status == 503
        await asyncio.to_thread(engine.end, TIMEOUT)
        assert not worker.requests

    asyncio.run(answer())
    assert asked == [how == "aborted"]


def test_an_answer_that_was_interrupted_is_refused() -> None:
    with pytest.raises(Refusal, match=LEAVING):
        asyncio.run(read(ended("interrupted")))


def test_the_last_event_comes_after_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has read its answer may ask for them at once; some saw the answer as running still."""
    order: list[object] = []
    tell = QueuedJob.tell

    def told(job: QueuedJob, news: Event | Exception) -> None:
        order.append(type(news))
        tell(job, news)

    async def answer() -> None:
        worker = FakeWorker()
        loader = PairLoader(worker)
        engine = ServerEngine(
            worker, loader, LoadSettings("t.gguf"), most_waiting=1, on_end=lambda stats: order.append("figures")
        )
        (job,) = engine.submit(Request())
        assert [event async for event in job.events(patience=TIMEOUT)]
        assert engine.board.summary()["running"] is None
        assert engine.totals.answers == 1
        await asyncio.to_thread(engine.end, TIMEOUT)

    monkeypatch.setattr(QueuedJob, "tell", told)
    asyncio.run(answer())
    assert order[-2:] == ["figures", Finished]


def test_a_round_of_an_edge_goes_before_the_answers_that_wait() -> None:
    """It is one pass. With fifty clients an edge waited for all of them, once for every few tokens."""

    async def ask() -> list[int]:
        worker = FakeWorker(pause=TIMEOUT)
        engine = ServerEngine(worker, PairLoader(worker), LoadSettings("t.gguf"), most_waiting=9)
        (running,) = engine.submit(Request())
        await asyncio.to_thread(wait_for, lambda: engine.is_busy and not engine.n_waiting)
        waiting = engine.submit(Request(), Request())
        rounds = [engine.submit(VerifyRound(name, b"", (), b""), is_limited=False)[0] for name in "ab"]
        places = [engine.n_before(job) for job in (running, *rounds, *waiting)]
        await asyncio.to_thread(engine.end, TIMEOUT)
        return places

    assert asyncio.run(ask()) == [0, 1, 2, 3, 4]
