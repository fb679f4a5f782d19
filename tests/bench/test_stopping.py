"""Ctrl-C before a bench has a request that could be cancelled: while it hashes the models."""

import os
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from localspec.bench.result import Hashes
from localspec.cli.bench_run import measure
from localspec.cli.console import Console
from localspec.cli.live import Live
from localspec.cli.pair_engine import PairEngine, asking
from localspec.errors import INTERRUPTED
from localspec.settings.request import LoadSettings
from tests.cli.harness import PAIR, needs_pair


@needs_pair
@pytest.mark.parametrize("is_kept", [False, True])
def test_hashing_stops_at_once(is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more is read, and nothing is loaded. Where the hashes are kept, they tell no progress."""
    read = 0

    def of_model(self: Hashes, parts: Any, on_progress: Callable[[float], None]) -> str:
        nonlocal read
        read += 1
        os.kill(os.getpid(), signal.SIGINT)
        if not is_kept:
            on_progress(0.5)
            pytest.fail("the rest of the file is read")
        return "0" * 64

    monkeypatch.setattr(Hashes, "of_model", of_model)
    settings = LoadSettings(target=str(PAIR / "target-q8_0.gguf"), draft=str(next(PAIR.glob("draft*.gguf"))))
    worker: Any = type("Idle", (), {"cancel": lambda _: None})()
    job, console = cast(Any, None), Console(quiet=True)
    # The second Ctrl-C would end the tests.
    with asking(worker, Live(console), console, again=lambda: None) as engine:
        monkeypatch.setattr(PairEngine, "load", lambda *_: pytest.fail("the models are loaded"))
        done = measure(engine, settings, job, None)
    assert (done.exit_code, done.result.measurements) == (INTERRUPTED, ())
    assert read == (2 if is_kept else 1)
