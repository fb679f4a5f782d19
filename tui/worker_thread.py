"""From the worker's iterators to a screen's timer: a thread reads events, the screen takes what has come.

Nothing of Textual is here. The screen pulls, so that a slow screen takes larger bites and never falls behind; a
thread that pushed would fill the screen's queue. Every event carries the time of its arrival in the thread: rates are
computed from those, not from when the screen got round to them.

Invariant: every job that was started ends in exactly one `Ended`, whatever the worker does.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from localspec.chat.pair_loader import ChatWorker, PairLoader
from localspec.engine.events import Event, Prefilled
from localspec.errors import InternalError, LocalspecError, WorkerDiedError
from localspec.settings.jobs import Generate
from localspec.settings.request import LoadSettings, Request


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

Job = Callable[[], Iterator[Event]]


class WorkerThread:
    """Runs one job after another on a worker. All methods are for the screen's thread."""

    def __init__(self, worker: ChatWorker, clock: Callable[[], float] = time.monotonic) -> None:
        self.worker = worker
        self._clock = clock
        self.has_begun: Callable[[], None] = lambda: None  # called when a job is started: until then nothing comes
        self._jobs: queue.SimpleQueue[tuple[int, Job] | None] = queue.SimpleQueue()
        self._arrived: deque[Arrived | Ended] = deque()
        self._apart: dict[int, deque[Arrived | Ended]] = {}  # of jobs that `run` started
        self._started = 0  # jobs so far: the number of the latest
        self._open = 0  # jobs whose Ended was not taken
        self._running = 0  # the number of the job that runs, or ran last
        self._unended: dict[int, bool] = {}  # jobs that have not come to their end, and whether each is a load
        self._stopped = 0  # this job was asked to stop, and all before it
        self._stopped_at = 0.0  # when it was asked to stop, or its process to end
        self._loader = PairLoader(worker)
        self.n_ahead = 0  # tokens of the next prompt that were read before it is sent
        self._ahead: object = None  # what is read ahead, or waits for it
        self._is_reading = False  # whether it is being read
        threading.Thread(target=self._run, name="worker", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether a job runs, or its end was not taken yet."""
        return self._open > 0

    @property
    def is_stopping(self) -> bool:
        """Whether all that was started was asked to stop."""
        return self.is_busy and self._stopped == self._started

    @property
    def is_deaf(self) -> bool:
        """Whether the running job was asked to stop, and has had the time to."""
        return self.is_stopping and self._clock() - self._stopped_at >= PATIENCE

    @property
    def has_news(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._arrived)

    @property
    def has_ended(self) -> bool:
        """Whether the end of a job is the latest that `take` has to give."""
        return bool(self._arrived) and isinstance(self._arrived[-1], Ended)

    def load(self, settings: LoadSettings) -> int:
        """Load a pair in place of the one that is loaded; return the job's number, as all that start one do.

        The load of another pair is cancelled.
        """
        if self._unended and all(list(self._unended.values())):
            self._stopped = self._started
            self.worker.cancel()
        return self._start(lambda: self._loader.load(settings, lambda: self._is_stopped), is_load=True)

    def restart(self, settings: LoadSettings) -> int:
        """End the process, and load a pair in another one."""
        return self._start(lambda: self._restart(settings), is_load=True)

    def answer(self, settings: LoadSettings, request: Request) -> int:
        """Answer a request; loads first if the process that held the pair is gone."""
        return self._start(lambda: self._loader.answer(settings, request, lambda: self._is_stopped))

    def read_ahead(self, settings: LoadSettings, request: Request) -> None:
        """Read the start of a prompt, if the pair is loaded and nothing is to be done; what comes next stops it.

        It is no job: nobody waits for it, and its failure is told by the next answer.
        """
        if not self.is_busy and self._ahead is None:
            self._ahead = asked = object()
            self._jobs.put((0, lambda: self._read(asked, settings, request)))

    def run(self, job: Job) -> int:
        """Run anything else that yields events of the worker, which `take` then gives to who names the job."""
        self._apart[self._started + 1] = deque()
        return self._start(job)

    def stop(self) -> bool:
        """Ask the running job to stop, or end the process of one that is deaf to that; return whether it is ended."""
        is_deaf = self.is_deaf
        if is_deaf:
            self._stopped_at = self._clock()
            threading.Thread(target=self.worker.close, daemon=True).start()  # which may take a second
        elif self.is_busy and not self.is_stopping:
            self._stopped, self._stopped_at = self._started, self._clock()
            self.worker.cancel()
        return is_deaf

    def take(self, job: int | None = None) -> list[Arrived | Ended]:
        """Return what has come since the last call, in order: of a job of `run`, else of loads and answers."""
        arrived = self._arrived if job is None else self._apart.get(job, deque())
        taken = []
        while arrived:
            item = arrived.popleft()
            taken.append(item)
            if isinstance(item, Ended):
                self._open -= 1
                self._apart.pop(item.job, None)
        return taken

    def lost(self) -> WorkerDiedError | None:
        """Return what happened to a process that died between two jobs."""
        return None if self.is_busy else self.worker.lost()

    def close(self) -> None:
        """End the process and the thread."""
        self._jobs.put(None)
        self.worker.close()

    @property
    def _is_stopped(self) -> bool:
        return self._running <= self._stopped

    def _start(self, job: Job, *, is_load: bool = False) -> int:
        self._ahead, self.n_ahead = None, 0
        if self._is_reading:
            self.worker.cancel()
        self._open += 1
        self._started += 1
        self._unended[self._started] = is_load
        self._jobs.put((self._started, job))
        self.has_begun()
        return self._started

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            number, job = item
            if not number:
                with suppress(Exception):
                    deque(job(), maxlen=0)
                continue
            self._running = number
            arrived = self._apart.get(number, self._arrived)
            error: LocalspecError | None = None
            try:
                for event in job():
                    arrived.append(Arrived(number, self._clock(), event))
            except LocalspecError as raised:
                error = raised
            except Exception as raised:  # the thread must outlive it, and the screen must hear of it
                error = InternalError(f"unexpected {type(raised).__name__}: {raised}", hint="please report it")
            del self._unended[number]
            arrived.append(Ended(number, self._clock(), error))

    def _read(self, asked: object, settings: LoadSettings, request: Request) -> Iterator[Event]:
        self._is_reading = True  # first: who takes `_ahead` away then looks whether to cancel
        try:
            if self._ahead is asked and self._loader.has(settings):
                for event in self.worker.start(Generate(request)):
                    if self._ahead is not asked:
                        break
                    if isinstance(event, Prefilled):
                        self.n_ahead = event.prompt_n
                    yield event
        finally:
            self._is_reading = False
            if self._ahead is asked:
                self._ahead = None

    def _restart(self, settings: LoadSettings) -> Iterator[Event]:
        self.worker.close()
        yield from self._loader.load(settings, lambda: self._is_stopped)
