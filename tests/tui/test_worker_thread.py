"""The thread between the worker and the screen: jobs in order, one end each, stops that reach what runs."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from localspec.engine.events import Event, Finished, Loaded, Warned
from localspec.errors import InternalError, UsageError
from localspec.settings.request import Request
from localspec.tui.worker_thread import Arrived, Ended, WorkerThread
from tests.tui.scripted import PATIENCE, SETTINGS, ScriptedWorker


def drained(worker_thread: WorkerThread, job: int | None = None) -> list[Arrived | Ended]:
    taken: list[Arrived | Ended] = []
    deadline = time.monotonic() + PATIENCE
    while worker_thread.is_busy:
        assert time.monotonic() < deadline
        taken += worker_thread.take(job)
        time.sleep(0.001)
    return taken


def test_a_load_is_made_once_and_again_after_a_death() -> None:
    worker = ScriptedWorker()
    worker_thread = WorkerThread(worker)
    for _ in range(2):
        worker_thread.answer(SETTINGS, Request(prompt="x"))
        assert isinstance(drained(worker_thread)[-1], Ended)
    assert len(worker.loads) == 1
    worker.pid = None
    worker_thread.answer(SETTINGS, Request(prompt="x"))
    drained(worker_thread)
    assert len(worker.loads) == 2
    worker_thread.close()


def test_jobs_end_in_order_and_name_themselves() -> None:
    worker_thread = WorkerThread(ScriptedWorker())
    numbers = [worker_thread.load(SETTINGS), worker_thread.answer(SETTINGS, Request(prompt="x"))]
    items = drained(worker_thread)
    assert [item.job for item in items if isinstance(item, Ended)] == numbers
    assert [item.job for item in items] == sorted(item.job for item in items)
    worker_thread.close()


def test_an_end_is_known_before_it_is_taken() -> None:
    worker = ScriptedWorker(hold_at=2)
    worker_thread = WorkerThread(worker)
    worker_thread.answer(SETTINGS, Request(prompt="x"))
    deadline = time.monotonic() + PATIENCE
    while not worker.is_held.is_set():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert worker_thread.has_news
    assert not worker_thread.has_ended
    worker.go.set()
    while not worker_thread.has_ended:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    drained(worker_thread)
    assert not worker_thread.has_ended
    worker_thread.close()


def test_a_job_apart_is_taken_by_its_number() -> None:
    worker_thread = WorkerThread(ScriptedWorker())
    job = worker_thread.run(lambda: iter([Warned("a", "b")]))
    deadline = time.monotonic() + PATIENCE
    taken: list[Arrived | Ended] = []
    while worker_thread.is_busy:
        assert time.monotonic() < deadline
        assert worker_thread.take() == []
        taken += worker_thread.take(job)
    assert [type(item) for item in taken] == [Arrived, Ended]
    worker_thread.close()


@pytest.mark.parametrize(("raised", "kind"), [(UsageError("no"), UsageError), (ValueError("bug"), InternalError)])
def test_whatever_a_job_raises_the_next_one_runs(raised: Exception, kind: type[Exception]) -> None:
    def broken() -> Iterator[Event]:
        raise raised

    worker_thread = WorkerThread(ScriptedWorker())
    job = worker_thread.run(broken)
    end = drained(worker_thread, job)[-1]
    assert isinstance(end, Ended)
    assert isinstance(end.error, kind)
    worker_thread.load(SETTINGS)
    assert any(isinstance(item, Arrived) and isinstance(item.event, Loaded) for item in drained(worker_thread))
    worker_thread.close()


def test_a_stop_during_a_load_keeps_the_answer_from_beginning() -> None:
    worker = ScriptedWorker(load_pause=5.0)
    worker_thread = WorkerThread(worker)
    worker_thread.load(SETTINGS)
    worker_thread.answer(SETTINGS, Request(prompt="x"))
    while not worker.loads:
        time.sleep(0.001)
    worker_thread.stop()
    items = drained(worker_thread)
    last = [item.event for item in items if isinstance(item, Arrived)][-1]
    assert isinstance(last, Finished)
    assert last.reason == "interrupted"
    assert not worker.requests
    assert len(worker.loads) == 1
    worker_thread.close()


def loaded(items: list[Arrived | Ended]) -> list[str]:
    return [item.event.name for item in items if isinstance(item, Arrived) and isinstance(item.event, Loaded)]


def test_another_pair_does_not_wait_for_one_that_loads() -> None:
    worker = ScriptedWorker(load_pause=30.0)
    worker_thread = WorkerThread(worker)
    worker_thread.load(SETTINGS)
    while not worker.loads:
        time.sleep(0.001)
    worker_thread.load(replace(SETTINGS, name="between"))
    worker.load_pause = 0.0
    worker_thread.load(replace(SETTINGS, name="other"))
    assert not worker_thread.is_stopping
    assert loaded(drained(worker_thread)) == ["other"]
    assert "between" not in [each.name for each in worker.loads]
    worker_thread.close()


def test_a_stop_is_of_all_that_was_asked_for_before() -> None:
    worker = ScriptedWorker(hold_at=0)
    worker_thread = WorkerThread(worker)
    worker_thread.load(SETTINGS)
    worker_thread.answer(SETTINGS, Request(prompt="x"))
    worker_thread.load(replace(SETTINGS, name="other"))
    assert worker.is_held.wait(PATIENCE)
    worker_thread.stop()
    assert worker_thread.is_stopping
    worker_thread.answer(SETTINGS, Request(prompt="y"))
    assert not worker_thread.is_stopping
    worker.go.set()
    assert loaded(drained(worker_thread)) == ["storyteller"]
    assert [request.prompt for request in worker.requests] == ["x", "y"]
    worker_thread.close()


def test_a_stop_after_two_seconds_ends_an_engine_that_is_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DEAF", "1")
    worker, now = ScriptedWorker(hold_at=1), 0.0
    worker_thread = WorkerThread(worker, clock=lambda: now)
    worker_thread.answer(SETTINGS, Request(prompt="x"))
    assert worker.is_held.wait(PATIENCE)
    for at in (0.0, 0.1, 1.9):  # a key that is held, or pressed twice
        now = at
        assert not worker_thread.stop()
        assert worker_thread.is_stopping
        assert not worker_thread.is_deaf
    time.sleep(0.05)
    assert worker.n_closed == 0
    now = 2.1
    assert worker_thread.is_deaf
    assert worker_thread.stop()
    assert not worker_thread.stop()  # it is being ended
    deadline = time.monotonic() + PATIENCE
    while worker.n_closed == 0:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert worker.n_closed == 1
    worker.go.set()
    drained(worker_thread)
    worker_thread.close()
