"""The engine in a child process, so that a native abort never takes the terminal with it.

`Worker` is what every face uses: it starts `localspec.worker.main`, sends it commands and yields the events it answers
with. Nothing native is imported here. Invariants: a child that dies, hangs at its start or speaks nonsense ends in one
`WorkerDiedError`, and no call waits for ever on a child that was told to stop.

Three pipes: `commands` (JSON lines), `control` (a request's number per line: stop that one; end of file: the parent
is gone) and `events` (JSON lines that carry the request's number). Cancelling has a pipe of its own because a signal
handler may run in the middle of a long write to `commands`, whose line it must not break.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec import __version__
from localspec.engine.events import (
    Event,
    Failed,
    Finished,
    Inspected,
    Loaded,
    Loading,
    Prefilled,
    Started,
)
from localspec.errors import EngineStoppedError, InternalError, LocalspecError, WorkerDiedError, tells_out_of_memory
from localspec.sanitize import one_line
from localspec.settings.jobs import Generate, Load, LoadedJob, PairJob, SurveyRequest
from localspec.settings.request import LoadSettings, Request
from localspec.worker.process import CRASH, Child, Log, ProtocolError, last_lines
from localspec.worker.runtime import has_engines

if TYPE_CHECKING:
    from localspec.worker.kept import Keeping

# Until an event says more.
_DOING: dict[type[PairJob], str] = {Load: "loading", Generate: "reading the prompt", SurveyRequest: "timing passes"}
REPORT = "--log-file FILE, and report what the file says"
LOG_LINES = 20  # of a log, which an error brings along
_EXIT_REASONS = {
    "SIGTERM": ("was stopped, by localspec stop or by SIGTERM,", "the same command again"),
    "SIGKILL": (
        "was killed (SIGKILL), often because memory ran out",
        "if memory ran out: --draft none, a smaller --ctx or a smaller model",
    ),
    "SIGSEGV": ("crashed (SIGSEGV)", REPORT),
    "SIGBUS": ("crashed (SIGBUS): the model file may have changed or its disk failed", REPORT),
    "SIGABRT": ("aborted (SIGABRT)", REPORT),
    "SIGILL": (
        "met an instruction this processor lacks (SIGILL): llama.cpp was built for another one",
        "localspec doctor, which prints the command that builds it for this one",
    ),
}
_SMALLER = "--draft none, or a smaller quantisation of the model"  # of what is killed while it loads
_RPC = ("Remote RPC server crashed", "Failed to connect to", "RPC handshake failed")  # ggml's words before it aborts
_RPC_FATE = (
    "lost an RPC server (it ended, or the network did)",
    "localspec doctor --rpc HOST:PORT,... shows which servers answer",
)
# Loading found the memory there; another program may have taken it since, and the first long prompt wants more.
_MEMORY_FATE = (
    "ran out of memory (SIGABRT; a GPU's, if it uses one)",
    "--gpu N with fewer layers, a smaller --ctx, or --draft none",
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


class Worker:
    """One child process that holds the models. One request at a time; `cancel` may come from anywhere.

    `command` replaces the child's command line; the numbers of its three pipes are appended to it. With `keep_alive`
    the child is that of a warm engine (`localspec.worker.kept`) where there is one, and is left behind for so many
    seconds; 0 leaves none behind that was not there. None, or a `log_file`, is a child of its own.
    """

    def __init__(
        self,
        *,
        command: Sequence[str] | None = None,
        log_file: Path | None = None,
        timeouts: Timeouts | None = None,
        keep_alive: float | None = None,
    ) -> None:
        # -P: the current folder is no place to import from; somebody's json.py may lie there.
        self._command = command or [sys.executable, "-P", "-m", "localspec.worker.main"]
        self._log_file = log_file
        self._keep_alive = keep_alive if log_file is None else None
        self._keeping: Keeping | None = None  # once there was anything to keep
        self._timeouts = timeouts or Timeouts()
        self._child: Child | None = None
        self._sequence = 0  # the number of the latest request
        self._running = 0  # its number while it has not ended
        self._cancelled = 0  # the number of the last request that was cancelled
        self._cancelled_at = 0.0
        self._doing = "starting"
        self._last_log = ""
        self._saves = 0  # bytes that the child may be writing

    def prepare(self) -> None:
        """Start the child ahead of its first load, unless a warm engine may take its place."""
        if self._warm() is None:
            self._start()

    def load(self, settings: LoadSettings) -> Iterator[Event]:
        """Load models, starting the child if there is none; ends after Loaded.

        A load that is cancelled or left early ends with its child, which has nothing to lose: reading a large file
        cannot be interrupted otherwise. After a cancel the last event is Finished.
        """
        keeping = self._warm()
        if keeping is not None:
            self._child = keeping.engine(settings, self._child)
        events = self._request(self._child or self._start(), Load(settings))
        return events if keeping is None else keeping.told(events)

    def generate(self, request: Request) -> Iterator[Event]:
        """Answer one request; ends after Finished."""
        return self.start(Generate(request))

    def start(self, job: LoadedJob) -> Iterator[Event]:
        """Ask the loaded pair; ends after Finished or Inspected. The job is on its way when this returns.

        Closing the iterator early cancels it; the next job need not wait for that.
        """
        return self._request(self._loaded_child(), job)

    def cancel(self) -> None:
        """Ask the request that is running to stop soon; harmless without one. Safe in threads and signal handlers."""
        child, sequence = self._child, self._sequence
        if self._cancelled != sequence:
            self._cancelled_at = time.monotonic()  # first: a reader in another thread looks at it once the number fits
            self._cancelled = sequence
        if child is not None:
            child.cancel(sequence)

    def close(self) -> None:
        """End the child within about a second. An answer being read in another thread just ends.

        What the child writes of the last answer's text has the time that it takes.
        """
        self._close(self._timeouts.close + self._saves / SLOW_DISK if self._sequence else 0.0)

    @property
    def pid(self) -> int | None:
        """The child's process id, None without a child."""
        return None if self._child is None else self._child.process.pid

    def lost(self) -> WorkerDiedError | None:
        """Return what a child died of that had nothing to do, or None; else the next request would be blamed."""
        child = self._child
        if child is None or self._running or not self._sequence or child.process.poll() is None:
            return None  # one that was asked for nothing yet is told by its load
        self._doing = "idle"
        return self._died(child)

    def log_tail(self, lines: int = LOG_LINES) -> str:
        """Return the last lines the child wrote to its log, safe to print; kept after its death."""
        return last_lines(self._last_log if self._child is None else self._child.log.tail(), lines)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _warm(self) -> Keeping | None:
        """Return the warm engines, None where none is wanted and none is there by now."""
        if self._keeping is None and self._keep_alive is not None and (self._keep_alive or has_engines()):
            from localspec.worker.kept import Keeping  # late: most commands have a child of their own

            self._keeping = Keeping(self._command, self._keep_alive)
        return self._keeping

    def _start(self) -> Child:
        self._doing = "starting"
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
        child, self._child, self._running = self._child, None, 0
        if child is not None:
            self._last_log = child.log.tail()
            child.end(grace)

    def _request(self, child: Child, job: PairJob) -> Iterator[Event]:
        """Send a job at once and return its events: a generator would send only when it is first read."""
        if self._running:
            child.cancel(self._running)  # nobody reads it any more
        self._sequence += 1  # before the line is out: a cancel from here on means this request
        sequence = self._running = self._sequence
        from localspec.worker.codec import job_line  # late: while the child starts

        child.send(job_line(job, sequence), self._timeouts.start)
        return self._events(child, sequence, job)

    def _events(self, child: Child, sequence: int, job: PairJob) -> Iterator[Event]:
        """Yield the events of one request until its last; stop it if the reader leaves earlier."""
        started = time.monotonic()
        is_load, doing = isinstance(job, Load), _DOING.get(type(job), "checking")
        self._doing = doing if child.is_ready else "starting"
        try:
            for wire in self._lines(child, sequence, is_load=is_load):
                if wire.get("type") == "ready":
                    self._check_version(child, wire.get("version", __version__))
                    self._doing = doing
                if wire.get("seq") != sequence:
                    continue  # of a request that was left early
                event = self._rebuild(child, wire)
                is_over = isinstance(event, Loaded | Finished | Inspected | Failed)
                self._saves = event.saves if isinstance(event, Finished) else 0
                if is_over:
                    self._doing, self._running = "idle", 0
                if isinstance(event, Failed):
                    raise self._error(child, event)
                if event is not None:
                    yield event
                if is_over:
                    return
            if self._child is child:  # the lines of a load end when it is cancelled
                self._close(grace=0.0)
                wall_ms = 1e3 * (time.monotonic() - started)
                yield Finished(reason="interrupted", tail="", wall_ms=wall_ms, ttft_ms=0.0, peak_memory=0)
        finally:
            if self._running == sequence and is_load:
                self._close(grace=0.0)
            elif self._running == sequence:
                self.cancel()

    def _lines(self, child: Child, sequence: int, *, is_load: bool) -> Iterator[dict[str, Any]]:
        """Yield what the child says, looking often whether it still does what it should; ends if that is over."""
        started = heard = time.monotonic()
        noticed: float | None = None  # when it was first looked at, after the request was cancelled
        pause = 0.0
        while True:
            assert self._sequence == sequence or self._child is not child, "a later request reads the events now"
            try:
                wire = child.read(timeout=0.1, pause=pause)
            except ProtocolError as garbage:
                raise self._died(child, f"sent a malformed line ({garbage}) and was ended", REPORT) from None
            except EOFError:
                if self._child is not child:
                    return  # closed by another thread
                raise self._died(child) from None
            if wire is not None:
                pause = FRAME if wire.get("type") == "committed" and wire.get("seq") == sequence else 0.0
                yield wire
            is_cancelled = self._cancelled == sequence
            if is_cancelled and is_load:
                return
            now = time.monotonic()
            if not child.is_ready and now - started > self._timeouts.start:
                reason = f"did not answer for {self._timeouts.start:g} s and was ended"
                raise self._died(child, reason, "localspec --version, which shows whether llama.cpp can be loaded")
            if wire is not None:
                heard = now
            if is_cancelled:
                # What lies in the pipe may have been said before, while nobody read: silence shows that it hangs.
                noticed = noticed or now
                patience, since = self._timeouts.cancel, max(self._cancelled_at, heard)
                if wire is not None:
                    patience, since = TALKING * patience, noticed
                if now - since > patience:
                    reason = f"did not stop within {patience:g} s and was ended"
                    raise self._died(child, reason, "load the models again")

    def _rebuild(self, child: Child, wire: dict[str, Any]) -> Event | None:
        """Return the event of a line, None for a type this version does not know, and note what the child is doing."""
        from localspec.worker.codec import CodecError, event_of

        try:
            event = event_of(wire)
        except CodecError as error:
            raise self._died(child, f"sent a malformed event ({error}) and was ended", REPORT) from None
        if isinstance(event, Loading) and self._doing != _DOING[SurveyRequest]:
            self._doing = f"loading the {event.what}"
        elif isinstance(event, Started):
            self._doing = _DOING[Generate]  # what was loaded or measured before is done
        elif isinstance(event, Prefilled):
            self._doing = "generating"
        return event

    def _check_version(self, child: Child, version: object) -> None:
        """Refuse a child that was started from other files: localspec was installed anew while this one ran."""
        if version != __version__:
            reason = f"is of localspec {one_line(str(version))}, and this is {__version__}; it was ended"
            raise self._died(child, reason, "start localspec again")

    def _error(self, child: Child, failed: Failed) -> LocalspecError:
        """Return the child's error; one that should not exist comes with the log."""
        error = failed.exception()
        if isinstance(error, InternalError):
            error.detail.setdefault("log", last_lines(child.log.tail(), LOG_LINES))
        return error

    def _died(self, child: Child, reason: str = "", hint: str = "") -> WorkerDiedError:
        """Clear the child away and return the error that says what happened to it; `reason` if that was our doing."""
        if reason:
            child.process.kill()
        status = child.end(self._timeouts.close if not reason else 0.0)
        self._last_log = child.log.tail()
        if self._child is child:
            self._child, self._running = None, 0
        name = ""
        if status < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-status).name
        if not reason:
            fallback = f"was ended by {name or f'signal {-status}'}" if status < 0 else f"left with status {status}"
            reason, hint = _EXIT_REASONS.get(name, (fallback, REPORT))
            if name == "SIGKILL" and self._doing.startswith("loading"):
                hint = _SMALLER  # a context is small beside weights that do not fit
            if name == "SIGABRT" and any(sign in self._last_log for sign in _RPC):
                reason, hint = _RPC_FATE
            elif name == "SIGABRT" and tells_out_of_memory(last_lines(self._last_log.partition(CRASH)[0], LOG_LINES)):
                reason, hint = _MEMORY_FATE
        detail = {"doing": self._doing, "signal": name or None, "status": status, "log": self.log_tail()}
        kind = EngineStoppedError if name == "SIGTERM" else WorkerDiedError
        return kind(f"The engine {reason} while {self._doing}", hint=hint, detail=detail)
