"""What an edge says, in any order and at any length, and what it is told of its place in the queue."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.engine.events import Event, Inspected, Loaded
from localspec.errors import LocalspecError, ResourceError, WorkerDiedError
from localspec.models.gguf.header import bare
from localspec.remote.messages import (
    VERSION,
    Bye,
    Cancel,
    Error,
    Facts,
    Fetch,
    Hello,
    Look,
    Prefix,
    Result,
    ToEdge,
    Verify,
    Wait,
    Welcome,
    encode,
    reply_of,
)
from localspec.remote.vocabulary import vocabulary_of
from localspec.server import verifying
from localspec.server.engine import ServerEngine
from localspec.server.fields import ServedPair
from localspec.server.verifying import VerifyingApp
from localspec.settings.jobs import TextQuestion, VerifyRound
from localspec.settings.request import LoadSettings, Request
from localspec.settings.structure import LONGEST_FORM
from tests.cli.fakes import facts
from tests.cli.harness import PAIR, TIMEOUT

TARGET = PAIR / "target-q8_0.gguf"
HELLO = Hello(VERSION, vocabulary_of(bare(TARGET))[0])
PREFIX = Prefix(0, (1, 2, 3))
N_CTX = 1024
Said = msgspec.Struct | bytes | str | Callable[[], Awaitable[object]]


class Judging:
    """A loaded worker, which judges a round once it may `go`."""

    held = None

    def __init__(self) -> None:
        self.begun: queue.Queue[Any] = queue.Queue()
        self.go = threading.Event()

    def has(self, settings: LoadSettings) -> bool:
        return False

    def ready(self, settings: LoadSettings, is_stopped: Callable[[], bool]) -> Generator[Event, None, bool]:
        yield from ()
        return True

    def start(self, work: Any) -> Iterator[Event]:
        self.begun.put(work)
        self.go.wait(TIMEOUT)
        yield Inspected({"reply": encode(Result(1, 0, 5, 4)).hex()})

    def cancel(self) -> None:
        self.go.set()

    async def has_begun(self) -> None:
        await asyncio.to_thread(self.begun.get, timeout=TIMEOUT)


@pytest.fixture
def worker() -> Judging:
    return Judging()


@pytest.fixture
def engine(worker: Judging) -> Iterator[ServerEngine]:
    made = ServerEngine(worker, worker, LoadSettings("m.gguf"), most_waiting=9)  # type: ignore[arg-type]
    yield made
    worker.go.set()
    made.end(TIMEOUT)


def serving(engine: ServerEngine, path: Path = TARGET) -> VerifyingApp:
    target = replace(facts(str(path)), fingerprint="f")
    loaded = Loaded("m", target, None, n_ctx=N_CTX, threads=1, load_ms=1.0, versions={}, max_rows=8, max_leaves=3)
    return VerifyingApp(engine, ServedPair("m", (), 0, 1, "Q8_0", loaded, LoadSettings("m.gguf"), Request()))


def told(served: VerifyingApp, *said: Said, until: type[ToEdge] | None = None) -> list[Any]:
    """Say all at once but where something is waited for; return what was told, up to one of `until`."""

    async def talk() -> list[Any]:
        heard: list[Any] = []
        is_over = asyncio.Event()
        left = iter((None, *said))

        async def receive() -> dict[str, Any]:
            for each in left:
                if each is None:
                    return {"type": "websocket.connect"}
                if isinstance(each, str):
                    return {"type": "websocket.receive", "text": each}
                if isinstance(each, msgspec.Struct | bytes):
                    return {"type": "websocket.receive", "bytes": each if isinstance(each, bytes) else encode(each)}
                await each()
            if until is not None:
                async with asyncio.timeout(TIMEOUT):
                    await is_over.wait()
            return {"type": "websocket.disconnect"}

        async def send(event: Any) -> None:
            if "bytes" in event:
                heard.append(reply_of(event["bytes"]))
                if until is not None and isinstance(heard[-1], until):
                    is_over.set()
            elif event["type"] == "websocket.close":
                heard.append((event["code"], event["reason"]))

        await served({"path": "/v1/verify"}, receive, send)
        return heard

    return asyncio.run(talk())


def test_a_round_follows_one_that_was_cancelled(engine: ServerEngine, worker: Judging) -> None:
    """In one piece with the cancel: the round before has the same number and is not over yet."""
    again = (Cancel(1), Bye(), HELLO, PREFIX, Verify(1, 3, 0))
    heard = told(serving(engine), HELLO, PREFIX, Verify(1, 3, 0), worker.has_begun, *again, until=Result)
    assert [type(each) for each in heard] == [Welcome, Welcome, Result]


def test_an_edge_is_told_how_many_come_before_it(
    engine: ServerEngine, worker: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither itself nor those behind it."""
    monkeypatch.setattr(verifying, "SILENCE", 0.01)

    async def others() -> None:
        engine.submit(TextQuestion(Request(), "tokens", "a"), TextQuestion(Request(), "tokens", "b"))
        await worker.has_begun()

    async def behind() -> None:
        async with asyncio.timeout(TIMEOUT):
            while engine.n_waiting < 2:
                await asyncio.sleep(0)
        engine.submit(TextQuestion(Request(), "tokens", "c"), TextQuestion(Request(), "tokens", "d"))

    heard = told(serving(engine), HELLO, PREFIX, others, Verify(1, 3, 0), behind, until=Wait)
    assert [each for each in heard if isinstance(each, Wait)][:1] == [Wait(2)]


