"""Tests of the full-screen chat may be coroutines: each runs in a loop of its own."""

import asyncio
import inspect
from pathlib import Path

import pytest
from huggingface_hub import constants


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
