"""The engine in a child process, so that a native abort never takes the terminal with it.

`Worker` is what every face uses: it starts `localspec.worker.main`, sends it commands and yields the events it answers
with. Nothing native is imported here. Invariants: a child that dies, hangs at its start or speaks nonsense ends in one
`WorkerDiedError`, and no call waits for ever on a child that was told to stop.

Three pipes: `commands` (JSON lines), `control` (a job's number per line: stop that one; end of file: the parent is
gone) and `events` (JSON lines that carry the job's number). Cancelling has a pipe of its own because a signal handler
may run in the middle of a long write to `commands`, whose line it must not break.

Several jobs may run at once. Whoever waits for an event of its own reads the pipe, and puts lines of other jobs where
these look first: no thread is needed for it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec import __version__
from localspec.engine.closing import Closing
from localspec.engine.events import Event, Failed, Finished, Inspected, Loaded, Loading, Prefilled, Started
from localspec.errors import EngineStoppedError, InternalError, LocalspecError, WorkerDiedError, tells_out_of_memory
from localspec.sanitize import one_line
from localspec.settings.jobs import Generate, Load, LoadedJob, PairJob, SurveyRequest
from localspec.settings.request import LoadSettings, Request
from localspec.worker.process import CRASH, Child, Log, ProtocolError, last_lines

# Until an event says more.
_DOING: dict[type[PairJob], str] = {Load: "loading", Generate: "reading the prompt", SurveyRequest: "timing passes"}
REPORT = "--log-file FILE, and report what the file says"
LOG_LINES = 20  # of a log, which an error brings along
_EXIT_REASONS = {
    "SIGTERM": ("was stopped, by localspec stop or by SIGTERM,", "the same again"),
    "SIGKILL": (
        "was killed (SIGKILL), often because memory ran out",
        "if memory ran out: {}a smaller --ctx or a smaller model",
    ),
    "SIGSEGV": ("crashed (SIGSEGV)", REPORT),
    "SIGBUS": ("crashed (SIGBUS): the model file may have changed or its disk failed", REPORT),
    "SIGABRT": ("aborted (SIGABRT)", REPORT),
    "SIGILL": (
        "met an instruction this processor lacks (SIGILL): llama.cpp was built for another one",
        "localspec doctor, which prints the command that builds it for this one",
    ),
}
_SMALLER = "a smaller quantisation of the model"  # of what is killed while it loads
_RPC = ("Remote RPC server crashed", "Failed to connect to", "RPC handshake failed")  # ggml's words before it aborts
_RPC_FATE = (
    "lost an RPC server (it ended, or the network did)",
    "localspec doctor --rpc HOST:PORT,... shows which servers answer",
)
# Loading found the memory there; another program may have taken it since, and the first long prompt wants more.
_MEMORY_FATE = (
    "ran out of memory (SIGABRT; a GPU's, if it uses one)",
    "--gpu N with fewer layers, {}a smaller --ctx or a smaller model",
)

# Seconds between looks at an answer's tokens: what comes faster than an eye can tell is read together. To wake a
# process for each takes from the passes, whose threads have every processor: 1 to 2 % of a pass of 20 ms.
FRAME = 1 / 30
SLOW_DISK = 50e6  # bytes a second
TALKING = 6  # times the patience with a cancelled answer that is silent: with one that still comes


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait: for a new child's first word, for a cancelled answer to end, for a closed child to leave."""

    start: float = 30.0
    cancel: float = 10.0
    close: float = 1.0


class _Job:
    """What the client knows of a job that the child does."""

    def __init__(self, child: Child, sequence: int, job: PairJob) -> None:
        self.sequence = sequence
        self.child = child
        self.is_load = isinstance(job, Load)
        self.begins = _DOING.get(type(job), "checking")
        self.doing = self.begins if child.is_ready else "starting"
        self.lines: deque[dict[str, Any]] = deque()  # that another job's reader found
        self.started = time.monotonic()
        self.is_cancelled = False
        self.cancelled_at = 0.0

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.cancelled_at = time.monotonic()  # first: a reader in another thread looks at it once it is cancelled
            self.is_cancelled = True
        self.child.cancel(self.sequence)


class Running:
    """The events of a job until its last, for one thread. Closed or dropped before that, the job is cancelled."""

    def __init__(self, worker: Worker, job: _Job) -> None:
        self._worker = worker
        self._job = job
        self._events = worker._events(job)

    def __iter__(self) -> Running:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def cancel(self) -> None:
        """Ask the child to stop soon; harmless afterwards. Safe in threads and signal handlers."""
        self._job.cancel()

    def close(self) -> None:
        self._events.close()
        self._worker._leave(self._job)  # a generator that was not begun runs no `finally`

    def __del__(self) -> None:
        self.close()


