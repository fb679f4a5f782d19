"""The engine of a server: one answer at a time, the others in a queue in the order in which they came.

Each job names its pair, which is loaded when its turn comes, in place of the one that is loaded.

A thread reads the worker, and tells each job's events to the loop that waits for them. A client that leaves takes its
place in the queue along, or stops the answer within a pass. An engine that dies costs the answer that it was writing;
it is loaded again for the next one, and no client can stop that.

Also here: what a server has done since it started, as Prometheus reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass

from localspec.chat.pair_loader import PairLoader
from localspec.engine.events import Event, Finished, Inspected, Loaded, Warned
from localspec.errors import InternalError, LocalspecError
from localspec.server.own import Board
from localspec.server.refusal import Refusal, refused
from localspec.settings.jobs import ForkQuestion, Generate, TextQuestion, VerifyRound
from localspec.settings.request import LoadSettings, Request
from localspec.settings.sizes import counted
from localspec.ui.stats import Stats
from localspec.worker.client import Worker

Work = Request | TextQuestion | ForkQuestion | VerifyRound
LONGEST_WAIT = 60  # seconds that a client is told to wait, at most
LEAVING = "the server is shutting down"


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class QueuedJob:
    """One request of a pair on its way. `stats` are of the events that the engine has told so far."""

    def __init__(self, work: Work, settings: LoadSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.settings = settings
        self.stats = Stats()
        self.is_stopped = False
        self._loop = loop
        self._news: asyncio.Queue[Event | Exception] = asyncio.Queue()

    def tell(self, news: Event | Exception) -> None:
        """Hand on an event, or why there are no more. For any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads
            self._loop.call_soon_threadsafe(self._news.put_nowait, news)

    async def events(self, patience: float) -> AsyncIterator[Event | None]:
        """Yield the events up to the last, and None wherever nothing came for `patience` seconds.

        Raises Refusal where the answer ends without being complete, ClientGoneError if its client has left.
        """
        while True:
            try:
                news = await asyncio.wait_for(self._news.get(), patience)
            except TimeoutError:
                yield None
                continue
            if isinstance(news, Exception):
                raise news
            if isinstance(news, Finished) and news.reason == "interrupted":
                raise Refusal(503, LEAVING)
            yield news
            if isinstance(news, Finished | Inspected):
                return


