"""Engines of this user: shared by clients in turn, found by what they hold, and gone without a trace.

Answers that end only when they are cancelled come from the stub; the text is the real engine's.
"""

import contextlib
import errno
import fcntl
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.events import (
    Committed,
    Event,
    Finished,
    Loaded,
    Loading,
    Prefilled,
    Reading,
    Started,
    Waiting,
    Warned,
)
from localspec.errors import EngineStoppedError, ResourceError, WorkerDiedError
from localspec.server.refusal import refused
from localspec.settings.request import LoadSettings, Request, Sampling
from localspec.worker import engines
from localspec.worker.client import Worker
from localspec.worker.engines import asked, engines_in_memory, identity, stop_engine
from localspec.worker.keep_policy import KeepAlive
from localspec.worker.runtime import Runtime, runtime_folder
from localspec.worker.shared import SharedWorker
from tests.cli.harness import is_running, needs_pair, wait_for

STUB = Path(__file__).parent / "stubs" / "stub.py"
STORYTELLER = files("localspec.models") / "storyteller"
PAIR = LoadSettings(target=str(STORYTELLER / "target-q8_0.gguf"), draft=str(STORYTELLER / "draft-q8_0.gguf"))
STORY = Request(prompt="Once upon a time there was", max_tokens=24, sampling=Sampling(temperature=0.0))
HELD = LoadSettings(target=str(STUB), name="held")
REQUEST = Request(prompt="Once")
MINUTE = 60.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test a folder of its own, and leave nothing of it running."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    for facts in engines_in_memory():
        stop_engine(facts)


def stub(mode: str = "slow", keep_alive: float = MINUTE) -> SharedWorker:
    return SharedWorker("test", command=[sys.executable, str(STUB), mode], keep_alive=KeepAlive(keep_alive))


def opened(worker: SharedWorker, settings: LoadSettings = HELD) -> SharedWorker:
    assert isinstance(list(worker.load(settings))[-1], Loaded)
    return worker


def until(events: Iterator[Event], kind: type[Event]) -> Event:
    return next(event for event in events if isinstance(event, kind))


def text_of(worker: Worker | SharedWorker, settings: LoadSettings, request: Request = STORY) -> tuple[str, list[Event]]:
    events = [*worker.load(settings), *worker.generate(request)]
    last = events[-1]
    assert isinstance(last, Finished)
    return "".join(each.text for each in events if isinstance(each, Committed)) + last.tail, events


def the_engine() -> dict[str, Any]:
    (facts,) = engines_in_memory()
    return facts


@needs_pair
@pytest.mark.parametrize("reproducible", [False, True])
def test_the_text_is_the_same_cold_and_warm(reproducible: bool) -> None:
    settings = replace(PAIR, reproducible=reproducible)
    with Worker() as worker:
        cold, _ = text_of(worker, settings)
    found, pids = [], []
    for _ in range(2):
        with SharedWorker(keep_alive=KeepAlive(MINUTE)) as worker:
            found.append(text_of(worker, settings))
            pids.append(worker.pid)
    assert [text for text, _ in found] == [cold, cold]
    assert pids[0] == pids[1]
    warm = found[1][1]
    assert not any(isinstance(event, Loading) and event.what == "target" for event in warm)
    (prefilled,) = (event for event in warm if isinstance(event, Prefilled))
    assert prefilled.cache_n == (0 if reproducible else prefilled.prompt_n - 1)  # other widths would round otherwise


@needs_pair
def test_what_the_load_told_is_told_again_with_the_clients_own_name() -> None:
    settings = replace(PAIR, ctx=4096, name="first")
    told = []
    for name in ("first", "second"):
        with SharedWorker(keep_alive=KeepAlive(MINUTE)) as worker:
            happened = worker.load(replace(settings, name=name))
            # How far the load has read is told where that takes long.
            told.append([event for event in happened if not isinstance(event, Loading | Reading)])
            assert the_engine()["clients"] == [{"by": "", "pid": os.getpid(), "name": name}]
    assert [event.message for event in told[0] if isinstance(event, Warned)]
    assert told[0][:-1] == told[1][:-1]
    first, second = (events[-1] for events in told)
    assert isinstance(first, Loaded)
    assert isinstance(second, Loaded)
    assert (first.name, second.name) == ("first", "second")
    assert second.load_ms < first.load_ms
    assert replace(first, name="", load_ms=0.0) == replace(second, name="", load_ms=0.0)


