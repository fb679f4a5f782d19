"""The child process: loads a pair, answers with it, writes events. `localspec.worker.client` starts it.

Invariants: only the main thread touches the pair and writes events; the watching thread sets the cancel flag while
the main thread decodes, and ends the process when its parent is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from localspec import __version__
from localspec.backends.binding import Binding
from localspec.engine.events import Event, EventsThen, Failed, Finished, Inspected, Loaded
from localspec.errors import IncompatibleError, InternalError, LocalspecError, NotFoundError, ResourceError
from localspec.settings.jobs import Generate, Load, PairJob, RankQuestion, SurveyRequest, TextQuestion, VerifyRound
from localspec.settings.request import LoadSettings
from localspec.worker.codec import JSON, CodecError, event_line, job_of, kinds

if TYPE_CHECKING:
    from localspec.session.loaded_pair import LoadedPair
    from localspec.session.pair_jobs import Verifying

JOBS = kinds(PairJob)
SELDOM = 0.2  # seconds between two reports of how far a prompt is
GRACE = 1.0  # seconds between the parent's end and ours
LONGEST_WRITING = 60.0  # seconds that writing may take then
PR_SET_PDEATHSIG = 1


class CancelFlag:
    """True while the request at hand is one that was cancelled. Numbers only grow, so no cancel is lost or kept."""

    def __init__(self) -> None:
        self.current = 0  # written by the main thread
        self.cancelled = 0  # written by the watching thread

    def __call__(self) -> bool:
        return self.cancelled >= self.current


class JobServer:
    """Runs one command after another on one pair at a time."""

    def __init__(self, events: int, cancel: CancelFlag) -> None:
        self._events = events
        self._cancel = cancel
        self._pair: LoadedPair | None = None
        self._verifying: Verifying | None = None  # the edges of that pair, once one came
        self._binding = Binding()
        self._told_at = 0.0
        self.is_writing = False  # what was left for idle time

    def serve(self, command: dict[str, Any]) -> None:
        """Run one command to its end and write its events; the last is Loaded, Finished, Inspected or Failed."""
        sequence = self._cancel.current = int(command["seq"])
        started = time.monotonic()
        is_over = False
        try:
            for event in self._done(command):
                is_over = isinstance(event, Loaded | Finished | Inspected | Failed)
                self.write(sequence, event)
            if not is_over:
                raise InternalError("The engine stopped without saying why", hint="report this")
        except BrokenPipeError:
            raise
        except Exception as error:
            if not is_over:
                self.write(sequence, self._last_event(error, 1e3 * (time.monotonic() - started)))

    def idle(self, is_asked: Callable[[], bool]) -> None:
        """Let the pair do what can wait, until somebody asks for anything; a failure is told in the log alone."""
        self.is_writing = True
        try:
            if self._pair is not None:
                self._pair.idle(is_asked)
        except Exception as error:
            with contextlib.suppress(OSError):
                traceback.print_exception(error)
        finally:
            self.is_writing = False

    def write(self, sequence: int, event: Event) -> None:
        self._write(event_line(event, sequence))

    def begin(self) -> None:
        """Say that jobs are taken now, and by which version."""
        self._write(JSON({"seq": 0, "type": "ready", "version": __version__}).encode("ascii") + b"\n")

    def _write(self, line: bytes) -> None:
        """Write one line; waits while the parent does not read, and raises BrokenPipeError when it is gone."""
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._events, rest) :]

    def close(self) -> None:
        if self._pair is not None:
            self._pair.close()
            self._pair = self._verifying = None

    def _done(self, command: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a job; raises InternalError for what is none."""
        try:
            job: PairJob = job_of(command, JOBS)
        except CodecError as error:
            reason = f"localspec {__version__} in the engine's process cannot take this job: {error}"
            raise InternalError(reason, hint="start localspec again; if this stays, report it") from None
        if isinstance(job, Load):
            yield from self._load(job.settings)
            return
        pair = self._loaded()
        if pair.remote is not None and not isinstance(job, Generate | TextQuestion):
            told = "this needs the target's own rows, which stay with its verifier"
            raise IncompatibleError(told, hint="Ask on that machine, or leave out --verifier.")
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

                yield Inspected(answer(job, pair.target.model, pair.tokenised))
            case RankQuestion():
                from localspec.ranking.question import ranked

                target, prompt = pair.target, pair.tokenised(job.request).tokens
                mark = target.facts().fingerprint
                yield Inspected(ranked(job, target.model, mark, target.backend, prompt, pair.cancel))
            case VerifyRound():
                from localspec.session.pair_jobs import Verifying

                self._verifying = self._verifying or Verifying(pair)
                yield Inspected(self._verifying.answer(job))
            case _:
                yield from pair.inspect(job)

    def _load(self, settings: LoadSettings) -> Iterator[Event]:
        self.close()
        with self._binding.loading(settings.threads):
            load = _load_function()
        self._pair = yield from load(settings, self._cancel, tell=self._tell)
        self._binding.hold(self._pair.threads)

    def _tell(self, event: Event) -> None:
        """Write an event from within a call that lasts, but no oftener than is looked at."""
        now = time.monotonic()
        if now - self._told_at >= SELDOM:
            self._told_at = now
            with contextlib.suppress(BrokenPipeError):  # the next event finds that too, and not within llama.cpp
                self.write(self._cancel.current, event)

    def _loaded(self) -> LoadedPair:
        """Return the pair; raise InternalError before one is loaded."""
        if self._pair is None:
            raise InternalError("No model is loaded", hint="report this")
        return self._pair

    def _last_event(self, error: Exception, wall_ms: float) -> Event:
        """Return the event that ends a request which raised `error`."""
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


