"""The engine of a server: jobs of many clients, those of a pair in the order in which they came.

As many pairs are in memory as fit, each in a process of its own. One that does not fit takes the place of the one that
was asked least lately. A client that leaves takes its place in the queue along, or stops the answer within a pass. An
engine that dies costs the answer that it was writing; it is loaded again for the next one, and no client can stop that.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass

from localspec.chat.pair_loader import ChatWorker, PairLoader
from localspec.engine.events import Committed, Event, Finished, Inspected, Loaded, Prefilled, Waiting, Warned
from localspec.errors import LocalspecError, WorkerDiedError
from localspec.server.own import Board
from localspec.server.refusal import Refusal, refused
from localspec.settings.jobs import Generate, LoadedJob, TextQuestion, VerifyRound
from localspec.settings.request import LoadSettings, Request
from localspec.settings.sizes import counted
from localspec.ui.stats import Stats
from localspec.worker.job_queue import Job, JobQueue
from localspec.worker.keep_policy import fits

Work = Request | LoadedJob
LONGEST_WAIT = 60  # seconds that a client is told to wait, at most
LEAVING = "the server is shutting down"


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class QueuedJob(Job):
    """One request of a pair on its way. `stats` are of the events that the engine has told so far."""

    def __init__(self, work: Work, settings: LoadSettings, engine: ServerEngine) -> None:
        self.work = work
        self.settings = settings
        self.stats = Stats()
        self.is_long = isinstance(work, Request)
        self.goes_first = isinstance(work, VerifyRound)
        self.is_loading = True  # the pair was not there yet
        self._engine = engine
        self._before = 0  # as it was told
        self._began = 0.0
        self.process: PairProcess  # that does it
        self.stop: Callable[[], None] = lambda: None  # what runs
        self._last: Finished | None = None  # told when the figures hold it: the client may ask for them next
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[Event | Exception] = asyncio.Queue()

    def run(self) -> Iterator[Event]:
        """Load the pair if it is not loaded, and answer; the last event is Finished or Inspected."""
        self._began = time.monotonic()
        yield from self._engine.answered(self, self.process)

    def observe(self, event: Event) -> None:
        self.stats.observe(event)
        self._engine.observe(self, event)
        if isinstance(event, Finished):
            self._last = event
        else:
            self.tell(event)

    def end(self, error: LocalspecError | None) -> None:
        if self._began:
            self._engine.note_end(self, error, time.monotonic() - self._began)
        self.tell(error or self._last or Finished("interrupted", "", 0.0, 0.0, 0))

    def move(self, before: int) -> None:
        if before and before != self._before:  # none before it: it begins
            self._before = before
            self.tell(Waiting(before))

    def tell(self, news: Event | Exception) -> None:
        """Hand on an event, or why there are no more. For any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads
            self._loop.call_soon_threadsafe(self._news.put_nowait, news)

    async def news(self, patience: float) -> AsyncIterator[Event | None]:
        """Yield the events up to the last, and None wherever nothing came for `patience` seconds.

        Raises the LocalspecError of an answer that failed, ClientGoneError if its client has left.
        """
        while True:
            try:
                news = await asyncio.wait_for(self._news.get(), patience)
            except TimeoutError:
                yield None
                continue
            if isinstance(news, Exception):
                raise news
            yield news
            if isinstance(news, Finished | Inspected):
                return

    async def events(self, patience: float) -> AsyncIterator[Event | None]:
        """Yield as `news` does; raises Refusal where the answer ends without being complete."""
        try:
            async for event in self.news(patience):
                if isinstance(event, Finished) and event.reason == "interrupted":
                    raise Refusal(503, LEAVING)
                yield event
        except LocalspecError as error:
            raise refused(error, self.settings, is_ours=self.is_loading) from error