def test_what_one_client_expects_is_not_told_to_another(tmp_path: Path) -> None:
    """The file of a conversation may be another one; the engine was not asked about that."""
    mark = ("held", "another fingerprint")
    target = replace(HELD, name=HELD.target, expected=(HELD.target, mark[1]))
    told = [
        [event for event in stub().load(settings) if isinstance(event, Warned)]
        for settings in (target, replace(target, expected=None), target)
    ]
    assert [len(each) for each in told] == [1, 0, 1]
    assert "another file than the one that answered" in told[0][0].message


def test_two_clients_are_answered_in_turn_and_the_second_is_told_its_place() -> None:
    with opened(stub()) as first, opened(stub()) as second, opened(stub()) as third:
        long = first.generate(REQUEST)
        until(long, Committed)
        waiting, last = second.generate(REQUEST), third.generate(REQUEST)
        assert next(waiting) == Waiting(1)
        assert next(last) == Waiting(2)
        first.cancel()
        assert until(long, Finished).reason == "interrupted"
        assert next(last) == Waiting(1)
        until(waiting, Started)
        second.cancel()
        until(waiting, Finished)
        until(last, Started)
        third.cancel()
        until(last, Finished)
    wait_for(lambda: not the_engine()["clients"])


def test_what_waits_can_be_cancelled_and_the_answer_before_it_goes_on() -> None:
    with opened(stub()) as first, opened(stub()) as second:
        long = first.generate(REQUEST)
        until(long, Committed)
        waiting = second.generate(REQUEST)
        assert next(waiting) == Waiting(1)
        second.cancel()
        assert [type(event) for event in waiting] == [Finished]
        until(long, Committed)
        assert the_engine()["state"] == "answering"


def test_a_client_that_does_not_read_holds_nobody_up() -> None:
    with opened(stub("good")) as first, opened(stub("good")) as second:
        first.generate(REQUEST)
        assert isinstance(list(second.generate(REQUEST))[-1], Finished)


