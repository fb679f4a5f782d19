"""Tests of the full-screen chat may be coroutines: each runs in a loop of its own, and waits for its rest."""

import asyncio
import inspect
import time
from functools import partial
from math import inf
from pathlib import Path

import pytest
import textual.app
import textual.pilot
from huggingface_hub import constants

LOOK = 0.001  # seconds between two looks whether anything is done
IDLE = 0.0004  # of these a processor may have worked for the looks themselves
LOOKS = 2  # in a row that see nothing done
FRAME = 1 / 60  # seconds: what is to be drawn is drawn within them
LONGEST = 1.0  # seconds: what is drawn all the time never rests


async def at_rest(*_bounds: float, soon: float = 0.0) -> None:
    """Wait until nothing is to be done now or in `soon` seconds, and no thread computes.

    Textual's own wait takes 20 ms at least, also where nothing is to come, and takes a busy machine for rest.
    """
    loop, looks, deadline = asyncio.get_running_loop(), 0, time.monotonic() + LONGEST
    while looks < LOOKS and time.monotonic() < deadline:
        began = time.process_time()
        await asyncio.sleep(LOOK)
        due = [timer.when() for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        is_due = bool(loop._ready) or min(due, default=inf) < loop.time() + soon  # type: ignore[attr-defined]
        looks = 0 if is_due or time.process_time() - began > IDLE else looks + 1


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key waits for what it does, a pause for the picture too."""
    monkeypatch.setattr(textual.app, "wait_for_idle", at_rest)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", partial(at_rest, soon=FRAME))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function to its end."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def _no_colors_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the terminal of the tests wants is no matter of theirs."""
    for name in ("NO_COLOR", "COLORTERM", "TEXTUAL_ANIMATIONS", "SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture(autouse=True)
def _a_machine_of_the_tests_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is set and what was downloaded on the machine that runs the tests is no matter of theirs either."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