class PairProcess:
    """A worker that holds one pair at a time, and the jobs for it. `settings` are of the pair that it is to hold."""

    def __init__(self, worker: ChatWorker, loader: PairLoader, settings: LoadSettings, parallel: int) -> None:
        self.worker, self.loader, self.settings = worker, loader, settings
        self.queue = JobQueue(lambda job: job.stop() if isinstance(job, QueuedJob) else None, parallel)
        self.used_at = 0  # as a number that grows with each job
        self._changed = threading.Condition()
        self._n_asking = 0  # jobs that ask the loaded pair
        self._is_loading = False

    @property
    def is_idle(self) -> bool:
        return not self.queue.running and not self.queue.n_waiting

    def hold(self, settings: LoadSettings, number: int) -> PairProcess:
        self.settings, self.used_at = settings, number
        return self

    def holding(self, settings: LoadSettings, is_stopped: Callable[[], bool]) -> Iterator[Event]:
        """Yield the events of a load where the pair is not loaded; no job asks meanwhile. `release` follows."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_loading and (self._n_asking == 0 or self.loader.has(settings)))
            self._n_asking += 1
            self._is_loading = not self.loader.has(settings)
        try:
            yield from self.loader.ready(settings, is_stopped)
        finally:
            with self._changed:
                self._is_loading = False
                self._changed.notify_all()

    def release(self) -> None:
        with self._changed:
            self._n_asking -= 1
            self._changed.notify_all()


class ServerEngine:
    """Answers jobs, of the pair of `settings` where they name none. `another` makes the worker of a further pair.

    `most_waiting` may wait besides the one that is answered; `on_end` is told of each that ended, `on_loaded` of each
    pair that was loaded, `on_session` of sessions of edges, in words, and `on_death` of a death for which nobody waits.

    Invariant: only a thread of the queue asks the worker for something, and only jobs that it has begun are cancelled.
    """

    def __init__(
        self,
        worker: ChatWorker,
        loader: PairLoader,
        settings: LoadSettings,
        *,
        most_waiting: int,
        on_end: Callable[[Stats], None] = lambda stats: None,
        on_warning: Callable[[Warned], None] = lambda warned: None,
        on_loaded: Callable[[LoadSettings, Loaded], None] = lambda settings, loaded: None,
        on_session: Callable[[str], None] = lambda told: None,
        on_death: Callable[[LocalspecError], None] = lambda error: None,
        another: Callable[[], ChatWorker] | None = None,
    ) -> None:
        self.totals = Totals()
        self.board = Board()
        self._parallel = settings.parallel or 1
        self._processes = [PairProcess(worker, loader, settings, self._parallel)]
        self._another = another
        self._settings = settings
        self._most_waiting = most_waiting
        self._on_end = on_end
        self._on_warning = on_warning
        self._on_loaded = on_loaded
        self._on_death = on_death
        self.on_session = on_session
        self._on_close: Callable[[LocalspecError | None], None] = lambda error: None
        self.n_cached = 0  # tokens that the cache holds
        self.is_aborted = False
        self._seconds = 1.0  # that an answer took lately
        self._n_jobs = 0
        self._busy = BusyTime()
        self._counting = threading.Lock()  # for the figures, which several threads write

    @property
    def n_waiting(self) -> int:
        return sum(each.queue.n_waiting for each in self._processes)

    def n_before(self, job: QueuedJob) -> int:
        """Return how many jobs end before a job's turn comes: 0 for the current one."""
        return job.process.queue.place(job)

    @property
    def n_answering(self) -> int:
        return sum(len(each.queue.running) for each in self._processes)

    @property
    def is_busy(self) -> bool:
        return self.n_answering > 0

    @property
    def is_closed(self) -> bool:
        return self._processes[0].queue.is_closed

    def holds(self, settings: LoadSettings) -> bool:
        return any(each.loader.has(settings) for each in self._processes)

    def submit(self, *work: Work, settings: LoadSettings | None = None, is_limited: bool = True) -> list[QueuedJob]:
        """Put work of a pair into the queue, all or nothing; raises Refusal where that is full or closed.

        For coroutines. Work that comes together takes one place of `most_waiting`; what is not limited takes none. A
        round of an edge is one pass, and goes before whole answers: an edge's text would wait for them many times.
        Beside several answers it waits for none. A question of a text takes no pass, and waits for nobody once the pair
        is loaded.
        """
        pair = settings or self._settings
        jobs = [QueuedJob(each, pair, self) for each in work]
        process = self._process(pair)
        queue = process.queue
        n_waiting = queue.n_waiting + min(len(queue.running), self._parallel) - self._parallel
        if is_limited and n_waiting >= self._most_waiting and not queue.is_closed:
            waiting = counted(queue.n_waiting, "request")
            message = f"the queue is full ({waiting}): localspec serve --queue N takes more"
            seconds = min(LONGEST_WAIT, max(1, round(self._seconds)))
            raise Refusal(429, message, code="queue_full", headers={"Retry-After": str(seconds)})
        for job in jobs:
            job.process = process
        kinds = TextQuestion | VerifyRound if self._parallel > 1 else TextQuestion
        at_once = process.loader.has(pair) and all(isinstance(job.work, kinds) for job in jobs)
        if not (queue.submit_beside(jobs) if at_once else queue.submit(jobs)):
            raise Refusal(503, LEAVING)
        return jobs

    def _process(self, settings: LoadSettings) -> PairProcess:
        """Return the process for a pair: the one that has it, a new one where memory holds it too, else an idle one."""
        self._n_jobs += 1
        processes = self._processes
        process = next((each for each in processes if each.settings == settings), None)
        if process is None and self._another is not None and not self.is_closed and self._fits(settings):
            worker = self._another()
            process = PairProcess(worker, PairLoader(worker), settings, self._parallel)
            processes.append(process)
        if process is None:
            process = min(processes, key=lambda each: (not each.is_idle, each.used_at))
        return process.hold(settings, self._n_jobs)

    def _fits(self, settings: LoadSettings) -> bool:
        """Whether memory holds one more pair. That of a GPU is planned for one."""
        held = [each.loader.held for each in self._processes]
        models = [
            model for each in held if each is not None for model in (each.target, each.draft) if model is not None
        ]
        return fits(settings) and all(device == "CPU" for model in models for device in model.devices)

    def stop(self, job: QueuedJob) -> None:
        """Take a job out of the queue, or stop its answer; harmless for one that has ended."""
        job.process.queue.cancel(job)

    def submit_job(self, job: Job) -> None:
        self._processes[0].queue.submit([job])

    def tell_close(self, tell: Callable[[LocalspecError | None], None]) -> None:
        self._on_close = tell

    def close(self, error: LocalspecError | None = None) -> None:
        """Take no more jobs, and end those that wait, by `error`; the answer that is being made goes on."""
        if not self.is_closed:
            self._on_close(error)
        for process in self._processes:
            for job in process.queue.close():
                job.end(error)

    def join(self, patience: float) -> None:
        """Wait until nothing runs in a closed queue, `patience` seconds at most; then only the first worker is left."""
        for process in self._processes:
            process.queue.join(patience)
        for process in self._processes[1:]:
            process.worker.close()

    def abort(self) -> None:
        """Close, and stop the answer that is being made: its client is told. Does not wait."""
        self.close()
        self.is_aborted = True
        for process in self._processes:
            process.worker.cancel()

    def end(self, patience: float) -> None:
        self.abort()
        self.join(patience)

    def answered(self, job: QueuedJob, process: PairProcess) -> Iterator[Event]:
        if job.is_long:
            self.board.begin(job.stats)
            with self._counting:
                self._busy.begin(time.monotonic())
        try:
            yield from self._asked(job, process)
        finally:
            process.release()
            if job.is_long:
                with self._counting:
                    self.totals.busy_seconds = self._busy.end(time.monotonic())

    def _asked(self, job: QueuedJob, process: PairProcess) -> Iterator[Event]:
        loader, worker = process.loader, process.worker
        try:
            yield from process.holding(job.settings, lambda: self.is_aborted)
        except LocalspecError as error:
            self._on_warning(Warned("engine", error.message))
            raise
        job.is_loading = False
        if loader.held is not None:  # loaded for an earlier answer, perhaps
            job.stats.observe(loader.held)
            self._on_loaded(job.settings, loader.held)
        work = Generate(job.work) if isinstance(job.work, Request) else job.work
        if isinstance(work, Generate):
            loader.prepare(work.request)
        if job.is_cancelled or self.is_aborted:
            return
        events = worker.start(work)
        job.stop = getattr(events, "cancel", worker.cancel)
        if job.is_cancelled or self.is_aborted:  # meanwhile: a cancel from here on means this request
            job.stop()
        try:
            yield from events
        finally:
            job.stop = lambda: None

    def observe(self, job: QueuedJob, event: Event) -> None:
        self.board.observe(job.stats, event)
        if isinstance(event, Prefilled):
            self.n_cached = event.prompt_n
        elif isinstance(event, Committed):
            self.n_cached += len(event.out)
        elif isinstance(event, Warned):
            self._on_warning(event)
        elif isinstance(event, Loaded):
            self._on_loaded(job.settings, event)

    def note_end(self, job: QueuedJob, error: LocalspecError | None, seconds: float) -> None:
        if error is not None and not job.is_loading and refused(error).status >= 500:  # nothing that the client did
            self._on_warning(Warned("engine", error.message))
        if isinstance(error, WorkerDiedError) and not self.n_waiting:
            self._on_death(error)
        if job.is_long:
            with self._counting:
                self.board.end(job.stats)
                self._seconds += 0.3 * (seconds - self._seconds)
                self.totals.add(job.stats, seconds)
                self._on_end(job.stats)


