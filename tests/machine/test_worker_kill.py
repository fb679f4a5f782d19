"""The worker with a real session on the bundled pair: killed at every stage, cancelled in a long prefill."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files

import pytest

from localspec.engine.events import Committed, Event, Finished, Loaded, Loading, Prefilled, Started
from localspec.errors import NotFoundError, WorkerDiedError
from localspec.settings.request import LoadSettings, Request, Speculation
from localspec.worker.client import Worker
from tests.cli.harness import is_running, wait_for

STORYTELLER = files("localspec.models") / "storyteller"
SETTINGS = LoadSettings(target=str(STORYTELLER / "target-q8_0.gguf"), draft=str(STORYTELLER / "draft-q8_0.gguf"))
STORY = Request(prompt="Once upon a time", max_tokens=400)
# A prompt that takes a while to read.
ROOMY = replace(SETTINGS, ctx=8192)
LONG = Request(prompt="The old man and the sea. " * 1100, max_tokens=4, speculation=Speculation(method="plain"))
SIGNALS = ["SIGKILL", "SIGSEGV", "SIGABRT"]


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def strike(
    worker: Worker, events: Iterator[Event], when: type[Event], name: str
) -> tuple[list[Event], WorkerDiedError]:
    """Send a signal to the worker after the first event `when`; return what came in all and how it ended."""
    seen: list[Event] = []
    try:
        for event in events:
            seen.append(event)
            if isinstance(event, when) and worker.pid is not None:
                os.kill(worker.pid, getattr(signal, name))
    except WorkerDiedError as error:
        return seen, error
    raise AssertionError("the worker lived on")


def assert_told(error: WorkerDiedError, name: str, *doing: str) -> None:
    """Check what the error says. An abort sent from outside may meet the interpreter between two frames.

    Then writing the report of the crash crashes too, and the second signal ends the process. An abort of llama.cpp's
    own comes from inside a call, where the frames stand still.
    """
    assert error.exit_code == 9
    told = error.detail["signal"]
    assert told == name or (name, told) == ("SIGABRT", "SIGSEGV"), error.detail["log"]
    assert told in error.message
    assert any(error.message.endswith(f"while {what}") for what in doing), error.message


@pytest.mark.parametrize("name", SIGNALS)
def test_death_while_loading(worker: Worker, name: str) -> None:
    _, error = strike(worker, worker.load(SETTINGS), Loading, name)
    assert_told(error, name, "loading the target", "loading the draft", "idle")


@pytest.mark.parametrize("name", SIGNALS)
def test_death_in_prefill(worker: Worker, name: str) -> None:
    list(worker.load(ROOMY))
    _, error = strike(worker, worker.generate(LONG), Started, name)
    assert_told(error, name, "reading the prompt")


@pytest.mark.parametrize("name", SIGNALS)
def test_death_while_generating_keeps_the_text_and_the_next_load_works(worker: Worker, name: str) -> None:
    list(worker.load(SETTINGS))
    seen, error = strike(worker, worker.generate(STORY), Committed, name)
    assert_told(error, name, "generating")
    assert "".join(event.text for event in seen if isinstance(event, Committed))
    if name != "SIGKILL":
        assert "Fatal Python error" in error.detail["log"]
    assert isinstance(list(worker.load(SETTINGS))[-1], Loaded)
    assert isinstance(list(worker.generate(Request(prompt="Once", max_tokens=4)))[-1], Finished)


def test_cancel_in_a_long_prefill_is_prompt(worker: Worker) -> None:
    """What was read until then is little of the prompt, and it is kept: the next answer begins behind it."""
    list(worker.load(ROOMY))
    events: list[Event] = []
    for event in worker.generate(LONG):
        events.append(event)
        if isinstance(event, Started):
            worker.cancel()
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "interrupted"
    assert not any(isinstance(event, Prefilled) for event in events)
    again = list(worker.generate(LONG))
    (read,) = (event for event in again if isinstance(event, Prefilled))
    assert read.cache_n < read.prompt_n // 2
    assert isinstance(again[-1], Finished)
    assert again[-1].reason in ("length", "stop")


def test_cancel_while_generating(worker: Worker) -> None:
    list(worker.load(SETTINGS))
    events = []
    for event in worker.generate(STORY):
        events.append(event)
        if isinstance(event, Committed):
            worker.cancel()
    assert isinstance(events[-1], Finished)
    assert events[-1].reason in ("interrupted", "stop")


def test_errors_of_the_session_arrive(worker: Worker) -> None:
    with pytest.raises(NotFoundError):
        list(worker.load(LoadSettings(target="/nonexistent/model.gguf")))
    assert worker.pid is not None  # the child is well


def test_the_child_goes_when_its_parent_is_killed() -> None:
    code = (
        "import sys, time\n"
        "from localspec.settings.request import LoadSettings\n"
        "from localspec.worker.client import Worker\n"
        "worker = Worker()\n"
        "list(worker.load(LoadSettings(target=sys.argv[1])))\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(300)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, SETTINGS.target], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    wait_for(lambda: not is_running(child))


def test_the_terminals_interrupt_does_not_reach_the_child(worker: Worker) -> None:
    list(worker.load(SETTINGS))
    assert worker.pid is not None
    assert os.getsid(worker.pid) != os.getsid(0)
    os.kill(worker.pid, signal.SIGINT)
    assert isinstance(list(worker.generate(Request(prompt="Once", max_tokens=4)))[-1], Finished)
