"""Every path in this process, over a scripted engine: what is a status, which body is read, who is told what."""

import asyncio
import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Sent

from localspec import __version__, server
from localspec.chat.pair_loader import PairLoader
from localspec.engine.events import Event, Finished, Inspected, Warned
from localspec.errors import InternalError, LocalspecError, PromptTooLongError, WorkerDiedError
from localspec.server import answering, fields, listening, messages, openai, own, refusal, reply, verifying
from localspec.server import app as app_module
from localspec.server import engine as engine_module
from localspec.server.app import LONGEST_BODY, Routes, body_of
from localspec.server.engine import LEAVING, ServerEngine
from localspec.server.guard import Guard, Rules
from localspec.server.refusal import Refusal
from localspec.server.served_pairs import Pairs
from localspec.settings.jobs import Generate
from localspec.settings.request import LoadSettings, Request
from localspec.ui.stats import Stats
from tests.cli.fakes import FakeWorker
from tests.cli.harness import TIMEOUT, wait_for
from tests.recorded import Section, sections
from tests.server.serving import chat
from tests.server.test_fields import SERVED

CHAT = "/v1/chat/completions"
PAGE = "https://page.example"
FIRST = 0.02  # seconds to the first token of a scripted answer


class Asked(FakeWorker):
    """Answers questions about texts too."""

    def start(self, job: Any) -> Iterator[Event]:
        if isinstance(job, Generate):
            yield from self.generate(job.request)
        else:
            yield Warned("question", "of a text")
            yield Inspected({"tokens": [1, 2], "pieces": [[79], [255]], "text": "On"})


class Served:
    """A server in this process; `warned` and `bugs` are what its log would hold."""

    def __init__(self, worker: FakeWorker, *, most_waiting: int = 1, **rules: Any) -> None:
        self.warned: list[str] = []
        self.bugs: list[Exception] = []
        self.ended = 0
        self.stats: list[Stats] = []
        pairs = Pairs(SERVED)

        def end(stats: Stats) -> None:
            self.ended += 1
            self.stats.append(stats)

        self.engine = ServerEngine(
            worker, PairLoader(worker), SERVED.settings, most_waiting=most_waiting, on_end=end,  # type: ignore[arg-type]
            on_warning=lambda warned: self.warned.append(warned.message), on_loaded=pairs.loaded,
        )  # fmt: skip
        self.app: Any = Guard(Routes(self.engine, pairs).app(), Rules(**rules), self.bugs.append)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app({**scope, "state": {"abort": lambda: None}}, receive, send)

    def ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        async def going() -> httpx.Response:
            way = httpx.ASGITransport(app=self)
            async with httpx.AsyncClient(transport=way, base_url="http://localhost:80") as client:
                client.headers.clear()  # what a client need not say, it does not
                return await client.request(method, path, **sent)

        return asyncio.run(going())


@pytest.fixture
def worker() -> Asked:
    return Asked()


@pytest.fixture
def served(worker: Asked) -> Iterator[Served]:
    made = Served(worker, origins=frozenset([PAGE]))
    yield made
    made.engine.end(TIMEOUT)


def answered(asked: str) -> Iterator[str]:
    """Yield status, type and text of the answer to a method, a path and perhaps a body."""
    method, path, body = [*asked.removeprefix("> ").split(" ", 2), ""][:3]
    served = Served(Asked())
    found = served.ask(method, path, content=body.encode())
    served.engine.end(TIMEOUT)
    beside = (
        found.headers[name] for name in ("content-type", "allow", "content-security-policy") if name in found.headers
    )
    yield " | ".join((str(found.status_code), *beside))
    if found.headers.get("content-type") == "application/json":
        yield found.text.replace(__version__, "<version>")
    assert not served.ended, "no question is an answer"


@pytest.mark.parametrize("section", sections(Path(__file__).with_name("app.txt")))
def test_what_is_recorded(section: Section, request: pytest.FixtureRequest) -> None:
    section.check(answered, request)


def test_what_the_front_page_is_depends_on_who_asks(served: Served) -> None:
    front = served.ask("GET", "/", headers={"Accept": "text/html,*/*"})
    assert front.headers["content-type"].startswith("text/html")
    assert "default-src" in front.headers["content-security-policy"]