def test_the_current_round_has_none_before_it(
    engine: ServerEngine, worker: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "SILENCE", 0.01)

    async def behind() -> None:
        await worker.has_begun()
        engine.submit(TextQuestion(Request(), "tokens", "c"))

    heard = told(serving(engine), HELLO, PREFIX, Verify(1, 3, 0), behind, until=Wait)
    assert [each for each in heard if isinstance(each, Wait)][:1] == [Wait(0)]


def test_an_edge_is_told_why_its_connection_is_closed(engine: ServerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    served, most = serving(engine), verifying.MOST_WRONG
    assert told(served, "text") == [(1003, "messages are binary")]
    wrong = told(served, *[b"\xc1"] * (most + 1))
    assert [type(each) for each in wrong] == [Error] * most + [tuple]
    assert wrong[-1] == (1008, "too many messages that are none")
    heard = told(served, *[b"\xc1"] * (most - 1), Look(VERSION))
    assert [type(each) for each in heard] == [Error] * (most - 1) + [Facts]
    monkeypatch.setattr(verifying, "IDLE", 0.01)

    async def silent() -> None:
        await asyncio.Event().wait()

    assert told(served, silent) == [(1001, "nothing was said for 0.01 s")]
    assert served.edges == 0


def test_an_edge_that_takes_nothing_is_left(engine: ServerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "SLOWEST", 0.01)
    served = serving(engine)
    news = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "bytes": encode(Look(VERSION))}])

    async def receive() -> dict[str, Any]:
        return next(news)

    async def send(event: Any) -> None:
        assert served.edges == 1
        if event["type"] == "websocket.send":
            await asyncio.Event().wait()

    asyncio.run(served({"path": "/v1/verify"}, receive, send))
    assert served.edges == 0


@pytest.mark.parametrize(
    "hello",
    [
        msgspec.structs.replace(HELLO, form=("regex", "a"), prompt_n=5_000_000_000),
        *(msgspec.structs.replace(HELLO, form=(name, "a" * (most + 1))) for name, most in LONGEST_FORM.items()),
    ],
    ids=["prompt", *LONGEST_FORM],
)
def test_a_hello_that_would_cost_time_or_memory_is_refused(engine: ServerEngine, hello: Hello) -> None:
    (error,) = told(serving(engine), hello)
    assert isinstance(error, Error)
    assert error.code == "usage"
    assert str(N_CTX if hello.prompt_n else LONGEST_FORM[hello.form[0] if hello.form else ""]) in error.message


def test_a_text_before_a_session_is_refused(engine: ServerEngine) -> None:
    (error,) = told(serving(engine), PREFIX)
    assert isinstance(error, Error)
    assert "say hello first" in error.message


def test_the_largest_that_an_edge_may_say(engine: ServerEngine) -> None:
    """A prompt and a text of the whole context, and a session by its name."""
    hello = msgspec.structs.replace(HELLO, prompt_n=N_CTX, session="-" * 22)
    heard = told(serving(engine), hello, Prefix(0, (1,) * N_CTX))
    assert heard == [Welcome("-" * 22, N_CTX, max_rows=8, max_leaves=3)]
    (error,) = told(serving(engine), msgspec.structs.replace(HELLO, session="-" * 21))
    assert isinstance(error, Error)
    assert error.message == "this is no session"


