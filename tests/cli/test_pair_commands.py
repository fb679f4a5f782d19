"""Every command that loads a pair goes one way: warnings of the load, an engine that dies, Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any
from unittest.mock import patch

import pytest

from localspec.backends.cpus import allowed
from localspec.backends.devices import Device
from localspec.engine.events import Event, Loaded, Loading, Started
from localspec.worker.client import Worker
from localspec.worker.process import Child, Log
from tests.cli.harness import PAIR, assert_one_line, needs_pair, run_engine
from tests.heads.reference import TARGET, write_random_head
from tests.integration.gguf_models import TINY, random_gguf

pytestmark = needs_pair
STORYTELLER = f"{PAIR / 'target-q8_0.gguf'}+{PAIR / 'draft-q8_0.gguf'}"
COMMANDS = {
    "run": ("run", "-m", STORYTELLER, "--raw", "-n", "2", "Once"),
    "chat": ("chat", STORYTELLER, "--plain", "--no-save", "-n", "2"),
    "chat, a race": ("chat", STORYTELLER, "--plain", "--no-save", "-n", "2"),
    "race": ("race", STORYTELLER, "--raw", "-n", "2", "Once"),
    "verify": ("verify", STORYTELLER, "--prompts", "1", "-n", "2", "--draws", "100"),
    "calibrate": ("calibrate", STORYTELLER, "--seconds", "0.5"),
    "bench": ("bench", STORYTELLER, "--prompts", "1", "-r", "1", "-n", "2", "--temps", "0", "--methods", "plain,copy"),
    "doctor": ("doctor", STORYTELLER, "--seconds", "1"),
    "serve": ("serve", STORYTELLER, "--port", "0"),
    "heads eval": ("heads", "eval", "HEAD", "--raw", "-n", "8"),
    "early-exit tune": ("early-exit", "tune", "TINY", "-n", "8"),
}
STDIN = {"chat": b"Once\n", "chat, a race": b"Once\n/race\n"}
WARNS = dict.fromkeys(COMMANDS, "there is no memory for the draft model with --draft-gpu all") | {
    "heads eval": "the head was trained for another file",
    "early-exit tune": "threads share",  # it has no draft
}


def called(name: str, home: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command of the table with the engine in this process."""
    words = list(COMMANDS[name])
    if "HEAD" in words:
        words[words.index("HEAD")] = f"{TARGET}+{write_random_head(home / 'head.gguf', 'eagle1')}"
    if "TINY" in words:
        words[words.index("TINY")] = str(random_gguf(TINY))
        more = (*more, "--threads", str(len(allowed()) + 1))
    return run_engine(*words, *more, stdin=STDIN.get(name, b""), env={"LOCALSPEC_HOME": str(home)})


def struck(methods: tuple[str, ...], when: type[Event] | UnionType, act: Callable[[], object]) -> Any:
    """Return a patch of the worker that does something once, before a request's first event of a kind is passed on."""
    left = [act]

    def watched(method: Callable[..., Iterator[Event]]) -> Callable[..., Iterator[Event]]:
        def told(events: Iterator[Event]) -> Iterator[Event]:
            for event in events:
                if isinstance(event, when) and left:
                    left.pop()()
                yield event

        return lambda *asked: told(method(*asked))

    return patch.multiple(Worker, **{name: watched(getattr(Worker, name)) for name in methods})


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_warning_of_the_load_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft that has no room on its device, unless the command takes no draft."""
    monkeypatch.setattr("localspec.session.placement.devices", lambda: (Device("CUDA0", "", True, 1000),))
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: 64 * 10**9)
    monkeypatch.setenv("LOCALSPEC_DRAFT_GPU", "all")
    more = ("--draft-gpu", "all") if WARNS[name].startswith("there") else ()
    # A server serves until it is told to end.
    with struck(("load",), Loaded, interrupt if name == "serve" else lambda: None):
        done = called(name, tmp_path, *more)
    told = done.stderr.decode()
    assert re.search(f"^localspec: warning: .*{WARNS[name]}", told, re.MULTILINE), told
    assert "Traceback" not in told


@pytest.mark.parametrize("name", COMMANDS)
def test_an_engine_that_dies_is_one_line(name: str, tmp_path: Path) -> None:
    """The child is killed where it starts; each command says so, and ends with its own exit code."""
    start = Child.start

    def dying(command: Sequence[str], log: Log) -> Child:
        dies = f"import os; os.kill(os.getpid(), {signal.SIGKILL})"
        return start([sys.executable, "-S", "-c", dies], log)

    with patch("tests.cli.in_process._start", dying):
        done = called(name, tmp_path, *(("-q",) if "chat" in name else ()))
    if name == "chat, a race":  # a line for the answer, and one for the race
        done.stderr = done.stderr.split(b"\n", 1)[0] + b"\n"
    assert_one_line(done, 9, "SIGKILL", "starting")


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_ends_the_load(name: str, tmp_path: Path) -> None:
    with struck(("load",), Loading, interrupt):
        assert_interrupted(called(name, tmp_path))


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"serve"}))
def test_an_interrupt_ends_the_measurement(name: str, tmp_path: Path) -> None:
    with struck(("generate", "survey"), Started | Loading, interrupt):
        assert_interrupted(called(name, tmp_path))


def assert_interrupted(done: subprocess.CompletedProcess[bytes]) -> None:
    told = done.stderr.decode()
    assert done.returncode == 130, told
    assert "Traceback" not in told
    assert "localspec: " not in told.replace("localspec: warning: ", ""), told
