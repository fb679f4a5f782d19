"""Loading a pair when an answer needs it: at the start, for another pair, and after the engine has died."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from localspec.conversations.answer_files import bring_up_to_date
from localspec.engine.events import Event, Finished, Loaded, Warned
from localspec.errors import WorkerDiedError
from localspec.settings.jobs import Generate, LoadedJob
from localspec.settings.request import LoadSettings, Request

_INTERRUPTED = Finished("interrupted", "", 0.0, 0.0, 0)


class ChatWorker(Protocol):
    """The methods of `localspec.worker.client.Worker` that a chat uses."""

    @property
    def pid(self) -> int | None: ...  # of the process that holds the models
    def load(self, settings: LoadSettings) -> Iterator[Event]: ...  # up to Loaded, or Finished if cancelled
    def start(self, job: LoadedJob) -> Iterator[Event]: ...  # ends after Finished or Inspected
    def cancel(self) -> None: ...  # soon
    def close(self) -> None: ...
    def lost(self) -> WorkerDiedError | None: ...  # the death of a process that had nothing to do
    def log_tail(self, lines: int = 20) -> str: ...


class PairLoader:
    """Knows what the engine's process holds. `starting` surrounds the start of a process. Every method takes
    `is_stopped`: whether a stop was asked for. Nothing is generated then, and nothing stays loading."""

    def __init__(self, worker: ChatWorker, starting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._worker = worker
        self._starting = starting
        self._loaded: tuple[int | None, LoadSettings] | None = None  # the process, and the pair that it holds
        self.held: Loaded | None = None  # what the last load told of its pair
        self._began = time.time()

    def has(self, settings: LoadSettings) -> bool:
        return self._loaded is not None and self._loaded == (self._worker.pid, settings)

    def load(self, settings: LoadSettings, is_stopped: Callable[[], bool]) -> Iterator[Event]:
        if is_stopped():  # before its turn came
            yield _INTERRUPTED
            return
        self._loaded = None
        with self._starting():
            events = self._worker.load(settings)
        if is_stopped():
            self._worker.cancel()
        for event in events:
            yield event
            if isinstance(event, Loaded):
                self._loaded, self.held = (self._worker.pid, settings), event

    def ready(self, settings: LoadSettings, is_stopped: Callable[[], bool]) -> Generator[Event, None, bool]:
        """Load the pair unless it is loaded; the result is whether it is. If not, the last event was Finished."""
        lost = self._worker.lost()
        if lost is not None:
            yield Warned("engine", f"{lost.message}; the engine starts again")
        if self.has(settings):
            return True
        for event in self.load(settings, is_stopped):
            yield event
            if isinstance(event, Finished):
                return False
        if is_stopped():  # too late to stop the load itself
            yield _INTERRUPTED
            return False
        return True

    def prepare(self, request: Request) -> None:
        """Write what a request reads beside its models: earlier answers to copy from. It takes a moment at most."""
        bring_up_to_date(request.speculation.corpus, self._began)

    def start(self, job: LoadedJob, is_stopped: Callable[[], bool]) -> Iterator[Event]:
        """Ask the loaded pair. The job is on its way when this returns; it ends at once if it was stopped before."""
        if isinstance(job, Generate):
            self.prepare(job.request)
        events = self._worker.start(job)
        if is_stopped():  # while nothing ran: cancelling is for the job that runs
            self._worker.cancel()
        return events

    def answer(self, settings: LoadSettings, request: Request, is_stopped: Callable[[], bool]) -> Iterator[Event]:
        """Answer a request, and load the pair before if that is necessary; the last event is Finished."""
        if is_stopped():  # while another pair loaded
            yield _INTERRUPTED
            return
        is_ready = yield from self.ready(settings, is_stopped)
        if not is_ready:
            return
        yield from self.start(Generate(request), is_stopped)
