"""The queue in front of an engine: jobs of several askers, each on a thread of the queue when its turn has come.

Invariant: every job that was submitted ends in exactly one call of its `end`, whatever the engine does.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from localspec.engine.events import Event
from localspec.errors import InternalError, LocalspecError


class Job:
    """What somebody wants of the engine. Its methods are called in a thread of the queue."""

    is_cancelled = False  # nobody wants it any more
    is_long = True  # a whole answer
    goes_first = False  # before whole answers: a single pass, for which they would be a long wait

    def run(self) -> Iterator[Event]:
        raise NotImplementedError  # each job is its own

    def observe(self, event: Event) -> None: ...
    def end(self, error: LocalspecError | None) -> None: ...  # also of a job that never began
    def move(self, before: int) -> None: ...  # how many jobs end before it begins, where that has changed


class JobQueue:
    """Runs jobs in the order in which they came, `parallel` at a time. For any thread. `cancel` stops what a running
    job asked the engine for."""

    def __init__(self, cancel: Callable[[Job], None], parallel: int = 1) -> None:
        self._cancel = cancel
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self.is_closed = False
        self._threads = [threading.Thread(target=self._run, name="engine", daemon=True) for _ in range(parallel)]
        for thread in self._threads:
            thread.start()

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> list[Job]:
        return self._running.copy()

    def submit(self, jobs: Iterable[Job]) -> bool:
        with self._changed:
            if self.is_closed:
                return False
            for job in jobs:
                at = next((i for i, each in enumerate(self._waiting) if job.goes_first and each.is_long), None)
                self._waiting.insert(len(self._waiting) if at is None else at, job)
            self._changed.notify_all()
        self._tell_places()
        return True

    def submit_beside(self, jobs: Iterable[Job]) -> bool:
        """Run jobs at once, each on a thread of its own; False, and nothing is done, where the queue is closed."""
        with self._changed:
            if self.is_closed:
                return False
            for job in jobs:
                self._running.append(job)
                threading.Thread(target=self._do, args=(job,), name="question", daemon=True).start()
        return True

    def cancel(self, job: Job) -> None:
        """Take a job out, or stop it; harmless for one that has ended."""
        with self._changed:
            job.is_cancelled = True
            was_waiting = job in self._waiting
            if was_waiting:
                self._waiting.remove(job)
            elif job in self._running:
                self._cancel(job)
        if was_waiting:
            job.end(None)
            self._tell_places()

    def place(self, job: Job) -> int:
        with self._changed:
            return self._waiting.index(job) + len(self._running) if job in self._waiting else 0

    def close(self) -> list[Job]:
        """Take no more jobs, and return those that waited, which their owner ends. What runs goes on."""
        with self._changed:
            self.is_closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        return waiting

    def join(self, patience: float) -> None:
        """Wait until nothing runs in a closed queue, `patience` seconds at most."""
        for thread in self._threads:
            thread.join(patience)

    def _tell_places(self) -> None:
        with self._changed:
            for before, job in enumerate(self._waiting, len(self._running)):
                job.move(before)

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.is_closed)
            if not self._waiting:
                return None
            job = self._waiting.popleft()
            self._running.append(job)
            return job

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._do(job)

    def _do(self, job: Job) -> None:
        error: LocalspecError | None = None
        try:
            for event in job.run():
                job.observe(event)
        except LocalspecError as raised:
            error = raised
        except Exception as raised:  # the thread is to serve the next one
            error = InternalError(f"unexpected {type(raised).__name__}: {raised}", hint="report this")
        with self._changed:
            self._running.remove(job)
        job.end(error)
        self._tell_places()