class EngineQueue:
    """Answers jobs, of the pair of `settings` where they name none.

    `most_waiting` may wait besides the one that is answered; `on_end` is told of each that ended, `on_loaded` of each
    pair that was loaded, and `on_session` of sessions of edges, in words.

    Invariant: only the thread asks the worker for something, and only jobs that are generating are cancelled.
    """

    def __init__(
        self,
        worker: Worker,
        loader: PairLoader,
        settings: LoadSettings,
        *,
        most_waiting: int,
        on_end: Callable[[Stats], None] = lambda stats: None,
        on_warning: Callable[[Warned], None] = lambda warned: None,
        on_loaded: Callable[[LoadSettings, Loaded], None] = lambda settings, loaded: None,
        on_session: Callable[[str], None] = lambda told: None,
    ) -> None:
        self.totals = Totals()
        self.board = Board()
        self._worker = worker
        self._loader = loader
        self._settings = settings
        self._most_waiting = most_waiting
        self._on_end = on_end
        self._on_warning = on_warning
        self._on_loaded = on_loaded
        self.on_session = on_session
        self._changed = threading.Condition()  # guards all below
        self._waiting: deque[QueuedJob] = deque()
        self._current: QueuedJob | None = None
        self._generating: QueuedJob | None = None
        self._is_closed = False
        self._is_aborted = False
        self._seconds = 1.0  # that an answer took lately
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        """Return how many jobs wait for their turn."""
        return len(self._waiting)

    def n_before(self, job: QueuedJob) -> int:
        """Return how many jobs end before a job's turn comes: 0 for the current one."""
        with self._changed:
            return self._waiting.index(job) + (self._current is not None) if job in self._waiting else 0

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being made."""
        return self._current is not None

    def submit(self, *work: Work, settings: LoadSettings | None = None, is_limited: bool = True) -> list[QueuedJob]:
        """Put work of a pair into the queue, all or nothing; raises Refusal where that is full or closed.

        For coroutines. Work that comes together takes one place of `most_waiting`; what is not limited takes none. That
        is a round of an edge, one pass. It goes before whole answers: an edge's text would wait for them many times.
        """
        jobs = [QueuedJob(each, settings or self._settings, asyncio.get_running_loop()) for each in work]
        with self._changed:
            if self._is_closed:
                raise Refusal(503, LEAVING)
            if is_limited and len(self._waiting) + (self._current is not None) > self._most_waiting:
                waiting = counted(len(self._waiting), "request")
                told = f"the queue is full ({waiting}): localspec serve --queue N takes more"
                seconds = min(LONGEST_WAIT, max(1, round(self._seconds)))
                raise Refusal(429, told, code="queue_full", headers={"Retry-After": str(seconds)})
            at = len(self._waiting)
            if not is_limited:
                at = next((i for i, job in enumerate(self._waiting) if isinstance(job.work, Request)), at)
            for i, job in enumerate(jobs):
                self._waiting.insert(at + i, job)
            self._changed.notify()
        return jobs

    def stop(self, job: QueuedJob) -> None:
        """Take a job out of the queue, or stop its answer; harmless for one that has ended."""
        with self._changed:
            job.is_stopped = True
            with contextlib.suppress(ValueError):
                self._waiting.remove(job)
            if self._generating is job:
                self._worker.cancel()

    def close(self) -> None:
        """Take no more jobs, and refuse those that wait; the answer that is being made goes on."""
        with self._changed:
            self._is_closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify()
        for job in waiting:
            job.tell(Refusal(503, LEAVING))

    def abort(self) -> None:
        """Close, and stop the answer that is being made: its client is told. Does not wait."""
        self.close()
        with self._changed:
            self._is_aborted = True
            self._worker.cancel()

    def end(self, patience: float) -> None:
        """Abort, and wait until the thread is done, `patience` seconds at most."""
        self.abort()
        self._thread.join(patience)

    def _next(self) -> QueuedJob | None:
        """Return the next job when there is one, None once the queue is closed."""
        with self._changed:
            self._current = self._generating = None
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            self._current = self._waiting.popleft()
            return self._current

    def _run(self) -> None:
        while (job := self._next()) is not None:
            began = time.monotonic()
            is_answer = isinstance(job.work, Request)
            last: Finished | Refusal | None = None  # told when the figures hold it: the client may ask for them next
            if is_answer:
                self.board.begin(job.stats)
            try:
                for event in self._answer(job):
                    job.stats.observe(event)
                    self.board.observe(event)
                    if isinstance(event, Warned):
                        self._on_warning(event)
                    elif isinstance(event, Loaded):
                        self._on_loaded(job.settings, event)
                    if isinstance(event, Finished):
                        last = event
                    else:
                        job.tell(event)
            except Refusal as refusal:
                last = refusal
            except LocalspecError as error:
                told = refused(error, job.settings)
                if told.status >= 500:  # nothing that the client did
                    self._on_warning(Warned("engine", error.message))
                last = told
            except Exception as error:  # the thread is to serve the next one
                bug = f"unexpected {type(error).__name__}: {error}"
                self._on_warning(Warned("bug", bug))
                last = refused(InternalError(bug, hint="report this"), job.settings)
            if is_answer:
                self.board.end()
                self._seconds += 0.3 * (time.monotonic() - began - self._seconds)
                self.totals.add(job.stats)
                self._on_end(job.stats)
            if last is not None:
                job.tell(last)

    def _answer(self, job: QueuedJob) -> Iterator[Event]:
        """Load the pair if it is not loaded, and answer; the last event is Finished."""
        try:
            yield from self._loader.ready(job.settings, lambda: self._is_aborted)
        except LocalspecError as error:
            self._on_warning(Warned("engine", error.message))
            raise refused(error, job.settings, is_ours=True) from error
        if self._loader.held is not None:  # loaded for an earlier answer, perhaps
            job.stats.observe(self._loader.held)
        if isinstance(job.work, Request):
            self._loader.prepare(job.work)
        with self._changed:
            if job.is_stopped or self._is_aborted:
                raise Refusal(503, LEAVING)
            self._generating = job
            work, worker = job.work, self._worker
            events = worker.start(Generate(work) if isinstance(work, Request) else work)
            # A cancel from here on means this request.
        yield from events


@dataclass(slots=True)
class Totals:
    """Sums over all answers. Only the thread of the engine adds to them."""

    answers: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    predicted_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    passes: int = 0
    prompt_seconds: float = 0.0
    predicted_seconds: float = 0.0

    def add(self, stats: Stats) -> None:
        """Take the figures of a request that has ended; one that was stopped counts with the tokens it got."""
        if stats.finished is None:
            self.failures += 1
        else:
            self.answers += 1
        if stats.prefilled is not None:
            self.prompt_tokens += stats.prefilled.prompt_n
            self.cached_tokens += stats.prefilled.cache_n
            self.prompt_seconds += stats.prefilled.ms / 1e3
        self.predicted_tokens += stats.emitted
        self.drafted_tokens += stats.drafted
        self.accepted_tokens += stats.accepted
        self.passes += stats.passes
        self.predicted_seconds += stats.decode_ms / 1e3

    def text(self, *, waiting: int, is_busy: bool) -> str:
        """Return the counters, and how full the queue is, in Prometheus's format."""
        lines = []
        for name, value in asdict(self).items():
            lines += [f"# TYPE localspec_{name}_total counter", f"localspec_{name}_total {value:.10g}"]
        for name, value in (("requests_waiting", waiting), ("requests_answered_now", int(is_busy))):
            lines += [f"# TYPE localspec_{name} gauge", f"localspec_{name} {value}"]
        return "\n".join(lines) + "\n"