class BusyTime:
    """The time in which at least one of several things that overlap is done. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._n, self._since, self._seconds = 0, 0.0, 0.0

    def begin(self, now: float) -> None:
        if not self._n:
            self._since = now
        self._n += 1

    def end(self, now: float) -> float:
        self._n -= 1
        if not self._n:
            self._seconds += now - self._since
            return self._seconds
        return self._seconds + now - self._since


@dataclass(slots=True)
class Totals:
    """Sums over all answers. `answer_seconds` are those of each; `busy_seconds` those in which any was made."""

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
    first_token_seconds: float = 0.0
    answer_seconds: float = 0.0
    busy_seconds: float = 0.0

    def add(self, stats: Stats, seconds: float) -> None:
        """Take the figures of a request that took so long; one that was stopped counts with the tokens it got."""
        if stats.finished is None:
            self.failures += 1
        else:
            self.answers += 1
            self.first_token_seconds += stats.finished.ttft_ms / 1e3
            self.answer_seconds += seconds
        if stats.prefilled is not None:
            self.prompt_tokens += stats.prefilled.prompt_n
            self.cached_tokens += stats.prefilled.cache_n
            self.prompt_seconds += stats.prefilled.ms / 1e3
        self.predicted_tokens += stats.emitted
        self.drafted_tokens += stats.drafted
        self.accepted_tokens += stats.accepted
        self.passes += stats.passes
        self.predicted_seconds += stats.decode_ms / 1e3

    def rates(self) -> dict[str, float | None]:
        n = self.answers or math.nan
        figures = {
            "tok_per_s": self.predicted_tokens / (self.busy_seconds or math.nan),
            "seconds": self.answer_seconds / n,
            "first_token_s": self.first_token_seconds / n,
        }
        return {name: None if math.isnan(value) else value for name, value in figures.items()}

    def text(self, *, waiting: int, answering: int) -> str:
        lines = []
        for name, value in asdict(self).items():
            lines += [f"# TYPE localspec_{name}_total counter", f"localspec_{name}_total {value:.10g}"]
        for name, value in (("requests_waiting", waiting), ("requests_answered_now", answering)):
            lines += [f"# TYPE localspec_{name} gauge", f"localspec_{name} {value}"]
        return "\n".join(lines) + "\n"