class Worker(Closing):
    """One child process that holds the models and does jobs; `cancel` may come from anywhere.

    `command` replaces the child's command line; the numbers of its three pipes are appended to it.
    """

    def __init__(
        self, *, command: Sequence[str] | None = None, log_file: Path | None = None, timeouts: Timeouts | None = None
    ) -> None:
        # -P: the current folder is no place to import from; somebody's json.py may lie there.
        self._command = command or [sys.executable, "-P", "-m", "localspec.worker.main"]
        self._log_file = log_file
        self._timeouts = timeouts or Timeouts()
        self._child: Child | None = None
        self._has_draft = False  # the pair that was loaded last
        self._sequence = 0  # the number of the latest job
        self._running: dict[int, _Job] = {}  # the jobs that have not ended, by number
        self._sending = threading.Lock()
        self._changed = threading.Condition()  # who reads the pipe, and lines for others
        self._is_read = False  # a thread reads the pipe
        self._heard = 0.0  # when the child last said anything
        self._last_log = ""
        self._saves = 0  # bytes that the child may be writing

    def prepare(self) -> None:
        self._start()

    def load(self, settings: LoadSettings) -> Iterator[Event]:
        """Load models, starting the child if there is none; ends after Loaded. Nothing else may run.

        A load that is cancelled or left early ends with its child, which has nothing to lose: reading a large file
        cannot be interrupted otherwise. After a cancel the last event is Finished.
        """
        self._has_draft = settings.draft is not None
        return self._request(self._child or self._start(), Load(settings))

    def generate(self, request: Request) -> Running:
        return self.start(Generate(request))

    def start(self, job: LoadedJob) -> Running:
        """Ask the loaded pair; ends after Finished or Inspected. The job is on its way when this returns.

        For any thread, also while other jobs run. Closing the iterator early cancels this job alone.
        """
        return self._request(self._loaded_child(), job)

    def cancel(self) -> None:
        """Ask all that runs to stop soon; harmless without any. Safe in threads and signal handlers."""
        for running in list(self._running.values()):
            running.cancel()

    def close(self) -> None:
        """End the child within about a second. An answer being read in another thread just ends.

        What the child writes of the last answer's text has the time that it takes.
        """
        self._close(self._timeouts.close + self._saves / SLOW_DISK if self._sequence else 0.0)

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.process.pid

    def lost(self) -> WorkerDiedError | None:
        """Return what a child died of that had nothing to do, or None; else the next request would be blamed."""
        child = self._child
        if child is None or self._running or not self._sequence or child.process.poll() is None:
            return None  # one that was asked for nothing yet is told by its load
        return self._died(child, "idle")

    def log_tail(self, lines: int = LOG_LINES) -> str:
        """Return the last lines the child wrote to its log, safe to print; kept after its death."""
        return last_lines(self._last_log if self._child is None else self._child.log.tail(), lines)

    def _start(self) -> Child:
        self._child = Child.start(self._command, Log(self._log_file))
        return self._child

    def _loaded_child(self) -> Child:
        """Return the child, which holds models; raises WorkerDiedError where there is none."""
        lost = self.lost()
        if lost is not None:
            raise lost
        if self._child is None:
            raise WorkerDiedError("No model is loaded: the engine is not running", hint="load the models again")
        return self._child

    def _close(self, grace: float) -> None:
        child, self._child = self._child, None
        self._running.clear()
        if child is not None:
            self._last_log = child.log.tail()
            child.end(grace)

    def _request(self, child: Child, job: PairJob) -> Running:
        """Send a job at once and return its events: a generator would send only when it is first read."""
        with self._sending:
            self._sequence += 1
            running = _Job(child, self._sequence, job)
            self._running[running.sequence] = running  # before the line is out: a cancel from here on means it, too
            from localspec.worker.codec import job_line  # late: while the child starts

            child.send(job_line(job, running.sequence), self._timeouts.start)
        return Running(self, running)

    def _leave(self, running: _Job) -> None:
        if self._running.pop(running.sequence, None) is None:
            return
        if running.is_load:
            self._close(grace=0.0)
        else:
            running.cancel()

    def _events(self, running: _Job) -> Generator[Event]:
        child = running.child
        try:
            for wire in self._lines(running):
                if wire.get("type") == "ready":
                    if (version := wire.get("version", __version__)) != __version__:
                        reason = f"is of localspec {one_line(str(version))}, and this is {__version__}; it was ended"
                        raise self._died(child, running.doing, reason, "start localspec again")
                    running.doing = running.begins
                    continue
                event = self._rebuild(running, wire)
                is_over = isinstance(event, Loaded | Finished | Inspected | Failed)
                if is_over:
                    self._saves = event.saves if isinstance(event, Finished) else 0
                    self._running.pop(running.sequence, None)
                if isinstance(event, Failed):
                    raise self._error(child, event)
                if event is not None:
                    yield event
                if is_over:
                    return
            if self._child is child:  # the lines of a load end when it is cancelled
                self._close(grace=0.0)
                wall_ms = 1e3 * (time.monotonic() - running.started)
                yield Finished(reason="interrupted", tail="", wall_ms=wall_ms, ttft_ms=0.0, peak_memory=0)
        finally:
            self._leave(running)

    def _lines(self, running: _Job) -> Iterator[dict[str, Any]]:
        child, pause = running.child, 0.0
        noticed: float | None = None  # when it was first looked at, after the job was cancelled
        self._heard = max(self._heard, running.started)
        while True:
            try:
                wire = self._line(running, pause)
            except ProtocolError as garbage:
                raise self._died(
                    child, running.doing, f"sent a malformed line ({garbage}) and was ended", REPORT
                ) from None
            except EOFError:
                if self._child is not child and child.fate is None:
                    return  # closed by another thread
                raise self._died(child, running.doing) from None
            if wire is not None:
                pause = FRAME if wire.get("type") == "committed" else 0.0
                yield wire
            if running.is_cancelled and running.is_load:
                return
            now = time.monotonic()
            if not child.is_ready and now - running.started > self._timeouts.start:
                reason = f"did not answer for {self._timeouts.start:g} s and was ended"
                hint = "localspec --version, which shows whether llama.cpp can be loaded"
                raise self._died(child, running.doing, reason, hint)
            if running.is_cancelled:
                # What lies in the pipe may have been said before, while nobody read: silence shows that it hangs.
                noticed = noticed or now
                patience, since = self._timeouts.cancel, max(running.cancelled_at, self._heard)
                if wire is not None:
                    patience, since = TALKING * patience, noticed
                if now - since > patience:
                    reason = f"did not stop within {patience:g} s and was ended"
                    raise self._died(child, running.doing, reason, "load the models again")

    def _line(self, running: _Job, pause: float) -> dict[str, Any] | None:
        """Return the next line for a job, None if there is none within a tenth of a second.

        Of several threads that wait one reads. Raises EOFError after the last line, and ProtocolError.
        """
        with self._changed:
            if self._is_read and not running.lines:
                self._changed.wait(0.1)
            if running.lines:
                return running.lines.popleft()
            if self._is_read:
                return None
            self._is_read = True
        try:
            wire = running.child.read(timeout=0.1, pause=pause)
        finally:
            with self._changed:
                self._is_read = False
                self._changed.notify_all()
        if wire is None:
            return None
        self._heard = time.monotonic()
        sequence = wire.get("seq")
        if sequence == running.sequence:
            return wire
        with self._changed:
            for other in list(self._running.values()):
                if other is not running and (other.sequence == sequence or not sequence):
                    other.lines.append(wire)
            self._changed.notify_all()
        return None if sequence else wire  # number 0: the child is ready

    def _rebuild(self, running: _Job, wire: dict[str, Any]) -> Event | None:
        from localspec.worker.codec import CodecError, event_of

        try:
            event = event_of(wire)
        except CodecError as error:
            reason = f"sent a malformed event ({error}) and was ended"
            raise self._died(running.child, running.doing, reason, REPORT) from None
        if isinstance(event, Loading) and running.begins != _DOING[SurveyRequest]:
            running.doing = f"loading the {event.what}"
        elif isinstance(event, Started):
            running.doing = _DOING[Generate]  # what was loaded or measured before is done
        elif isinstance(event, Prefilled):
            running.doing = "generating"
        return event

    def _error(self, child: Child, failed: Failed) -> LocalspecError:
        error = failed.exception()
        if isinstance(error, InternalError):
            error.detail.setdefault("log", last_lines(child.log.tail(), LOG_LINES))
        return error

    def _died(self, child: Child, doing: str, reason: str = "", hint: str = "") -> WorkerDiedError:
        """Clear the child away and return the error that says what happened to it; `reason` if that was our doing.

        Each job that it did has one: with the same reason, and what was done for it.
        """
        if child.fate is not None:
            status, reason, hint = child.fate
        else:
            if reason:
                child.process.kill()
            status = child.bury(self._timeouts.close if not reason else 0.0, reason, hint)
            self._last_log = child.log.tail()
        if self._child is child:
            self._child = None
            self._running.clear()
        name = ""
        if status < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-status).name
        if not reason:
            fallback = f"was ended by {name or f'signal {-status}'}" if status < 0 else f"left with status {status}"
            reason, hint = _EXIT_REASONS.get(name, (fallback, REPORT))
            if name == "SIGKILL" and doing.startswith("loading"):
                # A context is small beside weights that do not fit.
                hint = f"--draft none, or {_SMALLER}" if self._has_draft else _SMALLER
            if name == "SIGABRT" and any(sign in self._last_log for sign in _RPC):
                reason, hint = _RPC_FATE
            elif name == "SIGABRT" and tells_out_of_memory(last_lines(self._last_log.partition(CRASH)[0], LOG_LINES)):
                reason, hint = _MEMORY_FATE
            hint = hint.replace("{}", "--draft none, " if self._has_draft else "")
        detail = {"doing": doing, "signal": name or None, "status": status, "log": self.log_tail()}
        kind = EngineStoppedError if name == "SIGTERM" else WorkerDiedError
        return kind(f"The engine {reason} while {doing}", hint=hint, detail=detail)
