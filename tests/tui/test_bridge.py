"""The thread between the worker and the screen: jobs in order, one end each, stops that reach what runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from localspec.engine.events import Event, Finished, Loaded, Warned
from localspec.errors import InternalError, UsageError
from localspec.settings.request import Request
from localspec.tui.bridge import Arrived, Bridge, Ended
from tests.tui.scripted import PATIENCE, SETTINGS, ScriptedWorker


def drained(bridge: Bridge, job: int | None = None) -> list[Arrived | Ended]:
    """Return what comes until the jobs at hand are over."""
    taken: list[Arrived | Ended] = []
    deadline = time.monotonic() + PATIENCE
    while bridge.is_busy:
        assert time.monotonic() < deadline
        taken += bridge.take(job)
        time.sleep(0.001)
    return taken


def test_a_load_is_made_once_and_again_after_a_death() -> None:
    worker = ScriptedWorker()
    bridge = Bridge(worker)
    for _ in range(2):
        bridge.answer(SETTINGS, Request(prompt="x"))
        assert isinstance(drained(bridge)[-1], Ended)
    assert len(worker.loads) == 1
    worker.pid = None
    bridge.answer(SETTINGS, Request(prompt="x"))
    drained(bridge)
    assert len(worker.loads) == 2
    bridge.close()


def test_jobs_end_in_order_and_name_themselves() -> None:
    bridge = Bridge(ScriptedWorker())
    numbers = [bridge.load(SETTINGS), bridge.answer(SETTINGS, Request(prompt="x"))]
    items = drained(bridge)
    assert [item.job for item in items if isinstance(item, Ended)] == numbers
    assert [item.job for item in items] == sorted(item.job for item in items)
    bridge.close()


def test_an_end_is_known_before_it_is_taken() -> None:
    worker = ScriptedWorker(hold_at=2)
    bridge = Bridge(worker)
    bridge.answer(SETTINGS, Request(prompt="x"))
    deadline = time.monotonic() + PATIENCE
    while not worker.is_held.is_set():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert bridge.has_news
    assert not bridge.has_ended
    worker.go.set()
    while not bridge.has_ended:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    drained(bridge)
    assert not bridge.has_ended
    bridge.close()


def test_a_job_apart_is_taken_by_its_number() -> None:
    bridge = Bridge(ScriptedWorker())
    job = bridge.run(lambda: iter([Warned("a", "b")]))
    deadline = time.monotonic() + PATIENCE
    taken: list[Arrived | Ended] = []
    while bridge.is_busy:
        assert time.monotonic() < deadline
        assert bridge.take() == []
        taken += bridge.take(job)
    assert [type(item) for item in taken] == [Arrived, Ended]
    bridge.close()


@pytest.mark.parametrize(("raised", "kind"), [(UsageError("no"), UsageError), (ValueError("bug"), InternalError)])
def test_whatever_a_job_raises_the_next_one_runs(raised: Exception, kind: type[Exception]) -> None:
    def broken() -> Iterator[Event]:
        raise raised

    bridge = Bridge(ScriptedWorker())
    job = bridge.run(broken)
    end = drained(bridge, job)[-1]
    assert isinstance(end, Ended)
    assert isinstance(end.error, kind)
    bridge.load(SETTINGS)
    assert any(isinstance(item, Arrived) and isinstance(item.event, Loaded) for item in drained(bridge))
    bridge.close()


def test_a_stop_during_a_load_keeps_the_answer_from_beginning() -> None:
    worker = ScriptedWorker(load_pause=5.0)
    bridge = Bridge(worker)
    bridge.load(SETTINGS)
    bridge.answer(SETTINGS, Request(prompt="x"))
    while not worker.loads:
        time.sleep(0.001)
    bridge.stop()
    items = drained(bridge)
    last = [item.event for item in items if isinstance(item, Arrived)][-1]
    assert isinstance(last, Finished)
    assert last.reason == "interrupted"
    assert not worker.requests
    assert len(worker.loads) == 1
    bridge.close()


def loaded(items: list[Arrived | Ended]) -> list[str]:
    return [item.event.name for item in items if isinstance(item, Arrived) and isinstance(item.event, Loaded)]


def test_another_pair_does_not_wait_for_one_that_loads() -> None:
    worker = ScriptedWorker(load_pause=30.0)
    bridge = Bridge(worker)
    bridge.load(SETTINGS)
    while not worker.loads:
        time.sleep(0.001)
    bridge.load(replace(SETTINGS, name="between"))
    worker.load_pause = 0.0
    bridge.load(replace(SETTINGS, name="other"))
    assert not bridge.is_stopping
    assert loaded(drained(bridge)) == ["other"]
    assert "between" not in [each.name for each in worker.loads]
    bridge.close()


def test_a_stop_is_of_all_that_was_asked_for_before() -> None:
    worker = ScriptedWorker(hold_at=0)
    bridge = Bridge(worker)
    bridge.load(SETTINGS)
    bridge.answer(SETTINGS, Request(prompt="x"))
    bridge.load(replace(SETTINGS, name="other"))
    assert worker.is_held.wait(PATIENCE)
    bridge.stop()
    assert bridge.is_stopping
    bridge.answer(SETTINGS, Request(prompt="y"))
    assert not bridge.is_stopping
    worker.go.set()
    assert loaded(drained(bridge)) == ["storyteller"]
    assert [request.prompt for request in worker.requests] == ["x", "y"]
    bridge.close()


def test_a_stop_after_two_seconds_ends_an_engine_that_is_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DEAF", "1")
    worker, now = ScriptedWorker(hold_at=1), 0.0
    bridge = Bridge(worker, clock=lambda: now)
    bridge.answer(SETTINGS, Request(prompt="x"))
    assert worker.is_held.wait(PATIENCE)
    for at in (0.0, 0.1, 1.9):  # a key that is held, or pressed twice
        now = at
        assert not bridge.stop()
        assert bridge.is_stopping
        assert not bridge.is_deaf
    time.sleep(0.05)
    assert worker.n_closed == 0
    now = 2.1
    assert bridge.is_deaf
    assert bridge.stop()
    assert not bridge.stop()  # it is being ended
    deadline = time.monotonic() + PATIENCE
    while worker.n_closed == 0:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert worker.n_closed == 1
    worker.go.set()
    drained(bridge)
    bridge.close()