CLIENT = """
import sys
from localspec.engine.events import Committed
from localspec.settings.request import LoadSettings, Request
from localspec.worker.keep_policy import KeepAlive
from localspec.worker.shared import SharedWorker
worker = SharedWorker(command=[sys.executable, sys.argv[1], "slow"], keep_alive=KeepAlive(60.0))
list(worker.load(LoadSettings(target=sys.argv[1], name="held")))
for event in worker.generate(Request(prompt="Once")):
    print(type(event).__name__, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_client_that_dies_frees_the_engine(number: signal.Signals) -> None:
    """The answer of the client that waits begins because of that, and on the same child."""
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(STUB)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert client.stdout is not None
    while client.stdout.readline() != b"Committed\n":
        pass
    pid = the_engine()["pid"]
    with opened(stub()) as second:
        waiting = second.generate(REQUEST)
        assert next(waiting) == Waiting(1)
        client.send_signal(number)
        until(waiting, Started)
        assert the_engine()["pid"] == pid
    client.wait()
    client.stdout.close()


def test_an_engine_that_is_killed_is_one_error_and_starts_again_for_those_who_wait() -> None:
    with opened(stub()) as first, opened(stub()) as second:
        long = first.generate(REQUEST)
        until(long, Committed)
        waiting = second.generate(REQUEST)
        assert next(waiting) == Waiting(1)
        pid = the_engine()["pid"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"was killed \(SIGKILL\).* while generating"):
            list(long)
        assert isinstance(next(waiting), Loading)
        until(waiting, Started)
        assert the_engine()["pid"] != pid
        assert first.lost() is None
        until(opened(first).generate(REQUEST), Waiting)


@pytest.mark.parametrize("who", ["localspec stop", "the child", "its process"])
def test_an_engine_that_is_stopped_during_an_answer_is_no_crash(who: str) -> None:
    """Who reads the answer is told that somebody stopped it; there is nothing to report, and asking again helps."""
    with opened(stub()) as worker:
        events = worker.generate(REQUEST)
        until(events, Committed)
        facts = the_engine()
        keeper = facts["engine_pid"]
        if who == "localspec stop":
            stop_engine(facts)
        else:
            os.kill(facts["pid"] if who == "the child" else keeper, signal.SIGTERM)
        with pytest.raises(EngineStoppedError) as caught:
            list(events)
        assert caught.value.message == "The engine was stopped, by localspec stop or by SIGTERM, while generating"
        assert (caught.value.hint, caught.value.exit_code) == ("the same again", 143)
        assert refused(caught.value).code == "engine_died"
        assert isinstance(until(opened(worker).generate(REQUEST), Committed), Committed)


@pytest.mark.parametrize("who", ["the child", "its process"])
def test_an_idle_engine_that_is_killed_is_started_again(who: str) -> None:
    with opened(stub("good")) as worker:
        pid = before = the_engine()["pid"]
        keeper = the_engine()["engine_pid"] if who == "its process" else pid
        os.kill(keeper, signal.SIGKILL)
        wait_for(lambda: not is_running(pid))
        wait_for(lambda: worker.lost() is not None or worker.pid is None)
        assert isinstance(list(opened(worker).generate(REQUEST))[-1], Finished)
        assert the_engine()["pid"] != before


def test_the_log_of_a_death_is_told() -> None:
    with stub("generate:SIGSEGV:the reason") as worker, pytest.raises(WorkerDiedError) as caught:
        list(opened(worker).generate(REQUEST))
    assert "the reason" in caught.value.detail["log"]
    wait_for(lambda: not engines_in_memory())


def test_a_load_that_fails_leaves_no_engine() -> None:
    with stub("failed") as worker, pytest.raises(Exception, match="is not GGUF"):
        list(worker.load(HELD))
    wait_for(lambda: not names())


def test_a_load_that_is_cancelled_ends_its_engine() -> None:
    with stub("hang") as worker:
        events = worker.load(HELD)
        until(events, Loading)
        pid = the_engine()["pid"]
        worker.cancel()
        assert [type(event) for event in events] == [Finished]
    wait_for(lambda: not is_running(pid) and not names())


def test_two_who_load_at_once_share_one_engine() -> None:
    workers = [stub("good") for _ in range(4)]
    threads = [threading.Thread(target=opened, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({worker.pid for worker in workers}) == 1
    for worker in workers:
        worker.close()


def names() -> list[str]:
    return os.listdir(runtime_folder())


def test_a_socket_of_an_engine_that_is_gone_is_no_error() -> None:
    name = identity(HELD)
    with Runtime.opened(make=True) as runtime:
        assert runtime is not None
        listener = runtime.listen(name)
        assert listener is not None
        listener.close()
        stale = runtime.listen("0" * 16)
        assert stale is not None
        stale.close()
    assert len(names()) == 2
    with opened(stub("good")):
        assert names() == [f"{name}.sock"]


def test_the_folder_and_the_socket_are_the_users_alone() -> None:
    with opened(stub("good")):
        folder = os.stat(runtime_folder())
        (found,) = names()
        path = runtime_folder() / found
        assert stat.S_IMODE(folder.st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        os.chmod(runtime_folder(), 0o755)
        assert the_engine()["state"] == "idle"
        assert stat.S_IMODE(os.stat(runtime_folder()).st_mode) == 0o700


KNOCK = """
import os, socket, sys
os.setuid(12345)
with socket.socket(socket.AF_UNIX) as knock:
    try:
        os.chdir(os.path.dirname(sys.argv[1]))
        knock.connect(os.path.basename(sys.argv[1]))
        knock.sendall(b'{"ask": "facts"}\\n')
        print(knock.recv(10))
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_is_refused(tmp_path: Path) -> None:
    """By the rights of the folder, and where those are gone by the engine itself."""
    with opened(stub("good")):
        path = runtime_folder() / names()[0]

        def knock() -> bytes:
            done = subprocess.run([sys.executable, "-c", KNOCK, path], capture_output=True, cwd="/", check=True)
            return done.stdout.strip()

        assert knock() == b"PermissionError"
        for each in (path, *path.parents):
            if each.is_relative_to(tmp_path.parents[2]):
                os.chmod(each, 0o777)
        assert knock() in (b"b''", b"ConnectionResetError", b"BrokenPipeError")


