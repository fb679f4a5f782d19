"""The child process: loads a pair, answers with it, writes events. `localspec.worker.client` starts it.

Invariants: only the main thread touches the pair. A thread that reads jobs answers questions about texts meanwhile,
which need the vocabulary alone. A watching thread takes cancels, and ends the process when its parent is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from localspec import __version__
from localspec.backends.binding import Binding
from localspec.engine.events import Event, EventsThen, Failed, Finished, Inspected, Loaded
from localspec.errors import IncompatibleError, InternalError, LocalspecError, NotFoundError, ResourceError
from localspec.settings.jobs import Generate, Load, PairJob, RankQuestion, SurveyRequest, TextQuestion, VerifyRound
from localspec.settings.request import LoadSettings
from localspec.worker.codec import JSON, CodecError, event_line, job_of, kinds

if TYPE_CHECKING:
    from localspec.backends.passes import Passes
    from localspec.session.loaded_pair import LoadedPair
    from localspec.session.pair_jobs import Verifying

JOBS = kinds(PairJob)
SELDOM = 0.2  # seconds between two reports of how far a prompt is
GRACE = 1.0  # seconds between the parent's end and ours
LONGEST_WRITING = 60.0  # seconds that writing may take then
PR_SET_PDEATHSIG = 1
ALL = -1  # in place of the number of a job


class CancelFlag:
    """True while the job at hand, `current`, is among those that were `cancelled`, or ALL are."""

    def __init__(self, cancelled: set[int]) -> None:
        self.current = 0
        self._cancelled = cancelled

    def __call__(self) -> bool:
        return self.current in self._cancelled or ALL in self._cancelled


class JobServer:
    """Does the jobs of one pair at a time: as many answers at once as the pair has lanes, all else alone.

    Jobs begin in the order in which they came. An edge's round goes before answers that wait, and beside those that
    run, one round at a time, where the pair has a context for it. `take`, `end` and `cancel` are for other threads than
    that of `run`.
    """

    def __init__(self, events: int) -> None:
        self._events = events
        self._writing = threading.Lock()
        self._lines = bytearray()  # events of answers, which leave before the next pass
        self._cancelled: set[int] = set()  # numbers of jobs
        self._flags = [CancelFlag(self._cancelled)]  # of the lanes
        self._pairs: dict[int, LoadedPair] = {}  # by lane, those that were needed
        self._made: Sequence[Callable[[], LoadedPair]] = ()  # by lane, what makes its pair
        self._passes: Passes | None = None  # of lanes, where there are several
        self._texts: dict[int, str] = {}  # by lane, what was asked last
        self._free: list[int] = []  # lanes without a job, the one that was used last at the end
        self._verifying: Verifying | None = None  # the edges of that pair, once one came
        self._round = CancelFlag(self._cancelled)  # of an edge, which is judged
        self._is_judging = False  # beside answers
        self._binding = Binding()
        self._told_at = 0.0
        self._waiting: deque[dict[str, Any]] = deque()
        self._changed = threading.Condition()
        self._held = threading.Lock()  # the pair stays while it is asked beside its answers
        self._is_over = False
        self.is_writing = False  # what was left for idle time

    def run(self) -> None:
        while True:
            with self._changed:
                if not self._n_running:
                    self._changed.wait_for(lambda: self._waiting or self._is_over)
                    if not self._waiting:
                        return
                job = self._next()
            if job is not None:
                self._begin(job)
            if self._passes is not None and self._n_running:
                self._passes.round(self._flush)
                self._flush()
            elif not self._waiting:
                self.idle(lambda: bool(self._waiting))

    def take(self, command: dict[str, Any]) -> None:
        """Take a job. A question about texts is answered at once, for it needs no pass."""
        if command.get("command") == "textquestion" and self._pairs:
            with self._held:
                if self._pairs:
                    self.serve(command, lane=None)
                    return
        with self._changed:
            self._waiting.append(command)
            self._changed.notify()
        if command["seq"] in self._cancelled:
            self.cancel(command["seq"])

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def cancel(self, number: int) -> None:
        """Stop a job soon; one that waits is over at once."""
        self._cancelled.add(number)
        with self._changed:
            waiting = [each for each in self._waiting if each["seq"] == number and each["command"] != "load"]
            for each in waiting:
                self._waiting.remove(each)
        for _ in waiting:
            self.write(number, Finished("interrupted", tail="", wall_ms=0.0, ttft_ms=0.0, peak_memory=0))

    @property
    def _n_running(self) -> int:
        return 0 if self._passes is None else self._passes.n_running

    def _next(self) -> dict[str, Any] | None:
        first = next(iter(self._waiting), None)
        if first is None:
            return None
        is_beside = first["command"] in ("generate", "verifyround")
        rounds = [each for each in self._waiting if each["command"] == "verifyround"]
        if is_beside and rounds and self._can_judge:
            self._waiting.remove(rounds[0])
            return rounds[0]
        can_begin = not self._n_running or (self._free and first["command"] == "generate")
        return self._waiting.popleft() if can_begin else None

    @property
    def _can_judge(self) -> bool:
        """Whether an edge's round can run beside answers now."""
        return self._passes is not None and not self._is_judging and self._loaded(0).target.backend.capabilities.is_lane

    def _begin(self, command: dict[str, Any]) -> None:
        if self._passes is not None and command["command"] == "verifyround" and self._can_judge:
            self._is_judging = True
            self._passes.start(partial(self._judge, command))
            return
        if self._passes is None or command["command"] != "generate":
            self.serve(command)
            return
        text = json.dumps(command.get("request", {}).get("messages") or command.get("request", {}).get("prompt"))
        lane = max(self._free, key=lambda each: (_alike(text, self._texts.get(each, "")), each in self._pairs))
        self._free.remove(lane)
        self._texts[lane] = text

        def answered() -> None:
            try:
                self.serve(command, lane, self._hold)
            finally:
                self._free.append(lane)

        self._passes.start(answered)

    def _judge(self, command: dict[str, Any]) -> None:
        try:
            self.serve(command, lane=None)
        finally:
            self._is_judging = False

    def serve(
        self, command: dict[str, Any], lane: int | None = 0, write: Callable[[int, Event], None] | None = None
    ) -> None:
        """Do one job to its end and write its events; the last is Loaded, Finished, Inspected or Failed.

        Without a `lane` nothing is decoded in one for it.
        """
        write = write or self.write
        sequence = int(command["seq"])
        if lane is not None:
            self._flags[lane].current = sequence
        started = time.monotonic()
        is_over = False
        try:
            for event in self._done(command, lane):
                is_over = isinstance(event, Loaded | Finished | Inspected | Failed)
                write(sequence, event)
            if not is_over:
                raise InternalError("The engine stopped without saying why", hint="report this")
        except BrokenPipeError:
            raise
        except Exception as error:
            if not is_over:
                write(sequence, self._last_event(error, 1e3 * (time.monotonic() - started)))
        finally:
            self._cancelled.discard(sequence)

    def idle(self, is_asked: Callable[[], bool]) -> None:
        """Let the pair do what can wait, until somebody asks for anything; a failure is told in the log alone."""
        self.is_writing = True
        try:
            for pair in self._pairs.values():
                pair.idle(is_asked)
        except Exception as error:
            with contextlib.suppress(OSError):
                traceback.print_exception(error)
        finally:
            self.is_writing = False

    def write(self, sequence: int, event: Event) -> None:
        self._write(event_line(event, sequence))

    def _hold(self, sequence: int, event: Event) -> None:
        """Write an event with those of the other answers: a wake of the parent costs more than all else of an event."""
        self._lines += event_line(event, sequence)

    def _flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, bytearray()
            self._write(lines)

    def begin(self) -> None:
        self._write(JSON({"seq": 0, "type": "ready", "version": __version__}).encode("ascii") + b"\n")

    def _write(self, lines: bytes | bytearray) -> None:
        """Write whole lines; waits while the parent does not read, and raises BrokenPipeError when it is gone."""
        rest = memoryview(lines)
        with self._writing:
            while rest:
                rest = rest[os.write(self._events, rest) :]

    def close(self) -> None:
        with self._held:
            pairs, self._pairs = self._pairs, {}
        for _, pair in sorted(pairs.items(), reverse=True):  # the first one has the weights
            pair.close()
        self._verifying = self._passes = None

    def _done(self, command: dict[str, Any], lane: int | None) -> Iterator[Event]:
        """Yield the events of a job; raises InternalError for what is none."""
        try:
            job: PairJob = job_of(command, JOBS)
        except CodecError as error:
            reason = f"localspec {__version__} in the engine's process cannot take this job: {error}"
            raise InternalError(reason, hint="start localspec again; if this stays, report it") from None
        if isinstance(job, Load):
            yield from self._load(job.settings)
            return
        pair = self._loaded(lane or 0)
        if pair.remote is not None and not isinstance(job, Generate | TextQuestion):
            message = "this needs the target's own rows, which stay with its verifier"
            raise IncompatibleError(message, hint="Ask on that machine, or leave out --verifier.")
        match job:
            case Generate(request) if request.reads_ahead:
                from localspec.session.pair_jobs import read_ahead

                yield from read_ahead(request, pair)
            case Generate(request):
                yield from pair.answer(request)
            case SurveyRequest():
                yield from pair.survey(job)
            case TextQuestion():
                from localspec.prompt.prompt import answer  # late: numpy

                yield Inspected(answer(job, pair.target.model, partial(pair.tokenised, is_alone=lane is not None)))
            case RankQuestion():
                from localspec.ranking.question import ranked

                pair = pair.branched()
                target, prompt = pair.target, pair.tokenised(job.request).tokens
                mark = target.facts().fingerprint
                yield Inspected(ranked(job, target.model, mark, target.backend, prompt, pair.cancel))
            case VerifyRound():
                from localspec.session.pair_jobs import Verifying

                self._round.current = int(command["seq"])
                self._verifying = self._verifying or Verifying(pair.branched(self._round))
                yield Inspected(self._verifying.answer(job))
            case _:
                yield from pair.branched().inspect(job)

    def _load(self, settings: LoadSettings) -> Iterator[Event]:
        self.close()
        with self._binding.loading(settings.threads):
            load = _load_function()
        first = self._flags[0]
        self._flags = [first, *(CancelFlag(self._cancelled) for _ in range(1, settings.parallel or 1))]
        others = [(flag, partial(self._tell, flag)) for flag in self._flags[1:]]
        beside = {"others": others} if others else {}
        pair = yield from load(settings, first, tell=partial(self._tell, first), **beside)
        made = pair.beside if others else ()
        self._passes = pair.passes if made else None
        self._made = (lambda: pair, *made)
        self._texts, self._free = {}, list(range(len(self._made)))
        self._binding.hold(pair.threads)
        self._pairs = {0: pair}

    def _tell(self, flag: CancelFlag, event: Event) -> None:
        """Write an event from within a call that lasts, but no oftener than is looked at."""
        now = time.monotonic()
        if now - self._told_at >= SELDOM:
            self._told_at = now
            with contextlib.suppress(BrokenPipeError):  # the next event finds that too, and not within llama.cpp
                self._flush()
                self.write(flag.current, event)

    def _loaded(self, lane: int) -> LoadedPair:
        """Return the pair of a lane; raise InternalError before one is loaded."""
        if not self._pairs:
            raise InternalError("No model is loaded", hint="report this")
        if lane not in self._pairs:
            self._pairs[lane] = self._made[lane]()
        return self._pairs[lane]

    def _last_event(self, error: Exception, wall_ms: float) -> Event:
        if isinstance(error, LocalspecError):
            return Failed(error.to_wire())
        from localspec.engine.protocols import Cancelled  # late: it loads numpy

        if isinstance(error, Cancelled):
            from localspec.engine.event_stream import peak_memory

            peak = peak_memory()
            return Finished(reason="interrupted", tail="", wall_ms=wall_ms, ttft_ms=0.0, peak_memory=peak)
        with contextlib.suppress(OSError):  # the log's disk may be full
            traceback.print_exception(error)
        if isinstance(error, MemoryError):
            full = ResourceError("There is not enough memory", hint="a smaller --ctx, which takes less")
            return Failed(full.to_wire())
        message = f"The engine failed unexpectedly: {type(error).__name__}: {error}"
        return Failed(InternalError(message, hint="--log-file FILE, and report what the file says").to_wire())


