"""The child's server with pairs that misbehave: every request ends in exactly one last event."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from msgspec import to_builtins

from localspec import __version__
from localspec.backends.passes import Passes
from localspec.engine.events import Event, Finished, Inspected, Loaded, Loading, ModelFacts, Warned
from localspec.engine.protocols import Cancel, Cancelled
from localspec.errors import IntegrityError
from localspec.settings.jobs import ForkQuestion, Generate, Load, PairJob, Question, SurveyRequest
from localspec.settings.request import LoadSettings, Request
from localspec.worker import main as worker_main
from localspec.worker.codec import job_line
from localspec.worker.main import JobServer
from tests.cli.harness import is_running, wait_for

FACTS = ModelFacts("/t.gguf", 1, "llama", "Q8_0", 1, 2, 1, 1, ("CPU",))
LOADED = Loaded("x", FACTS, None, 8, 1, 1.0, {})
FINISHED = Finished("stop", "", 1.0, 1.0, 1)
LOAD = json.loads(job_line(Load(LoadSettings(target="/t.gguf")), 1))
GENERATE = json.loads(job_line(Generate(Request(prompt="Once")), 2))


class FakePair:
    """A pair whose answer is a script."""

    script: Callable[[Cancel], Iterator[Event]]
    closed = 0
    threads = 1
    remote = None

    def __init__(self, cancel: Cancel) -> None:
        self.cancel = cancel

    def answer(self, request: Request) -> Iterator[Event]:
        return type(self).script(self.cancel)

    def branched(self) -> FakePair:
        return self

    def inspect(self, question: Question) -> Iterator[Event]:
        yield Inspected({"question": to_builtins(question)})

    def survey(self, asked: SurveyRequest) -> Iterator[Event]:
        yield Inspected({"survey": to_builtins(asked)})

    def close(self) -> None:
        type(self).closed += 1


def load(settings: LoadSettings, cancel: Cancel, *, tell: object) -> Generator[Event, None, FakePair]:
    yield Loading("target", 1.0)
    yield LOADED
    return FakePair(cancel)


def serve(script: Callable[[Cancel], Iterator[Event]], *commands: dict[str, Any], cancelled: int = 0) -> list[Any]:
    """Run commands on a pair that answers by `script`; return what was written."""
    read, write = os.pipe()
    FakePair.script = staticmethod(script)
    server = JobServer(write)
    server.cancel(cancelled)
    for command in commands:
        server.serve(json.loads(json.dumps(command)))
    os.close(write)
    with os.fdopen(read) as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_main, "_load_function", lambda: load)


def good(cancel: Cancel) -> Iterator[Event]:
    yield FINISHED


def test_events_carry_the_number_of_their_request() -> None:
    wires = serve(good, LOAD, GENERATE)
    assert [(wire["seq"], wire["type"]) for wire in wires] == [(1, "loading"), (1, "loaded"), (2, "finished")]


FORK = ForkQuestion(Request(prompt="Once"), (1, 2), (1, 3), 7)


@pytest.mark.parametrize("job", [Generate(Request(prompt="Once")), FORK, SurveyRequest()])
def test_nothing_is_asked_of_no_model(job: PairJob) -> None:
    (told,) = serve(good, json.loads(job_line(job, 3)))
    assert told["error"]["message"] == "No model is loaded"


def test_questions_reach_the_pair_as_they_were_asked() -> None:
    survey = SurveyRequest(2.5, sizes=(1, 4), is_kept=True)
    asked = (json.loads(job_line(job, 2)) for job in (FORK, survey))
    *_, inspected, surveyed = serve(good, LOAD, *asked)
    assert inspected["content"]["question"] == json.loads(json.dumps(to_builtins(FORK)))
    assert surveyed["content"]["survey"] == json.loads(json.dumps(to_builtins(survey)))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"seq": 3, "command": "sing"}, "there is no job 'sing'"),
        ({**GENERATE, "request": {"max_tokens": "many"}}, "`$.request.max_tokens`"),
    ],
)
def test_a_job_that_is_none_is_one_line_and_the_next_is_done(command: dict[str, Any], said: str) -> None:
    *_, told, finished = serve(good, LOAD, command, GENERATE)
    assert said in told["error"]["message"]
    assert f"localspec {__version__} in the engine's process cannot take this job" in told["error"]["message"]
    assert finished["type"] == "finished"


def test_an_error_of_the_session_is_the_last_event() -> None:
    def script(cancel: Cancel) -> Iterator[Event]:
        raise IntegrityError("broken", hint="fetch it again")
        yield FINISHED

    assert serve(script, LOAD, GENERATE)[-1]["error"]["kind"] == "integrity"


@pytest.mark.parametrize(("error", "kind"), [(ZeroDivisionError("ouch"), "internal"), (MemoryError(), "resources")])
def test_an_unexpected_error_keeps_its_traceback_in_the_log(
    error: Exception, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def script(cancel: Cancel) -> Iterator[Event]:
        raise error
        yield FINISHED

    last = serve(script, LOAD, GENERATE)[-1]["error"]
    assert last["kind"] == kind
    assert "Traceback" not in json.dumps(last)
    assert "Traceback" in capfd.readouterr().err


def test_a_session_that_just_stops_is_an_internal_error() -> None:
    assert serve(lambda cancel: iter(()), LOAD, GENERATE)[-1]["error"]["kind"] == "internal"


def test_generating_without_a_model_is_an_internal_error() -> None:
    assert serve(good, GENERATE)[-1]["error"]["kind"] == "internal"


def test_a_cancel_that_escapes_the_session_is_an_interruption() -> None:
    def script(cancel: Cancel) -> Iterator[Event]:
        raise Cancelled
        yield FINISHED

    assert serve(script, LOAD, GENERATE)[-1]["reason"] == "interrupted"


def test_a_cancel_counts_for_its_request_even_if_it_comes_first_and_for_no_later_one() -> None:
    seen: list[bool] = []

    def script(cancel: Cancel) -> Iterator[Event]:
        seen.append(cancel())
        yield FINISHED

    serve(script, LOAD, GENERATE, {**GENERATE, "seq": 3}, cancelled=2)
    assert seen == [True, False]


def test_a_cancel_stops_its_job_alone() -> None:
    seen: list[bool] = []

    def script(cancel: Cancel) -> Iterator[Event]:
        seen.append(cancel())
        yield FINISHED

    serve(script, LOAD, GENERATE, {**GENERATE, "seq": 3}, {**GENERATE, "seq": 4}, cancelled=3)
    assert seen == [False, True, False]


@pytest.mark.parametrize("lines", ["2\n3\n", "3\n2\n"])
def test_cancels_come_in_any_order(lines: str) -> None:
    read, write = os.pipe()
    server = JobServer(write)
    for number in (2, 3, 4):
        server.take({**GENERATE, "seq": number})
    control, ours = os.pipe()
    threading.Thread(target=worker_main._watch, args=(control, server), daemon=True).start()
    os.write(ours, lines.encode())
    with os.fdopen(read) as told:
        over = [json.loads(told.readline()) for _ in range(2)]
    assert sorted((each["seq"], each["type"], each["reason"]) for each in over) == [
        (2, "finished", "interrupted"),
        (3, "finished", "interrupted"),
    ]


def test_loading_again_frees_the_first_models() -> None:
    before = FakePair.closed
    serve(good, LOAD, {**LOAD, "seq": 2})
    assert FakePair.closed == before + 1


def test_an_error_after_the_last_event_is_not_a_second_one() -> None:
    def script(cancel: Cancel) -> Iterator[Event]:
        yield FINISHED
        raise ZeroDivisionError

    assert [wire["type"] for wire in serve(script, LOAD, GENERATE)[2:]] == ["finished"]


class FakeLane:
    """A lane of `FakeLanes`."""

    n_rows = 1

    def __init__(self, group: FakeLanes) -> None:
        self.group = group

    def decode(self, _: object) -> int:
        return self.group.decode([self], None)


class FakeLanes(FakePair):
    """Two lanes of a fake pair: each answer remarks on itself and asks for a pass, twice, and ends."""

    def __init__(self, cancel: Cancel, tell: Callable[[Event], None], arrived: Callable[[], Any]) -> None:
        super().__init__(cancel)
        self.passes = Passes()
        self.beside = [lambda: self]
        self._tell = tell
        self._arrived = arrived
        self.before_passes: list[Any] = []

    def answer(self, request: Request) -> Iterator[Event]:
        for _ in range(2):
            yield Warned("engine", str(request.prompt))
            self._tell(Loading("target", 0.5))  # the first alone: these are rare
            self.passes.ask(FakeLane(self), None, is_prompt=False)
        yield FINISHED

    def decode(self, lanes: Any, _: object) -> int:
        self.before_passes.append((len(lanes), self._arrived()))
        return 0


def test_events_of_answers_at_once_leave_together_before_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # what is written at once stays together
    pairs = []

    def arrived() -> list[list[tuple[int, str]]]:
        lines = []
        with contextlib.suppress(BlockingIOError):
            while True:
                wires = [json.loads(line) for line in ours.recv(1 << 16, socket.MSG_DONTWAIT).splitlines()]
                lines.append([(wire["seq"], wire["type"]) for wire in wires])
        return lines

    def lanes(
        settings: LoadSettings, cancel: Cancel, *, tell: Callable[[Event], None], others: Any
    ) -> Generator[Event, None, FakeLanes]:
        yield LOADED
        pairs.append(FakeLanes(cancel, tell, arrived))
        return pairs[0]

    monkeypatch.setattr(worker_main, "_load_function", lambda: lanes)
    server = JobServer(theirs.fileno())
    two = json.loads(job_line(Load(LoadSettings(target="/t.gguf", parallel=2)), 1))
    for command in (two, GENERATE, {**GENERATE, "seq": 3}):
        server.take(command)
    server.end()
    with theirs, ours:
        server.run()
        last = arrived()
    assert pairs[0].before_passes == [
        (1, [[(1, "loaded")], [(2, "warned")], [(2, "loading")]]),
        (2, [[(2, "warned")], [(3, "warned")]]),
        (1, [[(2, "finished"), (3, "warned")]]),
    ]
    assert last == [[(3, "finished")]]


@pytest.mark.skipif(sys.platform != "linux", reason="no other system ends a process with its parent")
def test_a_child_that_cannot_look_ends_with_its_parent() -> None:
    """As while native code holds the interpreter: here it is stopped, so that it sees no end of file."""
    code = (
        "import os, signal\n"
        "from localspec.settings.request import LoadSettings\n"
        "from localspec.worker.client import Worker\n"
        "worker = Worker()\n"
        "events = worker.load(LoadSettings(target='/nowhere.gguf'))\n"
        "try:\n"
        "    list(events)\n"
        "except Exception:\n"
        "    os.kill(worker.pid, signal.SIGSTOP)\n"
        "    print(worker.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=120)
    pid = int(done.stdout)
    try:
        wait_for(lambda: not is_running(pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