def test_one_round_at_a_time(engine: ServerEngine, worker: Judging) -> None:
    """Asked again while it is judged, a round is answered once."""
    go: Said = lambda: asyncio.sleep(0, worker.go.set())  # noqa: E731
    one, other = Verify(1, 3, 0), Verify(2, 3, 0)
    heard = told(serving(engine), HELLO, PREFIX, one, worker.has_begun, one, other, go, until=Result)
    assert [type(each) for each in heard] == [Welcome, Error, Result]
    assert heard[1].message == "one round at a time"


@pytest.mark.parametrize(
    ("error", "n", "kind"),
    [
        (WorkerDiedError("it was killed"), 1, None),
        (WorkerDiedError("it was killed" + "!" * 2000), 2, "worker_died"),
        (ResourceError("no memory"), 1, "network"),  # the server's trouble, and not the edge's
    ],
)
def test_a_round_with_which_the_engine_dies_is_asked_again_once(
    engine: ServerEngine, worker: Judging, error: LocalspecError, n: int, kind: str | None
) -> None:
    judge, left = worker.start, [error] * n

    def dying(work: VerifyRound) -> Iterator[Event]:
        if left:
            raise left.pop()
        return judge(work)

    worker.start = dying  # type: ignore[method-assign]
    worker.go.set()
    heard = told(serving(engine), HELLO, PREFIX, Verify(1, 3, 0), until=Result if kind is None else Error)
    if kind is None:
        assert heard[1] == Result(1, 0, 5, 4)
        return
    assert heard[1].code == kind
    assert heard[1].message == error.message[:1000]


def test_empty_parts_of_a_text_are_counted(engine: ServerEngine) -> None:
    heard = told(serving(engine), HELLO, *[Prefix(0, ())] * (N_CTX + 1))
    assert [type(each) for each in heard] == [Welcome, Error]


def test_what_is_behind_a_part_of_a_text_is_not_kept(engine: ServerEngine, worker: Judging) -> None:
    padded = msgspec.msgpack.encode([*msgspec.msgpack.decode(encode(PREFIX)), b"x" * 100_000])
    works: list[VerifyRound] = []

    async def judged() -> None:
        works.append(await asyncio.to_thread(worker.begun.get, timeout=TIMEOUT))

    told(serving(engine), HELLO, padded, Verify(1, 3, 0), judged)
    assert works[0].prefixes == (encode(PREFIX),)


def test_a_file_that_could_not_be_read_is_read_again(engine: ServerEngine, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"

    async def made() -> None:
        file.symlink_to(TARGET)

    error, found = told(serving(engine, file), Look(VERSION), made, Look(VERSION))
    assert isinstance(error, Error)
    assert str(tmp_path) not in error.message
    assert isinstance(found, Facts)


def test_a_vocabulary_is_sent_in_parts(engine: ServerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large as they may be; behind the last one there is nothing."""
    monkeypatch.setattr(verifying, "LONGEST_PART", 1000)
    packed = vocabulary_of(bare(TARGET))[1]
    starts = [0, 7, len(packed) - 5, len(packed), 2**40]
    parts = told(serving(engine), *[Fetch(start) for start in starts])
    assert [(part.start, part.data) for part in parts] == [(n, packed[n : n + 1000]) for n in starts]
    assert [len(part.data) for part in parts] == [1000, 1000, 5, 0, 0]


def test_an_error_names_the_answer_that_it_belongs_to(engine: ServerEngine, worker: Judging) -> None:
    """By the number of the last Hello, refused ones too: an edge that has stopped knows what is not the next one's."""
    first, second = (msgspec.structs.replace(HELLO, answer=number) for number in (7, 8))
    other = msgspec.structs.replace(HELLO, answer=9, vocabulary="another")
    heard = told(serving(engine), b"\xc1", first, Prefix(0, (1,) * (N_CTX + 1)), b"\xc1", second, Cancel(1), other)
    assert [each.answer for each in heard if isinstance(each, Error)] == [0, 7, 7, 9]


def test_an_error_of_the_engine_names_its_answer(engine: ServerEngine, worker: Judging) -> None:
    """The next Hello may have been heard by then."""

    def gone(work: VerifyRound) -> Iterator[Event]:
        raise ResourceError("no memory is left")
        yield

    worker.start = gone  # type: ignore[method-assign]
    hello = msgspec.structs.replace(HELLO, answer=7)
    heard = told(serving(engine), hello, PREFIX, Verify(1, 3, 0), until=Error)
    assert [each.answer for each in heard if isinstance(each, Error)] == [7]
