"""Every command that loads a pair goes one way: warnings of the load, an engine that dies, Ctrl-C."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from localspec.backends.devices import Device
from localspec.backends.limits import allowed
from localspec.cli.app import cli
from localspec.engine.events import Event, Loaded, Loading, Started
from localspec.settings.jobs import LoadedJob, RankQuestion
from localspec.worker.client import Worker
from localspec.worker.process import Child, Log
from tests.cli.harness import PAIR, assert_one_line, needs_pair, run, run_engine
from tests.cli.test_interruptions import found, leaves
from tests.heads.reference import TARGET, write_random_head
from tests.integration.gguf_models import TINY, random_gguf
from tests.test_architecture import ours

pytestmark = needs_pair
STORYTELLER = f"{PAIR / 'target-q8_0.gguf'}+{PAIR / 'draft-q8_0.gguf'}"
COMMANDS = {
    "run": ("run", "-m", STORYTELLER, "--raw", "-n", "2", "Once"),
    "chat": ("chat", STORYTELLER, "--plain", "--no-save", "-n", "2"),
    "chat, a race": ("chat", STORYTELLER, "--plain", "--no-save", "-n", "2"),
    "race": ("race", STORYTELLER, "--raw", "-n", "2", "--seed", "1", "Once"),
    "verify": ("verify", STORYTELLER, "--prompts", "1", "-n", "2", "--draws", "100", "--seed", "1"),
    "plan, measured": ("plan", STORYTELLER, "--measure", "--seconds", "0.5"),
    "bench": ("bench", STORYTELLER, "--prompts", "1", "-r", "1", "-n", "2", "--temps", "0", "--methods", "plain,copy"),
    "serve": ("serve", STORYTELLER, "--port", "0"),
    "rank": ("rank", STORYTELLER, "Once", "--items", ",".join(map(str, range(3000)))),
    "heads eval": ("heads", "eval", "HEAD", "--raw", "-n", "8"),
    "early-exit tune": ("early-exit", "tune", "TINY", "-n", "8"),
}
STDIN = {"chat": b"Once\n", "chat, a race": b"Once\n/race\n"}
WARNS = dict.fromkeys(COMMANDS, "there is no memory for the draft model with --draft-gpu all") | {
    "heads eval": "the head was trained for another file",
    "early-exit tune": "threads share",  # it has no draft
    "plan, measured": "threads share",  # it places the draft
    "rank": "threads share",
}
# Commands that share a file with one of the table, and load no pair.
BESIDE = {"heads train", "heads list", "heads rm", "heads show", "drafts list", "drafts make", "drafts rm"}
OWN = {"demo"}  # with its own engine tests: it takes no option of a load
# Those that ask llama.cpp in a process without a pair.
LONE = {
    "plan": ("plan", STORYTELLER),
    "calibrate": ("calibrate",),
    "drafts make": ("drafts", "make", str(PAIR / "target-q8_0.gguf"), "--force"),
    "rpc-serve": ("rpc-serve",),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all loads here: each pair is measured once."""
    return tmp_path_factory.mktemp("home")