def _alike(text: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))


def main(arguments: list[str]) -> None:
    """Serve until the end of the commands. Arguments: the numbers of commands, control and events, `--bound`."""
    commands, control, events = map(int, arguments[:3])
    _settle("--bound" in arguments[3:], (commands, control, events))
    server = JobServer(events)
    threading.Thread(target=_watch, args=(control, server), daemon=True, name="watch").start()
    with contextlib.suppress(BrokenPipeError):
        server.begin()
        _prepare()
        threading.Thread(target=_read, args=(commands, server), daemon=True, name="read").start()
        server.run()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    # The system frees faster than llama.cpp does, and destructors of GPU libraries crash in the wrong order.
    os._exit(0)


def _settle(is_bound: bool, pipes: tuple[int, ...]) -> None:
    """Make this process a quiet child: no core files, no Ctrl-C, and none of our pipes in processes of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(all_threads=False)  # the log then says in which call a crash happened
    for fd in pipes:
        os.set_inheritable(fd, False)
    if is_bound and sys.platform == "linux":
        # Should the end of file go unseen because native code holds the interpreter.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _read(commands: int, server: JobServer) -> None:
    with contextlib.suppress(OSError), open(commands, "rb") as lines:
        for line in lines:
            server.take(json.loads(line))
    server.end()


def _watch(control: int, server: JobServer) -> None:
    """Cancel each job whose number comes on `control`; at its end stop everything, and the process soon after.

    What is being written is written to its end, within what the client waits for.
    """
    with contextlib.suppress(OSError, ValueError), open(control, "rb") as lines:
        for line in lines:
            server.cancel(int(line))
    server.cancel(ALL)
    time.sleep(GRACE)
    ends = time.monotonic() + LONGEST_WRITING
    while server.is_writing and time.monotonic() < ends:
        time.sleep(GRACE / 20)
    os._exit(0)


def _prepare() -> None:
    """Import what every load needs but llama.cpp, whose threads are bound as the job says. It comes meanwhile."""
    with contextlib.suppress(Exception):  # the load meets it again, and tells it
        import localspec.engine.loop
        import localspec.models.pair_check
        import localspec.speculation.resolve  # noqa: F401 - for the load


def _load_function() -> Callable[..., EventsThen[LoadedPair]]:
    """Import `load`, and with it llama.cpp. Raises NotFoundError where that is not installed or cannot be loaded."""
    try:
        from localspec.backends.lib import LOG
        from localspec.session.loading import load
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, ImportError) and str(error.name).startswith("localspec"):
            raise  # our own mistake
        hint = "localspec doctor, which prints the command that installs it again"
        raise NotFoundError(f"llama.cpp cannot be loaded: {error}", hint=hint) from error
    LOG.echo()
    return load


if __name__ == "__main__":
    main(sys.argv[1:])
