"""From the queue of the engine to a screen's timer: a thread reads events, the screen takes what has come.

Nothing of Textual is here. The screen pulls, so that a slow screen takes larger bites and never falls behind; a
thread that pushed would fill the screen's queue. Every event carries the time of its arrival in the thread: rates are
computed from those, not from when the screen got round to them.

Invariant: every job that was started ends in exactly one `Ended`, whatever the worker does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from localspec.chat.pair_loader import ChatWorker, PairLoader
from localspec.engine.events import Event, Prefilled
from localspec.errors import LocalspecError, WorkerDiedError
from localspec.settings.jobs import Generate
from localspec.settings.request import LoadSettings, Request
from localspec.worker.job_queue import Job, JobQueue


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event, when it came, and the number of its job."""

    job: int
    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class Ended:
    """A job is over; `error` says why if it failed."""

    job: int
    at: float
    error: LocalspecError | None = None


PATIENCE = 2.0  # seconds that a job has to stop in before its process may be ended

Act = Callable[[Callable[[], bool]], Iterator[Event]]  # given: whether the job was cancelled


class _ScreenJob(Job):
    """A job of the screen. What comes of it is appended to `arrived`."""

    def __init__(
        self, number: int, act: Act, arrived: deque[Arrived | Ended], clock: Callable[[], float], *, is_load: bool
    ) -> None:
        self.number = number
        self.arrived = arrived
        self.is_load = is_load
        self.has_ended = False
        self._act = act
        self._clock = clock

    def run(self) -> Iterator[Event]:
        return self._act(lambda: self.is_cancelled)

    def observe(self, event: Event) -> None:
        self.arrived.append(Arrived(self.number, self._clock(), event))

    def end(self, error: LocalspecError | None) -> None:
        self.has_ended = True
        self.arrived.append(Ended(self.number, self._clock(), error))


class _ReadingAhead(Job):
    """Reads the start of the next prompt. Nobody waits for it, and its failure is told by the next answer."""

    def __init__(self, loader: PairLoader, settings: LoadSettings, request: Request) -> None:
        self.n_read = 0
        self._loader, self._settings, self._request = loader, settings, request

    def run(self) -> Iterator[Event]:
        if self._loader.has(self._settings):
            yield from self._loader.start(Generate(self._request), lambda: self.is_cancelled)

    def observe(self, event: Event) -> None:
        if isinstance(event, Prefilled):
            self.n_read = event.prompt_n


class WorkerThread:
    """Runs one job after another on a worker. All methods are for the screen's thread."""

    def __init__(self, worker: ChatWorker, clock: Callable[[], float] = time.monotonic) -> None:
        self.worker = worker
        self.has_begun: Callable[[], None] = lambda: None  # called when a job is started: until then nothing comes
        self._clock = clock
        self._queue = JobQueue(lambda _job: worker.cancel())
        self._arrived: deque[Arrived | Ended] = deque()
        self._jobs: dict[int, _ScreenJob] = {}  # those whose Ended was not taken, by number
        self._started = 0  # jobs so far: the number of the latest
        self._stopped_at = 0.0  # when all was asked to stop, or the process to end
        self._loader = PairLoader(worker)
        self._ahead: _ReadingAhead | None = None  # since the last job

    @property
    def n_ahead(self) -> int:
        return 0 if self._ahead is None else self._ahead.n_read

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs)

    @property
    def is_stopping(self) -> bool:
        return self.is_busy and all(job.is_cancelled for job in self._jobs.values())

    @property
    def is_deaf(self) -> bool:
        """Whether the running job was asked to stop, and has had the time to."""
        return self.is_stopping and self._clock() - self._stopped_at >= PATIENCE

    @property
    def has_news(self) -> bool:
        return bool(self._arrived)

    @property
    def has_ended(self) -> bool:
        return bool(self._arrived) and isinstance(self._arrived[-1], Ended)

    def load(self, settings: LoadSettings) -> int:
        """Load a pair in place of the one that is loaded; return the job's number, as all that start one do."""
        unended = [job for job in self._jobs.values() if not job.has_ended]
        if all(job.is_load for job in unended):
            self._cancel(unended)
        return self._start(lambda is_stopped: self._loader.load(settings, is_stopped), is_load=True)

    def restart(self, settings: LoadSettings) -> int:
        def act(is_stopped: Callable[[], bool]) -> Iterator[Event]:
            self.worker.close()
            yield from self._loader.load(settings, is_stopped)

        return self._start(act, is_load=True)

    def answer(self, settings: LoadSettings, request: Request) -> int:
        return self._start(lambda is_stopped: self._loader.answer(settings, request, is_stopped))

    def run(self, job: Callable[[], Iterator[Event]]) -> int:
        """Run anything else that yields events of the worker, which `take` then gives to who names the job."""
        return self._start(lambda _is_stopped: job(), arrived=deque())

    def read_ahead(self, settings: LoadSettings, request: Request) -> None:
        """Read the start of a prompt, if the pair is loaded and nothing is to be done; what comes next stops it."""
        if not self.is_busy and not self._queue.n_waiting and not self._queue.running:
            self._ahead = _ReadingAhead(self._loader, settings, request)
            self._queue.submit([self._ahead])

    def stop(self) -> bool:
        """Ask the running job to stop, or end the process of one that is deaf to that; return whether it is ended."""
        is_deaf = self.is_deaf
        if is_deaf:
            self._stopped_at = self._clock()
            threading.Thread(target=self.worker.close, daemon=True).start()  # which may take a second
        elif self.is_busy and not self.is_stopping:
            self._stopped_at = self._clock()
            self._cancel(list(self._jobs.values()))
        return is_deaf

    def take(self, job: int | None = None) -> list[Arrived | Ended]:
        """Return what has come since the last call, in order: of a job of `run`, else of loads and answers."""
        known = None if job is None else self._jobs.get(job)
        arrived = self._arrived if job is None else known.arrived if known else deque[Arrived | Ended]()
        taken = []
        while arrived:
            item = arrived.popleft()
            taken.append(item)
            if isinstance(item, Ended):
                del self._jobs[item.job]
        return taken

    def lost(self) -> WorkerDiedError | None:
        return None if self.is_busy else self.worker.lost()

    def close(self) -> None:
        for job in self._queue.close():
            job.end(None)
        self.worker.close()

    def _cancel(self, jobs: list[_ScreenJob]) -> None:
        for job in reversed(jobs):  # those that wait first: none shall begin meanwhile
            self._queue.cancel(job)

    def _start(self, act: Act, *, arrived: deque[Arrived | Ended] | None = None, is_load: bool = False) -> int:
        if self._ahead is not None:
            self._queue.cancel(self._ahead)
            self._ahead = None
        self._started += 1
        job = _ScreenJob(
            self._started, act, self._arrived if arrived is None else arrived, self._clock, is_load=is_load
        )
        self._jobs[job.number] = job
        if not self._queue.submit([job]):
            job.end(None)
        self.has_begun()
        return self._started
