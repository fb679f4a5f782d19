"""A hub of one test, and a machine with nothing on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.machine import Machine
from tests.hub.models import whole
from tests.hub.server import Server, serving


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever runs the tests may be logged in to the real hub."""
    from huggingface_hub import constants

    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))


@pytest.fixture
def hub() -> Iterator[Server]:
    """A hub with storyteller whole, its draft, and storyteller in parts."""
    with serving(whole()) as server:
        yield server


@pytest.fixture
def machine(hub: Server, tmp_path: Path) -> Machine:
    return Machine(hub, tmp_path)