def called(name: str, home: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    words = list(COMMANDS[name])
    if "HEAD" in words:
        head = home / "head.gguf"
        words[words.index("HEAD")] = f"{TARGET}+{head if head.exists() else write_random_head(head, 'eagle1')}"
    if "TINY" in words:
        words[words.index("TINY")] = str(random_gguf(TINY))
    if WARNS[name] == "threads share":
        more = (*more, "--threads", str(len(allowed()) + 1))
    return run_engine(*words, *more, stdin=STDIN.get(name, b""), env={"LOCALSPEC_HOME": str(home)})


def struck(method: str, when: Any, act: Callable[[], object]) -> Any:
    """Return a patch of a method of the worker that does something once, before what is of a kind passes.

    That is an event of the answers, or the job before it is sent.
    """
    left, asked_of = [act], getattr(Worker, method)

    def passing(what: object) -> None:
        if isinstance(what, when) and left:
            left.pop()()

    def told(events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            passing(event)
            yield event

    def asked(worker: Worker, what: object) -> Iterator[Event]:
        passing(what)
        return told(asked_of(worker, what))

    return patch.object(Worker, method, asked)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def reached(module: str) -> set[str]:
    """Return a module of the command line with all that it imports there, directly or not."""
    found, todo = set[str](), [module]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += [name for name in ours()[one] if name.startswith("localspec.cli.")]
    return found


def callers(asked: str) -> set[str]:
    """Return the commands of the tree whose files import a module."""
    return {
        " ".join(words)
        for words in leaves(cli)
        if any(asked in ours()[one] for one in reached(str(callback(words).__module__)) - {"localspec.cli.version"})
    }


def callback(words: tuple[str, ...]) -> Any:
    return found(words).callback


def test_no_command_that_loads_a_pair_is_left_out() -> None:
    """The command tree says which there are: a new one is in the tables above, or shares a file with one that is."""
    known = {" ".join(words) for words in leaves(cli) if words in [line[: len(words)] for line in COMMANDS.values()]}
    assert callers("localspec.cli.pair_engine") == known | BESIDE | OWN


def test_no_command_starts_an_engine_in_another_way() -> None:
    """Then it would be in no table: who needs an engine takes `open_engine`, or asks a process without a pair."""
    engine = {f"localspec.worker.{name}" for name in ("client", "process", "served", "shared")}
    named = {
        one.removeprefix("localspec.cli.") for one, names in ours().items() if engine & {*names} and ".cli." in one
    }
    talking = {"converse", "line_chat", "run", "serve", "serving"}
    assert named == {"pair_engine", "settings", "engine_options"} | talking


@pytest.mark.parametrize("name", COMMANDS)
def test_a_warning_of_the_load_is_told(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft that has no room on its device, unless the command takes no draft."""
    monkeypatch.setattr("localspec.session.placement.devices", lambda: (Device("CUDA0", "", True, 1000),))
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: 64 * 10**9)
    monkeypatch.setenv("LOCALSPEC_DRAFT_GPU", "all")
    more = ("--draft-gpu", "all") if WARNS[name].startswith("there") else ()
    # A server serves until it is told to end.
    with struck("load", Loaded, interrupt if name == "serve" else lambda: None):
        done = called(name, home, *more)
    told = done.stderr.decode()
    assert re.search(f"^localspec: warning: .*{WARNS[name]}", told, re.MULTILINE), told
    assert "Traceback" not in told


@pytest.mark.parametrize("name", COMMANDS)
def test_an_engine_that_dies_is_one_line(name: str, home: Path) -> None:
    """The child is killed where it starts; each command says so, and ends with its own exit code."""
    start = Child.start

    def dying(command: Sequence[str], log: Log) -> Child:
        dies = f"import os; os.kill(os.getpid(), {signal.SIGKILL})"
        return start([sys.executable, "-S", "-c", dies], log)

    with patch("tests.cli.in_process._start", dying):
        done = called(name, home, *(("-q",) if "chat" in name else ()))
    if name == "chat, a race":  # a line for the answer, and one for the race
        done.stderr = done.stderr.split(b"\n", 1)[0] + b"\n"
    assert_one_line(done, 9, "SIGKILL", "starting")


def test_no_command_that_asks_llama_cpp_without_a_pair_is_left_out() -> None:
    """`doctor` tells what does not answer among its findings; a training needs torch."""
    others = {"doctor", "heads train", "heads eval", "heads list", "heads rm", "heads show", "drafts list", "drafts rm"}
    assert callers("localspec.worker.lone_jobs") == LONE.keys() | others | OWN


@pytest.mark.parametrize("name", LONE)
def test_a_process_without_a_pair_that_dies_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dies = f"import os; os.kill(os.getpid(), {signal.SIGKILL})"
    monkeypatch.setattr("localspec.worker.lone_jobs.COMMAND", (sys.executable, "-S", "-c", dies))
    done = run(*LONE[name], env={"LOCALSPEC_HOME": str(tmp_path)})
    *warnings, last = done.stderr.splitlines(keepends=True)
    assert all(line.startswith(b"localspec: warning:") for line in warnings)
    done.stderr = last
    assert_one_line(done, 3, "status -9")


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_ends_the_load(name: str, home: Path) -> None:
    with struck("load", Loading, interrupt):
        assert_interrupted(called(name, home))


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"serve"}))
def test_an_interrupt_ends_the_measurement(name: str, home: Path) -> None:
    with struck("start", Started | Loading | RankQuestion, interrupt):
        assert_interrupted(called(name, home))


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"serve"}))
def test_an_interrupt_before_the_first_job_is_for_that(name: str, home: Path) -> None:
    """Between the load and what is asked of the pair nothing runs that could be cancelled."""
    with struck("start", LoadedJob, interrupt):
        assert_interrupted(called(name, home))


def assert_interrupted(done: subprocess.CompletedProcess[bytes]) -> None:
    told = done.stderr.decode()
    assert done.returncode == 130, told
    assert "Traceback" not in told
    assert "localspec: " not in told.replace("localspec: warning: ", ""), told