def linked(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to("elsewhere")


def owned_by_another(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)


@pytest.mark.parametrize(
    "spoil",
    [
        linked,
        Path.touch,
        pytest.param(owned_by_another, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root may give away")),
    ],
)
def test_a_folder_that_is_not_safe_is_not_used(spoil: Callable[[Path], None]) -> None:
    runtime_folder().parent.mkdir(parents=True)
    spoil(runtime_folder())
    with pytest.raises(ResourceError, match="cannot hold the socket"):
        stub("good").load(HELD)
    with opened(stub("good", keep_alive=0.0)) as worker:  # who keeps nothing is not bothered
        assert isinstance(list(worker.generate(REQUEST))[-1], Finished)
    os.unlink(runtime_folder()) if not runtime_folder().is_dir() or runtime_folder().is_symlink() else os.rmdir(
        runtime_folder()
    )


def test_a_file_system_without_locks_holds_no_warm_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    runtime_folder().mkdir(parents=True, mode=0o700)
    reason = f"{runtime_folder()} cannot hold the socket of a warm engine: No locks available"
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", no_locks)
        for request in (engines_in_memory, lambda: stub("good").load(HELD)):
            with pytest.raises(ResourceError, match=re.escape(reason)):
                request()
        with opened(stub("good", keep_alive=0.0)) as worker:
            assert isinstance(list(worker.generate(REQUEST))[-1], Finished)


def test_an_engine_of_another_pair_stays_while_memory_holds_both(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(HELD, ctx=512, name="other")
    assert identity(other) != identity(HELD)
    monkeypatch.setattr(engines, "available_memory", lambda: 1 << 40)
    opened(stub("good")).close()
    told = list(stub("good").load(other))
    assert not [event for event in told if isinstance(event, Warned)]
    assert len(engines_in_memory()) == 2
    monkeypatch.setattr(engines, "available_memory", lambda: 1 << 20)
    wait_for(lambda: not any(facts["clients"] for facts in engines_in_memory()))
    told = list(stub("good").load(replace(HELD, ctx=1024)))
    assert [event.message for event in told if isinstance(event, Warned)] == [
        "the warm engine of x left, to make room"
    ] * 2
    assert len(engines_in_memory()) == 1


def test_an_engine_in_use_does_not_leave() -> None:
    with opened(stub("good")) as worker, Runtime.opened() as runtime:
        assert runtime is not None
        assert asked(runtime, names()[0].removesuffix(".sock"), "POST", "/leave") is None
        assert isinstance(list(worker.generate(REQUEST))[-1], Finished)


def test_an_engine_in_use_is_not_asked_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "available_memory", lambda: 1 << 20)
    with opened(stub("good")):
        told = list(stub("good", keep_alive=0.0).load(replace(HELD, ctx=512)))
        assert told[0] == Warned("engine", "x is in memory too: localspec stop x frees it")
        assert len(engines_in_memory()) == 1


def test_a_client_finds_a_warm_engine_that_came_after_it() -> None:
    """As a chat that loads its pair again, hours later."""
    with stub("good", keep_alive=0.0) as chat:
        opened(stub("good", keep_alive=MINUTE)).close()
        assert opened(chat).pid == engines_in_memory()[0]["pid"]


def test_no_child_is_started_ahead_where_a_warm_engine_may_answer() -> None:
    opened(stub("good", keep_alive=MINUTE)).close()
    for keep_alive in (0.0, MINUTE):
        with stub("good", keep_alive=keep_alive) as worker:
            worker.prepare(HELD)
            assert worker.pid is None


@pytest.mark.parametrize(
    "change",
    [{"ctx": 512}, {"threads": 1}, {"kv_type": "q8_0"}, {"gpu": "off"}, {"reproducible": True}, {"mmap": False}],
)
def test_settings_are_part_of_the_identity(change: dict[str, Any]) -> None:
    assert identity(replace(HELD, **change)) != identity(HELD)


def test_files_and_surroundings_are_part_of_the_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same, other = tmp_path / "same.gguf", tmp_path / "other.gguf"
    same.write_bytes(STUB.read_bytes())
    other.write_bytes(b"other")
    assert identity(replace(HELD, target=str(same), name="by another name")) == identity(HELD)
    changes: list[dict[str, Any]] = [
        {"target": str(other)},
        {"draft": str(other)},
        {"lora": ((str(other), 1.0),)},
        {"lora": ((str(other), 0.5),)},
    ]
    found = {identity(replace(HELD, **change)) for change in changes}
    monkeypatch.setenv("GGML_SOMETHING", "1")
    found |= {identity(HELD)}
    monkeypatch.delenv("GGML_SOMETHING")
    for name, value in (("__version__", "0"), ("_changed", lambda: 0), ("_build", list), ("allowed", set)):
        with monkeypatch.context() as patch:
            patch.setattr(engines, name, value)
            found |= {identity(HELD)}
    assert len(found - {identity(HELD)}) == len(changes) + 5


def test_when_its_time_is_over_nothing_is_left() -> None:
    with opened(stub("good", keep_alive=0.2)) as worker:
        pid = worker.pid
        assert pid is not None
    wait_for(lambda: not is_running(pid) and not names())


def test_who_comes_back_in_time_stops_the_clock() -> None:
    opened(stub("good", keep_alive=MINUTE)).close()
    wait_for(lambda: the_engine()["idle_until"] is not None)
    with opened(stub("good", keep_alive=0.0)):
        facts = the_engine()
        assert facts["idle_until"] is None
        assert facts["keep_alive"] == MINUTE


def test_who_keeps_nothing_starts_an_engine_of_its_own_that_is_listed() -> None:
    with opened(stub("good", keep_alive=0.0)) as worker:
        (facts,) = engines_in_memory()
        assert facts["pid"] == worker.pid
        assert facts["clients"] == [{"by": "test", "pid": os.getpid()}]
        assert stop_engine(facts)
        wait_for(lambda: worker.lost() is not None)
    assert not engines_in_memory()
    assert not names()


def test_a_child_that_loads_is_listed_and_stopped() -> None:
    with stub("hang", keep_alive=0.0) as worker:
        events = worker.load(HELD)
        (facts,) = engines_in_memory()
        assert (facts["pid"], facts["clients"]) == (worker.pid, [{"by": "test", "pid": os.getpid()}])
        assert stop_engine(facts)
        with pytest.raises(EngineStoppedError):
            list(events)
    assert not engines_in_memory()


def test_the_engine_that_has_the_next_pair_takes_the_place_of_a_child() -> None:
    opened(stub("good")).close()
    warm = the_engine()["pid"]
    with opened(stub("good", keep_alive=0.0), replace(HELD, ctx=512, name="other")) as worker:
        child = worker.pid
        assert child is not None
        assert worker.pid in [facts["pid"] for facts in engines_in_memory()]
        opened(worker)
        assert worker.pid == warm
        assert [facts["pid"] for facts in engines_in_memory()] == [warm]
        wait_for(lambda: not is_running(child))


OWN = """
import sys, time
from localspec.settings.request import LoadSettings
from localspec.worker.shared import SharedWorker
worker = SharedWorker("own", command=[sys.executable, sys.argv[1], "good"])
list(worker.load(LoadSettings(target=sys.argv[1], name="held")))
print(flush=True)
time.sleep(60)
"""


def test_a_command_that_is_killed_leaves_no_sign() -> None:
    with subprocess.Popen([sys.executable, "-c", OWN, str(STUB)], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.readline()
        assert [each["by"] for each in the_engine()["clients"]] == ["own"]
        client.kill()
    assert not engines_in_memory()
    assert not names()


def test_garbage_on_the_connection_harms_nobody() -> None:
    with opened(stub("good")) as worker:
        name = names()[0].removesuffix(".sock")
        posted = b"POST /v1/engine/attach HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b"
        for said in (
            b"\n\n",
            b"x" * 100_000,
            b"\xff\r\n\r\n",
            posted % (3, b"[]\n"),
            posted % (2, b"{}"),
            posted % (1, b"{"),
        ):
            with Runtime.opened() as runtime:
                knock = runtime and runtime.connect(name)
            assert knock
            with knock, contextlib.suppress(OSError):
                knock.sendall(said)
                assert b"attached" not in knock.recv(1000)
        assert isinstance(list(worker.generate(REQUEST))[-1], Finished)


def test_what_ggml_says_to_its_own_threads_is_part_of_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded it starts others with this variable."""
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    name = identity(HELD)
    monkeypatch.setenv("KMP_BLOCKTIME", "200")
    assert identity(HELD) == name
    monkeypatch.setenv("KMP_BLOCKTIME", "0")
    assert identity(HELD) != name
