"""Ctrl-C says "stopped", whatever it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from localspec.cli.app import cli
from localspec.cli.entry import outcome
from localspec.cli.pair_engine import PairEngine
from localspec.cli.signals import Terminated, stopping
from tests.cli.harness import environment, needs_pair, run

TALKING = {"chat"}  # where Ctrl-C is a key


def leaves(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from leaves(command, *words, name)
            elif command is not None and name not in TALKING:
                yield (*words, name)


def found(words: tuple[str, ...]) -> click.Command:
    """Return the command that `words` name."""
    command: click.Command | None = cli
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return command


def interrupt(**_: Any) -> int:
    """Do what Ctrl-C does to a command that knows nothing of it."""
    os.kill(os.getpid(), signal.SIGINT)
    return 0


def give_up(**_: Any) -> int:
    """Return what a command does that has asked its engine to stop."""
    return 128 + signal.SIGINT


def interrupt_a_class(**_: Any) -> int:
    """Do what Ctrl-C does while a class is being made: Python raises RuntimeError from it."""

    class Interrupts:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    type("Made", (), {"field": Interrupts()})
    return 0


@pytest.mark.parametrize("act", [interrupt, give_up])
@pytest.mark.parametrize("words", list(leaves(cli)), ids=" ".join)
def test_every_command_says_it(
    words: tuple[str, ...], act: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with the exit code of the signal."""
    command = found(words)
    monkeypatch.setattr(command, "callback", act)
    monkeypatch.setattr(command, "params", [])
    done = run(*words)
    assert (done.returncode, done.stderr, done.stdout) == (130, b"stopped\n", b"")


def test_ctrl_c_while_a_class_is_made_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told as an unexpected error, with exit code 1."""
    words = next(iter(leaves(cli)))
    command = found(words)
    monkeypatch.setattr(command, "callback", interrupt_a_class)
    monkeypatch.setattr(command, "params", [])
    done = run(*words)
    assert (done.returncode, done.stderr, done.stdout) == (130, b"stopped\n", b"")


@needs_pair
@pytest.mark.parametrize(
    "words",
    ["race storyteller hi", "plan storyteller --measure", "bench storyteller",
     "rank storyteller --items a,b hi"],
)  # fmt: skip
def test_one_that_writes_json_says_it_there(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it comes while the pair loads, and there is nothing else to write."""

    def load(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(PairEngine, "load", load)
    code = outcome([*words.split(), "--json", *(["-"] if words.startswith("bench") else [])])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["code"], error["kind"]) == (130, 130, "interrupted")


INSIDE = """
import localspec.cli.entry as entry
from localspec.cli import main

def outcome(*_, **__):
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 130

entry.outcome = outcome
main()
"""


def test_ctrl_c_while_a_class_is_made_has_the_code_too(tmp_path: Path) -> None:
    """Dataclasses are made by `exec`, after which Python -m would end by the signal itself."""
    (tmp_path / "interrupted_inside.py").write_text(INSIDE)
    env = environment()
    env["PYTHONPATH"] += f":{tmp_path}"
    assert subprocess.run([sys.executable, "-m", "interrupted_inside"], env=env, check=False).returncode == 130


def test_the_first_ctrl_c_cancels_and_every_other_is_told() -> None:
    told: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with stopping(lambda: told.append("cancel"), lambda: told.append("again")) as stop:
        assert not stop.is_asked
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
    assert told == ["cancel", "again", "again"]
    assert (stop.interrupts, stop.exit_code) == (3, 130)
    with pytest.raises(KeyboardInterrupt):
        stop.leave_if_told(is_script=True)
    stop.leave_if_told(is_script=False)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_end_cancels_and_the_second_ends(number: signal.Signals, code: int) -> None:
    told: list[str] = []
    with stopping(lambda: told.append("cancel"), lambda: None) as stop:
        signal.raise_signal(number)
        assert (stop.is_asked, stop.exit_code) == (True, code)
        with pytest.raises(Terminated):
            stop.leave_if_told(is_script=False)
        with pytest.raises(Terminated) as ended:
            signal.raise_signal(number)
    assert told == ["cancel"]
    assert ended.value.exit_code == code


def test_a_time_that_is_over_cancels() -> None:
    cancelled = threading.Event()
    with stopping(cancelled.set, lambda: None, timeout=0.01) as stop:
        assert cancelled.wait(60)
    assert (stop.is_timeout, stop.exit_code, stop.interrupts) == (True, 124, 0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with stopping(cancelled.set, lambda: None):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


FINALISER = """
import os, sys, time
from localspec.cli.entry import outcome
from localspec.cli.pair_engine import PairEngine
from localspec.cli.signals import Terminated, terminating

class Gone:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        for _ in range(1000):
            pass

try:
    with terminating():
        Gone()
        time.sleep(60)
except (Terminated, KeyboardInterrupt) as error:
    sys.exit(getattr(error, "exit_code", 130))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_finaliser_ends_the_program_too(number: signal.Signals) -> None:
    """Python ignores what is raised there: once, a run that was told to go answered to its end, with code 0."""
    command = [sys.executable, "-c", FINALISER, str(int(number))]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=50, check=False)
    assert (done.returncode, done.stderr) == (128 + number, b"")