def main(arguments: list[str]) -> None:
    """Serve until the end of the commands. Arguments: the numbers of commands, control and events, `--bound`."""
    commands, control, events = map(int, arguments[:3])
    _settle("--bound" in arguments[3:], (commands, control, events))
    cancel = CancelFlag()
    server = JobServer(events, cancel)
    threading.Thread(target=_watch, args=(control, cancel, server), daemon=True, name="watch").start()
    with contextlib.suppress(BrokenPipeError):
        server.begin()
        _prepare()
        with open(commands, "rb") as lines:
            waiting = select.poll()
            waiting.register(lines, select.POLLIN)
            for line in lines:
                server.serve(json.loads(line))
                server.idle(lambda: any(event & select.POLLIN for _, event in waiting.poll(0)))
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


def _watch(control: int, cancel: CancelFlag, server: JobServer) -> None:
    """Set the cancel flag for each number on `control`; at its end stop everything, and the process soon after.

    What is being written is written to its end, within what the client waits for.
    """
    with contextlib.suppress(OSError, ValueError), open(control, "rb") as lines:
        for line in lines:
            cancel.cancelled = max(cancel.cancelled, int(line))
    cancel.cancelled = sys.maxsize
    time.sleep(GRACE)
    ends = time.monotonic() + LONGEST_WRITING
    while server.is_writing and time.monotonic() < ends:
        time.sleep(GRACE / 20)
    os._exit(0)


def _prepare() -> None:
    """Import what every load needs but llama.cpp, whose threads are bound as the job says. It comes meanwhile."""
    with contextlib.suppress(Exception):  # the load meets it again, and tells it
        import localspec.engine.loop
        import localspec.models.pairs
        import localspec.speculation.resolve  # noqa: F401 - for the load


def _load_function() -> Callable[..., EventsThen[LoadedPair]]:
    """Import `load`, and with it llama.cpp. Raises NotFoundError where that is not installed or cannot be loaded."""
    try:
        from localspec.session.loading import load
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, ImportError) and str(error.name).startswith("localspec"):
            raise  # our own mistake
        hint = "localspec doctor, which prints the command that installs it again"
        raise NotFoundError(f"llama.cpp cannot be loaded: {error}", hint=hint) from error
    _echo_log()
    return load


def _echo_log() -> None:
    """Let llama.cpp's log reach ours."""
    from localspec.backends.lib import LOG

    LOG.echo()


if __name__ == "__main__":
    main(sys.argv[1:])