def test_figures_follow_the_answers(served: Served, worker: Asked) -> None:
    timings = served.ask("POST", CHAT, json=chat()).json()["timings"]
    each = (timings["prompt_per_token_ms"], timings["predicted_per_token_ms"])
    assert each == (pytest.approx(20 / 32), pytest.approx(22 / 9))
    worker.fails[1] = WorkerDiedError("the engine was killed")
    refused = served.ask("POST", CHAT, json=chat())
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["error"]["code"] == "engine_died"
    assert served.warned == ["the engine was killed"]
    told = served.ask("GET", "/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = dict(line.split(" ", 1) for line in told.text.splitlines() if not line.startswith("#"))
    figures = {name.removeprefix("localspec_").removesuffix("_total"): float(n) for name, n in values.items()}
    assert figures.pop("answer_seconds") > 0
    assert figures.pop("busy_seconds") > 0
    assert figures.pop("first_token_seconds") == FIRST
    assert figures == {
        "answers": 1, "failures": 1, "prompt_tokens": 32, "cached_tokens": 0, "prompt_seconds": 0.02,
        "predicted_tokens": 10, "drafted_tokens": 8, "accepted_tokens": 6, "passes": 4, "predicted_seconds": 0.022,
        "requests_waiting": 0, "requests_answered_now": 0,
    }  # fmt: skip
    assert served.ended == 2


def test_the_status_is_for_the_page(served: Served) -> None:
    assert served.ask("GET", "/status").status_code == 401
    served.ask("POST", CHAT, json=chat())
    key = served.app._rules.page_key
    told = served.ask("GET", "/status", headers={"Authorization": f"Bearer {key}"}).json()
    facts = {name: told[name] for name in ("model", "draft", "n_ctx", "waiting", "answers", "running")}
    assert facts == {
        "model": "storyteller", "draft": None, "n_ctx": 1024, "waiting": 0, "answers": 1, "running": None
    }  # fmt: skip
    assert len(told["last"]) == 1
    assert (told["answering"], told["first_token_s"]) == (0, FIRST)
    assert told["tok_per_s"] * told["seconds"] >= 9, "nine tokens in the time of one answer, or less"


def test_answers_that_overlap_are_one_busy_time() -> None:
    busy = engine_module.BusyTime()
    busy.begin(10.0)
    busy.begin(11.0)
    assert busy.end(12.0) == 2.0
    assert busy.end(13.0) == 3.0
    busy.begin(20.0)
    assert busy.end(21.5) == 4.5


def body(*chunks: bytes, told: str | None = None, pause: float = 0.0, is_gone: bool = False) -> Any:
    left = list(chunks)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause)
        if is_gone:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    headers = [] if told is None else [(b"content-length", told.encode())]
    return asyncio.run(body_of(Sent({"type": "http", "headers": headers}, receive)))


def test_the_longest_body_is_read_and_a_longer_one_is_not() -> None:
    text = b'"' + b"x" * (LONGEST_BODY - 2) + b'"'
    assert len(body(text[:5], text[5:], told=str(LONGEST_BODY))) == LONGEST_BODY - 2
    for told in (None, "not a number", "5"):
        with pytest.raises(Refusal) as caught:
            body(text, b" ", told=told)
        assert (caught.value.status, caught.value.code) == (413, "body_too_long")
    for told in (str(LONGEST_BODY + 1), "9" * 5000):
        with pytest.raises(Refusal) as caught:
            body(b"5", told=told)
        assert caught.value.status == 413


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClientDisconnect):
        body(is_gone=True)
    monkeypatch.setattr(app_module, "SLOWEST_BODY", 0.01)
    with pytest.raises(Refusal, match=r"did not come within 0.01 s") as caught:
        body(b"5", pause=TIMEOUT)
    assert caught.value.status == 408


