"""The client against children that die, hang and lie. Each test has a time limit, so that nothing hangs."""

import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from localspec.engine.events import Committed, Event, Finished, Loaded, Loading, Started
from localspec.errors import IntegrityError, InternalError, NotFoundError, ResourceError, WorkerDiedError
from localspec.settings.request import LoadSettings, Request
from localspec.worker.client import FRAME, TALKING, Timeouts, Worker
from localspec.worker.process import BURST, SPINS, Child, Log, last_lines
from tests.cli.harness import is_running, wait_for

STUB = Path(__file__).parent / "stubs" / "stub.py"
SETTINGS = LoadSettings(target="/t.gguf")
REQUEST = Request(prompt="Once")
MUTE = Timeouts(start=1.0, cancel=30.0, close=0.3)
DEAF = Timeouts(start=60.0, cancel=0.5, close=0.3)
PATIENT = Timeouts(start=60.0, cancel=30.0, close=0.3)
AT_ONCE = 40.0  # seconds, on a machine that is busy with something else; a child that hangs does so for 60


def stub(mode: str, timeouts: Timeouts = PATIENT, log_file: Path | None = None) -> Worker:
    return Worker(command=[sys.executable, str(STUB), mode], timeouts=timeouts, log_file=log_file)


def kill(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)
    wait_for(lambda: not is_running(pid))


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < AT_ONCE


def drain(worker: Worker, settings: LoadSettings = SETTINGS) -> tuple[str, WorkerDiedError]:
    """Load and generate; return the text that came and the error that ended it."""
    texts: list[str] = []
    try:
        list(worker.load(settings))
        for event in worker.generate(REQUEST):
            if isinstance(event, Committed):
                texts.append(event.text)
    except WorkerDiedError as error:
        return "".join(texts), error
    raise AssertionError("the child did not die")


def test_events_arrive_as_they_were_sent() -> None:
    with stub("good") as worker:
        load = list(worker.load(SETTINGS))
        answer = list(worker.generate(REQUEST))
    assert load[0] == Loading("target", 0.5)
    assert isinstance(load[-1], Loaded)
    assert load[-1].target.devices == ("CPU",)
    assert [type(event).__name__ for event in answer] == ["Started", "Prefilled", *["Committed"] * 4, "Finished"]
    assert "".join(event.text for event in answer if isinstance(event, Committed)) == "Once upon a time"


def test_a_child_that_was_started_ahead_is_that_of_the_load() -> None:
    with stub("good") as worker:
        worker.prepare()
        pid = worker.pid
        assert pid is not None
        assert isinstance(list(worker.load(SETTINGS))[-1], Loaded)
        assert worker.pid == pid


def test_a_child_that_was_started_ahead_and_asked_for_nothing_ends_at_once() -> None:
    """It may be in the middle of its imports, and has nothing to lose."""
    worker = stub("good", replace(PATIENT, close=AT_ONCE))
    worker.prepare()
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # it hears of no end of a file
    worker.close()
    assert not is_running(pid)


def test_the_death_of_a_child_that_was_started_ahead_is_told_by_the_load() -> None:
    with stub("start:SIGKILL") as worker:
        worker.prepare()
        assert worker.pid is not None
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        assert worker.lost() is None
        with pytest.raises(WorkerDiedError, match=r"SIGKILL.*starting"):
            list(worker.load(SETTINGS))


