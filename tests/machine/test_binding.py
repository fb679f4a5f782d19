"""Where the engine's threads may run: one processor each, if it has as many as this process has processors."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends import limits
from localspec.backends.threads import has_openmp
from localspec.engine.events import Loaded
from localspec.settings.request import LoadSettings, Request, Speculation
from localspec.worker.client import Worker
from tests.machine.test_worker_kill import SETTINGS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has affinity masks")
ANSWER = Request(prompt="Once upon a time", max_tokens=4, speculation=Speculation(method="plain"))
ALL = limits.allowed()


@pytest.fixture
def processors() -> int:
    if not 1 < len(ALL) == limits.physical_cores():
        pytest.skip("needs several processors, one thread each, and all of them")  # a test cannot add any
    return len(ALL)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def decode(worker: Worker, threads: int) -> Loaded:
    settings = LoadSettings(target=SETTINGS.target, threads=threads)
    loaded = next(event for event in worker.load(settings) if isinstance(event, Loaded))
    assert list(worker.generate(ANSWER))
    return loaded


def masks(worker: Worker) -> dict[int, set[int]]:
    assert worker.pid is not None
    tasks = Path(f"/proc/{worker.pid}/task")
    return {int(task): os.sched_getaffinity(int(task)) for task in os.listdir(tasks)}


def ticks(worker: Worker) -> dict[int, int]:
    """Return the processor time of every thread of the child, in ticks of the system's clock."""
    tasks = Path(f"/proc/{worker.pid}/task")
    fields = {task: (tasks / task / "stat").read_text().rpartition(")")[2].split() for task in os.listdir(tasks)}
    return {int(task): int(field[11]) for task, field in fields.items()}  # after the name: state is 0, utime 11


def test_as_many_threads_as_processors_have_one_each(worker: Worker, processors: int) -> None:
    decode(worker, processors)
    found = masks(worker)
    assert worker.pid is not None
    assert len(found.pop(worker.pid)) == 1, "the thread that decodes"
    bound = [mask for mask in found.values() if len(mask) == 1]
    assert len(bound) >= processors - 1
    assert set.union(*bound, masks(worker)[worker.pid]) == ALL


def test_every_processor_computes(worker: Worker, processors: int) -> None:
    """Threads that inherit the mask of the one that decodes would all wait on its processor."""
    decode(worker, processors)
    before = ticks(worker)
    assert list(worker.generate(replace(ANSWER, max_tokens=200)))
    spent = {task: n - before.get(task, 0) for task, n in ticks(worker).items()}
    found = masks(worker)
    busy = {min(found[task]) for task, n in spent.items() if len(found[task]) == 1 and n > 0.05 * sum(spent.values())}
    assert busy == ALL


def test_fewer_threads_go_where_there_is_room(worker: Worker, processors: int) -> None:
    decode(worker, processors - 1)
    assert all(mask == ALL for mask in masks(worker).values())


def test_the_next_load_counts_all_processors(worker: Worker, processors: int) -> None:
    decode(worker, processors)
    decode(worker, processors - 1)
    assert worker.pid is not None
    assert masks(worker)[worker.pid] == ALL, "free again"
    assert decode(worker, processors).threads == processors
    assert len(masks(worker)[worker.pid]) == 1


@pytest.mark.parametrize("name", ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"])
def test_what_a_person_says_stays(worker: Worker, processors: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, {"OMP_PROC_BIND": "false", "OMP_PLACES": "threads"}.get(name, "0-" + str(max(ALL))))
    decode(worker, processors)
    assert worker.pid is not None
    is_bound = len(masks(worker)[worker.pid]) == 1
    assert is_bound == (has_openmp() and name != "OMP_PROC_BIND"), "by OpenMP itself, or not at all"


def test_a_tiny_model_is_decoded_by_one_thread_that_goes_anywhere(worker: Worker, processors: int) -> None:
    list(worker.load(LoadSettings(target=SETTINGS.target)))
    list(worker.generate(ANSWER))
    assert worker.pid is not None
    assert masks(worker)[worker.pid] == ALL