@pytest.mark.parametrize(
    ("error", "status", "is_logged"),
    [
        (PromptTooLongError("the prompt of m.gguf is too long", hint="--ctx 2048"), 400, False),
        (InternalError("this cannot be"), 500, True),
        (ValueError("one\ntwo m.gguf"), 500, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_error_in_an_answer_is_told_and_the_next_one_is_answered(
    served: Served, worker: Asked, error: Exception, status: int, is_logged: bool, is_streamed: bool
) -> None:
    worker.fails[1 if is_streamed else 0] = error  # type: ignore[assignment]
    told = served.ask("POST", CHAT, json=chat(stream=is_streamed))
    assert told.status_code == (200 if is_streamed else status)
    message = error.message if isinstance(error, LocalspecError) else "unexpected ValueError: one\ntwo m.gguf"
    assert message.replace("\n", "\\n").replace("m.gguf", "storyteller") in told.text, "the pair's name, and no file"
    assert isinstance(error, LocalspecError) or "try: report this" in told.text
    assert "data: [DONE]" not in told.text
    assert served.warned == ([message] if is_logged else [])
    assert served.ask("POST", CHAT, json=chat()).status_code == 200
    assert not served.bugs


def test_a_mistake_of_the_server_is_a_line_in_its_log(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Pairs) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(Pairs, "listed", wrong)
    for path, told in (
        ("/v1/models", {"message": "the server failed; its log says why", "type": "server_error", "param": None,
                        "code": None}),
        ("/api/tags", "the server failed; its log says why"),
    ):  # fmt: skip
        found = served.ask("GET", path, headers={"Origin": PAGE})
        assert (found.status_code, found.json()) == (500, {"error": told})
        assert found.headers["access-control-allow-origin"] == PAGE
    assert [str(bug) for bug in served.bugs] == ["a secret"] * 2


def test_pages_that_were_let_in_read_the_answer_and_others_read_nothing(served: Served) -> None:
    asked = served.ask("OPTIONS", CHAT, headers={"Origin": PAGE})
    assert (asked.status_code, asked.content, asked.headers["vary"]) == (204, b"", "Origin")
    assert asked.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert asked.headers["access-control-allow-headers"] == "authorization, content-type"
    other = served.ask("OPTIONS", CHAT, headers={"Origin": "https://other.example"})
    assert (other.status_code, "access-control-allow-origin" in other.headers) == (403, False)
    assert served.ask("OPTIONS", CHAT).status_code == 405, "no page asks"
    refused = served.ask("POST", CHAT, json=chat(model="no"), headers={"Origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (404, PAGE)


def test_a_full_queue_is_told_with_the_seconds_that_an_answer_takes(worker: Asked) -> None:
    """At least one, and at most a minute."""
    worker.pause = TIMEOUT

    async def going() -> list[Refusal]:
        engine = ServerEngine(worker, PairLoader(worker), LoadSettings("t.gguf"), most_waiting=2)  # type: ignore[arg-type]
        engine.submit(Request())
        await asyncio.to_thread(wait_for, lambda: engine.is_busy and not engine.n_waiting)
        jobs = engine.submit(Request(), Request(), Request())
        refused = []
        for seconds in (0.2, 2.6, 1000.0):
            engine._seconds = seconds
            with pytest.raises(Refusal) as caught:
                engine.submit(Request())
            refused.append(caught.value)
        for job in jobs[:2]:
            engine.stop(job)
            engine.stop(job)
        assert [engine.n_before(job) for job in jobs] == [0, 0, 1]
        assert engine.n_waiting == 1
        engine.submit(Request())
        assert engine.n_waiting == 2
        engine.close()
        with pytest.raises(Refusal, match=LEAVING):
            [event async for event in jobs[2].events(TIMEOUT)]
        with pytest.raises(Refusal, match=LEAVING):
            engine.submit(Request())
        assert engine.is_busy, "the answer that is being made goes on"
        await asyncio.to_thread(engine.end, TIMEOUT)
        assert not any(thread.is_alive() for thread in engine._processes[0].queue._threads)
        return refused

    refused = asyncio.run(going())
    assert [each.headers["Retry-After"] for each in refused] == ["1", "3", "60"]
    assert {(each.status, each.code) for each in refused} == {(429, "queue_full")}
    assert "(3 requests)" in refused[0].message


def test_the_seconds_of_an_answer_are_those_of_late(worker: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of those of the last one and the rest by those before: 1 s, then one of 11 s."""
    now = 100.0
    ended: list[float] = []

    class Slow(Asked):
        def start(self, job: Any) -> Iterator[Event]:
            nonlocal now
            now += 11.0
            yield Finished("stop", "", 0.0, 0.0, 0)

    monkeypatch.setattr("localspec.server.engine.time.monotonic", lambda: now)

    async def going() -> None:
        slow = Slow()
        engine = ServerEngine(slow, PairLoader(slow), LoadSettings("t.gguf"), most_waiting=2)  # type: ignore[arg-type]
        (job,) = engine.submit(Request())
        assert [event async for event in job.events(TIMEOUT)]
        ended.append(engine._seconds)
        await asyncio.to_thread(engine.end, TIMEOUT)

    asyncio.run(going())
    assert ended == [pytest.approx(4.0)]


def test_a_thread_of_the_engine_does_not_keep_the_program(served: Served) -> None:
    assert [(each.name, each.daemon) for each in served.engine._processes[0].queue._threads] == [("engine", True)]


def guarded(app: Any, kind: str = "http", host: str = "localhost") -> tuple[list[dict[str, Any]], list[Any]]:
    """Return what a guard lets through of an application, and the mistakes and cuts that it makes known."""
    sent: list[dict[str, Any]] = []
    known: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "method": "GET", "path": CHAT, "headers": [(b"host", host.encode())],
             "state": {"abort": lambda: known.append("cut")}}  # fmt: skip
    asyncio.run(Guard(app, Rules(), lambda bug: known.append(str(bug)))(scope, None, send))  # type: ignore[arg-type]
    return sent, known


def test_an_answer_that_breaks_off_is_cut() -> None:
    """It has a status already: another one would be text of it."""

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        raise ZeroDivisionError("a bug")

    assert guarded(breaking) == ([{"type": "http.response.start", "status": 200, "headers": []}], ["a bug", "cut"])


def test_a_socket_is_refused_by_a_response_and_a_mistake_ends_it() -> None:
    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError("a bug")

    (head, rest), known = guarded(breaking, "websocket", "evil.example")
    assert (head["type"], head["status"], rest["type"]) == (
        "websocket.http.response.start", 403, "websocket.http.response.body"
    )  # fmt: skip
    assert b"evil.example" in rest["body"]
    assert not known
    with pytest.raises(ZeroDivisionError):
        guarded(breaking, "websocket")


def streamed(answer: httpx.Response) -> list[tuple[int, str, str | None]]:
    *chunks, done = [line.removeprefix("data: ") for line in answer.text.split("\n\n")[:-1]]
    assert (answer.status_code, done) == (200, "[DONE]")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-store", "no")
    choices = [choice for chunk in chunks for choice in json.loads(chunk)["choices"]]
    return [(each["index"], each["delta"].get("content", ""), each["finish_reason"]) for each in choices]


def test_answers_to_one_request_are_streamed_one_after_the_other(served: Served, worker: Asked) -> None:
    """Each begins, and ends with its reason. One without a word has both."""
    texts = ["Once upon", " a time there", " was a king."]
    asked = chat(stream=True, n=2, seed=7)
    assert streamed(served.ask("POST", CHAT, json=asked)) == [
        (i, *piece) for i in range(2) for piece in [("", None), *((text, None) for text in texts), ("", "stop")]
    ]
    assert [request.sampling.seed for request in worker.requests] == [7, 8]
    worker.passes = []
    assert streamed(served.ask("POST", CHAT, json=chat(stream=True))) == [(0, "", None), (0, "", "stop")]


def test_the_application_of_edges_is_made_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def verifying_app(*parts: Any) -> Any:
        async def asked(*_: Any) -> None:
            made.append("asked")

        made.append(parts)
        return asked

    monkeypatch.setattr(verifying, "VerifyingApp", verifying_app)
    engine: Any = object()
    late = app_module._Verifying(engine, SERVED)
    assert made == []
    for _ in range(2):
        asyncio.run(late({}, None, None))  # type: ignore[arg-type]
    assert made == [(engine, SERVED), "asked", "asked"]


CONSTANTS = {
    answering: {"FIRST": 0.5, "SILENCE": 10.0, "SLOWEST": 30.0},
    app_module: {"LONGEST_BODY": 4 * 2**20, "SLOWEST_BODY": 30.0, "MOST_NOTED": 1000},
    engine_module: {"LONGEST_WAIT": 60},
    fields: {"MOST_ANSWERS": 4, "LONGEST_STOPS": 8192, "MOST_NOTES": 20, "MOST_BIASES": 10_000},
    listening: {"MOST_CONNECTIONS": 256, "PATIENCE": 30.0, "LAST_WORDS": 10, "KEEP_ALIVE": 60},
    messages: {"MOST_TOOLS": 128, "DEEPEST": 40, "MOST_MESSAGES": 10_000},
    openai: {"DEEPEST": 20},
    own: {"LAST": 5, "MOST_SPANS": 400},
    refusal: {"AGAIN": 1},
    reply: {"IMPOSSIBLE": -9999.0},
    verifying: {
        "MOST_EDGES": 32, "MOST_WRONG": 8, "IDLE": 1800.0, "SILENCE": 2.0, "SLOWEST": 30.0, "POLICY": 1008,
        "GOING_AWAY": 1001, "UNSUPPORTED": 1003,
    },
}  # fmt: skip


@pytest.mark.parametrize("module", CONSTANTS, ids=lambda module: module.__name__)
def test_limits_and_times(module: ModuleType) -> None:
    assert {name: getattr(module, name) for name in CONSTANTS[module]} == CONSTANTS[module]


def test_values_cannot_be_changed() -> None:
    """But for sums, and what is made late; a refusal is an exception, which Python changes, and like no other."""
    found = {
        each
        for module in pkgutil.iter_modules(server.__path__)
        for each in vars(importlib.import_module(f"localspec.server.{module.name}")).values()
        if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__.startswith("localspec.server")
    }
    changing = {each.__name__ for each in found if not each.__dataclass_params__.frozen}
    assert changing == {"LlamaServer", "OpenAI", "Refusal", "Totals", "VerifyingApp", "_Verifying"}
    assert len({Refusal(400, "no"), Refusal(400, "no")}) == 2


def test_the_figures_of_each_answer_know_its_pair(served: Served) -> None:
    """The pair is loaded once; why a demonstration has no speedup is said of each answer, as `run` says it."""
    for _ in range(2):
        assert served.ask("POST", "/v1/completions", json={"prompt": "hi", "max_tokens": 2}).status_code == 200
    first, second = served.stats
    assert first.loaded is not None
    assert second.loaded is not None
    assert second.loaded.name == first.loaded.name