@pytest.mark.parametrize("n_files", [1, 3, 5])
def test_a_process_that_may_open_no_more_files_says_so_and_keeps_none(n_files: int) -> None:
    limits, lowest = resource.getrlimit(resource.RLIMIT_NOFILE), os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + n_files, limits[1]))
    try:
        with pytest.raises(ResourceError, match="cannot be started: Too many open files"):
            stub("good").prepare()
        gc.collect()
        again = os.dup(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    os.close(again)
    assert again == lowest


def test_what_a_child_fails_to_import_ahead_is_told_by_its_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As numpy does on a processor that lacks what it was built for."""
    (tmp_path / "numpy.py").write_text('raise RuntimeError("built with baseline optimizations")')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Worker(timeouts=PATIENT) as worker, pytest.raises(NotFoundError, match="loaded: built with baseline"):
        list(worker.load(SETTINGS))


def test_what_is_being_written_is_written_to_its_end(tmp_path: Path) -> None:
    """The child says how much that may be; without it, it would be ended after the usual patience."""
    worker = stub(f"writes:{tmp_path / 'state'}", replace(PATIENT, close=0.1))
    list(worker.load(SETTINGS))
    list(worker.generate(REQUEST))
    worker.close()
    assert (tmp_path / "state").exists()


def test_tokens_are_looked_for_a_frame_apart_and_nothing_else_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only after a token of this answer is there a pause, before what was not received with it."""
    said, pauses = [""], list[tuple[str, float]]()

    def read(child: Child, timeout: float, pause: float = 0.0) -> dict[str, Any] | None:
        pauses.append((said[-1], pause))
        return whole(child, timeout)

    whole = Child.read
    monkeypatch.setattr(Child, "read", read)
    with stub("good") as worker:
        for event in worker.load(SETTINGS):
            said.append(type(event).__name__)
        for event in worker.generate(REQUEST):
            said.append(type(event).__name__)
    assert {after for after, pause in pauses if pause == FRAME} == {"Committed"}
    assert {after for after, pause in pauses if pause != FRAME} == {*said} - {"Committed", "Finished"}


def test_what_was_received_waits_for_nothing_and_pauses_are_short_where_much_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("localspec.worker.process.time.sleep", pauses.append)
    events, said = os.pipe()
    child = Child(cast(Any, None), *(os.open(os.devnull, os.O_WRONLY) for _ in range(2)), events, Log(None))
    os.write(said, b'{"a": 1}\n{"a": 2}\n')
    assert [child.read(1.0, pause=0.5) for _ in range(2)] == [{"a": 1}, {"a": 2}]
    assert pauses == [0.5]
    for line in (b'{"a": "%s"}\n' % (b"x" * BURST),) * 3 + (b'{"a": 1}\n',) * 4:
        os.write(said, line)
        child.read(1.0, pause=0.5)
    assert pauses[1:] == [0.5, 0.25, 0.125, 0.0625, 0.125, 0.25, 0.5]
    os.close(said)


@pytest.mark.parametrize("where", ["start", "load", "prefill", "generate"])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGILL", "SIGTERM"])
def test_a_death_is_one_line_with_the_signal_the_place_and_the_log(where: str, name: str) -> None:
    worker = stub(f"{where}:{name}")
    text, error = drain(worker)
    assert text == ("Once upon" if where == "generate" else "")
    doing = {
        "start": "starting",
        "load": "loading the target",
        "prefill": "reading the prompt",
        "generate": "generating",
    }[where]
    assert error.exit_code == (143 if name == "SIGTERM" else 9)  # localspec stop sends it
    assert doing in error.message
    assert name in error.message
    assert "\n" not in error.message
    assert error.hint
    assert error.detail["signal"] == name
    assert f"about to end by {name}␛[31m" in error.detail["log"]
    assert ("memory ran out" in error.message) == (name == "SIGKILL")
    assert worker.pid is None
    assert "about to end" in worker.log_tail()


CUDA = "CUDA error: out of memory|  current device: 0, in function alloc|ggml-cuda.cu:98: CUDA error"


@pytest.mark.parametrize(
    ("where", "draft", "hint"),
    [
        ("load", "/d.gguf", "--draft none, or a smaller quantisation of the model"),
        ("load", None, "a smaller quantisation of the model"),
        ("generate", "/d.gguf", "if memory ran out: --draft none, a smaller --ctx or a smaller model"),
        ("generate", None, "if memory ran out: a smaller --ctx or a smaller model"),
        (f"generate {CUDA}", "/d.gguf", "--gpu N with fewer layers, --draft none, a smaller --ctx or a smaller model"),
        (f"generate {CUDA}", None, "--gpu N with fewer layers, a smaller --ctx or a smaller model"),
    ],
)
def test_what_ends_for_memory_needs_what_is_smaller_and_was_not_asked_for(
    where: str, draft: str | None, hint: str
) -> None:
    where, _, log = where.partition(" ")
    _, error = drain(stub(f"{where}:SIGABRT:{log}" if log else f"{where}:SIGKILL"), replace(SETTINGS, draft=draft))
    assert error.hint == hint


@pytest.mark.parametrize(
    ("log", "is_memory"),
    [
        (CUDA, True),
        (f"{CUDA}|Fatal Python error: Aborted{'|  File x' * 40}", True),
        ("terminate called after throwing an instance of 'vk::OutOfDeviceMemoryError'", True),
        (f"{CUDA}{'|a smaller load went well' * 40}", False),
        ("GGML_ASSERT(n > 0) failed", False),
    ],
)
def test_an_abort_for_memory_is_not_to_be_reported(log: str, is_memory: bool) -> None:
    """What was out of memory long before is not why."""
    _, error = drain(stub(f"generate:SIGABRT:{log}"))
    assert ("ran out of memory" in error.message) is is_memory
    assert error.hint.startswith("--gpu N" if is_memory else "--log-file")


def test_of_a_long_crash_report_the_part_that_names_the_crash_is_kept() -> None:
    deep = [f"  File {i}" for i in range(60)]
    log = "\n".join(["before", "Fatal Python error: Segmentation fault", *deep, "Extension modules: numpy"])
    assert last_lines(log, 20).splitlines() == ["Fatal Python error: Segmentation fault", *deep[:19]]
    assert last_lines(log, 500) == log
    assert last_lines("a\nb\nc", 2) == "b\nc"
    assert last_lines("", 2) == ""


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("load:exit0", "left with status 0"),
        ("prefill:exit0", "left with status 0"),
        ("load:exit7", "left with status 7"),
        ("prefill:exit7", "left with status 7"),
        ("load:garbage", "malformed line"),
        ("prefill:garbage", "malformed line"),
        ("load:number", "malformed line"),
        ("prefill:number", "malformed line"),
        ("load:partial", "left with status 3"),
        ("prefill:partial", "left with status 3"),
        ("load:half", "malformed event"),
        ("load:malformed", "malformed event"),
        ("load:failure", "malformed event"),
        ("version", "is of localspec 9.9, and this is"),
    ],
)
def test_malformed_lines_and_early_exits_are_clear_errors(when: str, said: str) -> None:
    _, error = drain(stub(when))
    assert said in error.message
    assert error.detail["signal"] is None or "exit" not in when


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", "1 glibc.malloc.hugetlb=1\n"),
        ("glibc.malloc.check=3", "1 glibc.malloc.check=3:glibc.malloc.hugetlb=1\n"),
        ("glibc.malloc.hugetlb=0", "1 glibc.malloc.hugetlb=0\n"),
    ],
)
def test_the_weights_may_lie_in_huge_pages(asked: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a person said otherwise, and beside what else was said."""
    monkeypatch.setenv("GLIBC_TUNABLES", asked)
    worker = stub("load:environment")
    drain(worker)
    assert found in f"{worker.log_tail()}\n"


@pytest.mark.parametrize(
    ("asked", "found"),
    [({}, str(SPINS)), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "None")],
)
def test_threads_wait_awake_for_long(asked: dict[str, str], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a person said otherwise."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    worker = stub("load:environment")
    drain(worker)
    assert f"spins {found}\n" in f"{worker.log_tail()}\n"


def test_a_line_without_end_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.worker.process.MAX_LINE", 1 << 20)
    _, error = drain(stub("load:endless"))
    assert "a line without end" in error.message


def test_a_child_that_never_speaks_is_ended() -> None:
    worker = stub("mute", MUTE)
    _, error = drain(worker)
    assert "did not answer for 1 s" in error.message


def test_an_answer_that_ignores_cancel_is_ended() -> None:
    with stub("deaf", DEAF) as worker:
        list(worker.load(SETTINGS))
        events = worker.generate(REQUEST)
        assert isinstance(next(events), Started)
        worker.cancel()
        with pytest.raises(
            WorkerDiedError, match=r"did not stop within 0.5 s and was ended while generating"
        ) as caught:
            list(events)
    assert "memory" not in caught.value.message


def test_an_answer_that_goes_on_after_it_was_cancelled_is_ended() -> None:
    """It has more time than a silent one, and not for ever."""
    with stub("chatty", replace(DEAF, cancel=0.1)) as worker:
        list(worker.load(SETTINGS))
        events = worker.generate(REQUEST)
        assert isinstance(next(events), Started)
        worker.cancel()
        with pytest.raises(WorkerDiedError, match=r"did not stop within 0.6 s and was ended"):
            list(events)


@pytest.mark.parametrize("patience", [2, TALKING + 1])
def test_an_answer_that_has_stopped_is_not_ended_because_nobody_read_it(patience: int) -> None:
    """Ctrl-C, then a terminal that stands still for longer than the patience: the rest lies in the pipe."""
    with stub("slow", DEAF) as worker:
        list(worker.load(SETTINGS))
        events = worker.generate(REQUEST)
        assert isinstance(next(events), Started)
        time.sleep(0.1)
        worker.cancel()
        time.sleep(patience * DEAF.cancel)
        *_, last = events
        assert isinstance(last, Finished)
        assert worker.pid is not None, "the models are still there"


def test_a_cancelled_load_ends_with_its_child() -> None:
    worker = stub("hang")
    events = worker.load(SETTINGS)
    assert isinstance(next(events), Loading)
    started = time.monotonic()
    worker.cancel()
    (last,) = events
    assert isinstance(last, Finished)
    assert last.reason == "interrupted"
    assert time.monotonic() - started < AT_ONCE
    assert worker.pid is None


def test_a_load_that_is_left_early_ends_with_its_child() -> None:
    worker = stub("hang")
    for _ in worker.load(SETTINGS):
        break
    assert worker.pid is None


def test_a_command_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(ResourceError, match="cannot be started"):
        Worker(command=["/nonexistent/python"]).load(SETTINGS)


def test_after_a_death_the_models_can_be_loaded_again() -> None:
    worker = stub("generate:SIGSEGV")
    assert drain(worker)[0] == "Once upon"
    with pytest.raises(WorkerDiedError, match="not running"):
        worker.generate(REQUEST)
    assert isinstance(list(worker.load(SETTINGS))[-1], Loaded)
    assert worker.pid is not None
    worker.close()


def test_a_death_while_idle_shows_at_the_next_request() -> None:
    with stub("good") as worker:
        list(worker.load(SETTINGS))
        assert worker.pid is not None
        kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"SIGKILL.* while idle"):
            list(worker.generate(REQUEST))


def test_a_death_while_idle_is_told_before_anything_is_asked() -> None:
    with stub("good") as worker:
        assert worker.lost() is None
        list(worker.load(SETTINGS))
        assert worker.lost() is None
        assert worker.pid is not None
        kill(worker.pid, signal.SIGSEGV)
        lost = worker.lost()
        assert lost is not None
        assert lost.message == "The engine crashed (SIGSEGV) while idle"
        assert (worker.pid, worker.lost()) == (None, None)
        assert len([*worker.load(SETTINGS), *worker.generate(REQUEST)]) == 9


def test_a_death_while_an_answer_comes_is_that_answers() -> None:
    with stub("slow") as worker:
        list(worker.load(SETTINGS))
        events = worker.generate(REQUEST)
        next(events)
        assert worker.pid is not None
        kill(worker.pid, signal.SIGKILL)
        assert worker.lost() is None
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            list(events)


def test_errors_of_the_session_come_back_as_themselves() -> None:
    with stub("failed") as worker, pytest.raises(IntegrityError, match="not GGUF") as caught:
        list(worker.load(SETTINGS))
    assert caught.value.detail == {"a": 1}
    assert caught.value.hint == "look"


def test_an_internal_error_brings_the_log() -> None:
    with stub("internal") as worker, pytest.raises(InternalError) as caught:
        list(worker.load(SETTINGS))
    assert "Traceback: Ouch" in caught.value.detail["log"]


def test_cancel_from_a_thread_ends_the_answer() -> None:
    with stub("slow") as worker:
        list(worker.load(SETTINGS))
        threading.Timer(0.1, worker.cancel).start()
        last = list(worker.generate(REQUEST))[-1]
    assert isinstance(last, Finished)
    assert last.reason == "interrupted"


def test_cancel_before_the_first_event_is_read_is_not_lost() -> None:
    with stub("slow") as worker:
        list(worker.load(SETTINGS))
        events = worker.generate(REQUEST)
        worker.cancel()
        assert isinstance(list(events)[-1], Finished)


def test_cancel_from_a_signal_handler_in_the_middle_of_a_long_write() -> None:
    with stub("slow") as worker:
        list(worker.load(SETTINGS))
        before = signal.signal(signal.SIGALRM, lambda *_: worker.cancel())
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            events = list(worker.generate(Request(prompt="x" * 10_000_000)))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert isinstance(events[0], Started)
    assert events[0].prompt_n == 10_000_000
    assert isinstance(events[-1], Finished)


def test_a_late_cancel_does_not_touch_the_next_request() -> None:
    with stub("good") as worker:
        list(worker.load(SETTINGS))
        list(worker.generate(REQUEST))
        worker.cancel()
        assert len(list(worker.generate(REQUEST))) == 7


def test_leaving_an_answer_early_cancels_it_and_its_rest_is_skipped() -> None:
    with stub("slow") as worker:
        list(worker.load(SETTINGS))
        for event in worker.generate(REQUEST):
            if isinstance(event, Committed):
                break
        again: list[Event] = []
        for event in worker.generate(REQUEST):
            again.append(event)
            if isinstance(event, Committed) and event.text == ".":
                worker.cancel()
    assert isinstance(again[0], Started)
    assert sum(isinstance(event, Finished) for event in again) == 1


def test_an_answer_that_was_never_read_does_not_block_the_next() -> None:
    with stub("slow") as worker:
        list(worker.load(SETTINGS))
        worker.generate(REQUEST)
        events = worker.generate(REQUEST)
        worker.cancel()
        assert isinstance(list(events)[-1], Finished)


def test_close_is_quick_even_with_a_stubborn_child() -> None:
    worker = stub("stubborn")
    list(worker.load(SETTINGS))
    pid = worker.pid
    assert pid is not None
    started = time.monotonic()
    worker.close()
    assert time.monotonic() - started < AT_ONCE
    assert worker.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    worker.close()  # again does nothing
    worker.cancel()


def test_close_in_another_thread_just_ends_the_answer() -> None:
    worker = stub("slow")
    list(worker.load(SETTINGS))
    threading.Timer(0.1, worker.close).start()
    events = list(worker.generate(REQUEST))
    assert isinstance(events[-1], Committed)


def test_no_descriptor_is_left_open() -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/dev/fd"))

    def use() -> None:
        for mode in ("good", "generate:SIGKILL", "load:garbage"):
            with stub(mode) as worker:
                if mode == "good":
                    list(worker.load(SETTINGS))
                else:
                    drain(worker)

    use()
    before = count()
    use()
    assert count() <= before  # less when another test's last objects went meanwhile


def test_the_log_is_bounded_and_a_users_log_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.worker.process.MAX_LOG", 8)
    with stub("deaf", DEAF) as worker:
        list(worker.load(SETTINGS))
        assert worker.log_tail() == "a stray print on standard output"
        events = worker.generate(REQUEST)
        worker.cancel()
        with pytest.raises(WorkerDiedError):
            list(events)  # waits, and trims meanwhile
        assert worker.log_tail() == ""
    path = tmp_path / "engine.log"
    path.write_text("of an earlier run\n")
    with stub("good", log_file=path) as worker:
        list(worker.load(SETTINGS))
        assert worker.log_tail() == "a stray print on standard output"
    assert path.read_text() == "of an earlier run\na stray print on standard output\n"


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="--log-file"):
        stub("good", log_file=tmp_path / "none" / "log").load(SETTINGS)


def test_the_parent_stays_light() -> None:
    code = "import localspec.worker.client, sys; print({'numpy', 'llama_cpp', 'jinja2'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
