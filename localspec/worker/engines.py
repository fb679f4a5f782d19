"""Engines of this user that several programs share: which one holds a pair, how it is asked, how one is started.

An engine is a `localspec serve` without a port (`localspec.server.background`). It is known by its identity: everything
that loading the pair depends on. That is the name of its socket.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import localspec
from localspec import __version__
from localspec.backends.limits import allowed, available_memory
from localspec.engine.events import Event, Failed, Finished, Inspected, Loaded
from localspec.errors import LocalspecError, WorkerDiedError
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.recent import another_file
from localspec.sanitize import one_line
from localspec.settings.jobs import Load, LoadedJob
from localspec.settings.request import LoadSettings
from localspec.worker.codec import CodecError, event_of, job_line
from localspec.worker.keep_policy import BASE, SPARE, KeepAlive, pair_bytes
from localspec.worker.process import last_lines, not_started
from localspec.worker.runtime import Runtime
from localspec.worker.served import Connection, MalformedError

SHORT = 16  # characters of an identity that name a socket
PATIENCE = 10.0  # seconds for an engine that was told to end
# What the environment says to llama.cpp and to the threads of an engine.
_SAYING = ("GGML_", "LLAMA_", "CUDA_", "HIP_", "OMP_", "GOMP_", "KMP_", "LOCALSPEC_HOME", "GLIBC_TUNABLES")
_USUAL = {("KMP_BLOCKTIME", "200")}
LAST = (Finished, Inspected, Failed)  # events that end a job
_NUMBERS = itertools.count()


def identity(settings: LoadSettings) -> str:
    """Return what tells a loaded pair from any other. Raises OSError where a file cannot be read."""
    files = [settings.target, settings.draft, *(path for path, _ in settings.lora)]
    marks = [None if path is None else file_fingerprint(Path(path)) for path in files]
    lora = tuple((mark, scale) for mark, (_, scale) in zip(marks[2:], settings.lora, strict=True))
    rest = replace(settings, target=str(marks[0]), draft=marks[1], lora=(), name="", expected=None, parallel=None)
    # ggml sets this one where nobody did, for the processes too that ours starts once it was loaded.
    said = sorted({name: value for name, value in os.environ.items() if name.startswith(_SAYING)}.items() - _USUAL)
    ours = (__version__, sys.executable, _changed())
    whole = (rest, lora, ours, _build(), said, sorted(allowed()))
    return hashlib.sha256(repr(whole).encode("utf-8", "surrogateescape")).hexdigest()[:SHORT]


def _changed() -> int:
    """Return when the latest of our own modules changed, in nanoseconds: a checkout changes under one version."""
    models = find_spec("localspec.models")  # which may lie in another folder
    folders = [os.path.dirname(localspec.__file__), *((models and models.submodule_search_locations) or ())]
    latest = 0
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    latest = max(latest, entry.stat().st_mtime_ns)
                elif entry.is_dir() and entry.name not in ("__pycache__", "cli", "tui"):
                    folders.append(entry.path)
    return latest


def _build() -> list[tuple[str, int, int]]:
    folder = os.environ.get("LLAMA_CPP_LIB_PATH")
    spec = None if folder else find_spec("llama_cpp")
    if spec is not None and spec.origin is not None:
        folder = str(Path(spec.origin).parent / "lib")
    if folder is None or not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        files = [(entry.name, entry.stat()) for entry in entries]
    return sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)


class _LeftError(Exception):
    """The engine was left, by another thread."""


class EngineClient:
    """One client of one engine, which it has attached to: a `ChatWorker`. To close it is to leave the engine."""

    def __init__(self, name: str, attached: Connection, pid: int) -> None:
        self.name = name
        self.pid: int | None = pid  # of the process with the models, as long as the engine is there
        self._attached = attached
        self._job: Connection | None = None
        self._id = ""  # of the last job
        self._is_cancelled = False
        self._is_loading = True
        self._error: WorkerDiedError | None = None

    @classmethod
    def attached_to(
        cls, runtime: Runtime, name: str, pair: str, by: str, keep_alive: KeepAlive | None
    ) -> EngineClient | None:
        """Attach to the engine called `name`, for the command `by` that calls its pair so; None where none answers.

        `keep_alive` None leaves the engine's time as it is.
        """
        opened = runtime.connect(name)
        if opened is None:
            return None
        connection = Connection(opened)
        seconds, is_auto = (None, False) if keep_alive is None else (keep_alive.seconds, keep_alive.is_auto)
        visitor = {"name": pair, "by": by, "pid": os.getpid(), "keep_alive": seconds, "is_auto": is_auto}
        with contextlib.suppress(OSError, ValueError, KeyError, MalformedError):
            if connection.ask("POST", "/v1/engine/attach", json.dumps(visitor).encode()) == 200:
                pid = int(json.loads(connection.lines.readline())["pid"])
                opened.settimeout(None)
                return cls(name, connection, pid)
        connection.close()
        return None

    def load(self, settings: LoadSettings) -> Iterator[Event]:
        self._is_cancelled = False
        started = time.monotonic()
        try:
            while not self._is_cancelled:
                event = self._next(self._attached)
                if event is not None:
                    yield event
                if isinstance(event, Loaded):
                    self._is_loading = False
                    return
        except _LeftError:
            if not self._is_cancelled:
                return
        except LocalspecError:
            self.close()
            raise
        self.close()
        yield Finished("interrupted", "", 1e3 * (time.monotonic() - started), ttft_ms=0.0, peak_memory=0)

    def start(self, job: LoadedJob) -> Iterator[Event]:
        lost = self.lost()
        if lost is not None or self.pid is None:
            raise lost or self._died()
        self._is_cancelled = False
        self._id = f"{os.getpid()}-{next(_NUMBERS)}"
        wire = json.loads(job_line(job))
        connection = self._sent("POST", "/v1/events", {"id": self._id, "job": wire})
        if connection is None:
            raise self._died()
        self._job = connection
        return self._events(connection, self._id)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._job is not None:
            self._tell_cancel(self._id)
        elif self._is_loading:
            self.close()

    def close(self) -> None:
        self.pid = None
        for connection in (self._job, self._attached):
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RDWR)

    def lost(self) -> WorkerDiedError | None:
        """Return, once, what happened to the engine while nothing was asked of it; None if it is there."""
        try:
            while self.pid is not None and select.select([self._attached.socket], [], [], 0)[0]:
                self._next(self._attached)
        except WorkerDiedError as error:
            return error
        except (OSError, ValueError, _LeftError):  # it was left meanwhile
            pass
        return None

    def log_tail(self, lines: int = 20) -> str:
        connection = self._sent("GET", "/v1/engine/log")
        if connection is None:
            return ""
        with contextlib.closing(connection), contextlib.suppress(OSError, MalformedError):
            if connection.status() == 200:
                return last_lines(connection.lines.read().decode("utf-8", "replace"), lines)
        return ""

    def _events(self, connection: Connection, number: str) -> Iterator[Event]:
        is_over = False
        try:
            try:
                is_sound = connection.status() == 200
            except (OSError, MalformedError):
                is_sound = False
            if not is_sound:
                raise self._died()
            while not is_over:
                event = self._next(connection)
                is_over = isinstance(event, LAST)
                if event is not None:
                    yield event
        except _LeftError:
            return
        finally:
            if self._job is connection:
                self._job = None
            if not is_over and self.pid is not None:
                self._tell_cancel(number)
            connection.close()

    def _next(self, connection: Connection) -> Event | None:
        """Return the next event, None for one that this version does not know. Raises the error of one that failed."""
        try:
            line = connection.lines.readline()
            event = event_of(json.loads(line)) if line else None
        except (OSError, ValueError, CodecError):
            line, event = b"", None
        if not line:
            if self.pid is None and self._error is None:
                raise _LeftError
            raise self._died()
        if isinstance(event, Failed):
            error = event.exception()
            if isinstance(error, WorkerDiedError):  # the pair has to be loaded again
                self._error = error
                self.close()
            raise error
        return event

    def _died(self) -> WorkerDiedError:
        error = self._error or WorkerDiedError("The engine was killed, or its process failed", hint="the same again")
        self._error = error
        self.close()
        return error

    def _sent(self, method: str, path: str, body: Any = None) -> Connection | None:
        with contextlib.suppress(OSError, LocalspecError), Runtime.opened() as runtime:
            opened = None if runtime is None else runtime.connect(self.name)
            if opened is not None:
                connection = Connection(opened)
                connection.send(method, path, None if body is None else json.dumps(body).encode())
                opened.settimeout(None)
                return connection
        return None

    def _tell_cancel(self, number: str) -> None:
        connection = self._sent("POST", "/v1/engine/cancel", {"id": number})
        if connection is not None:
            connection.close()


class StartedEngine:
    """The process of an engine that has no pair yet; it leaves if it gets none."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it; `command` starts its child. Raises ResourceError."""
        self._ours, theirs = socket.socketpair()
        home = os.environ.get("LOCALSPEC_HOME")
        with theirs:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "localspec.server.background", *command],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",  # a disk that the client lies on can be taken away
                    env={**os.environ, **({"LOCALSPEC_HOME": os.path.abspath(home)} if home else {})},
                )
            except OSError as error:
                raise not_started(error) from None
        process.returncode = 0  # it lives on; nobody waits for it

    def give(self, runtime: Runtime, listener: socket.socket, name: str, settings: LoadSettings) -> None:
        wire = json.loads(job_line(Load(replace(settings, expected=None))))
        spec = {"path": str(runtime.path), "name": name, "load": wire}
        with self._ours, contextlib.suppress(OSError):  # one that has died is met by who attaches
            socket.send_fds(self._ours, [json.dumps(spec).encode() + b"\n"], [listener.fileno(), runtime.fd])

    def close(self) -> None:
        self._ours.close()


class Engines:
    """The engines of this user, as one client finds and starts them. `command` starts the child of a new one."""

    def __init__(self, command: Sequence[str], keep_alive: KeepAlive, by: str) -> None:
        self._command = command
        self._keep_alive = keep_alive
        self._by = by
        self._started: StartedEngine | None = None
        self.remarks: list[str] = []  # what there is to say about the engine that was found

    def prepare(self) -> None:
        self._started = StartedEngine(self._command)

    def close(self) -> None:
        started, self._started = self._started, None
        if started is not None:
            started.close()

    def engine(self, settings: LoadSettings) -> EngineClient | None:
        """Return the engine that holds or is to load the pair, None where the client needs a child of its own.

        Raises ResourceError where an engine was asked for and cannot be.
        """
        wants = self._keep_alive.wants(settings)
        try:
            with Runtime.opened(make=wants) as runtime:
                return None if runtime is None else self._engine(runtime, settings, wants=wants)
        except LocalspecError:
            if wants and not self._keep_alive.is_auto:
                raise
            return None
        finally:
            self.close()

    def _engine(self, runtime: Runtime, settings: LoadSettings, *, wants: bool) -> EngineClient | None:
        names = runtime.names()
        if not names and not wants:
            return None
        try:
            name = identity(settings)
        except OSError:  # loading says what is wrong with the file
            return None
        keep_alive = None if self._keep_alive.is_auto or not self._keep_alive.seconds else self._keep_alive
        client = EngineClient.attached_to(runtime, name, settings.name, self._by, keep_alive)
        if client is None:
            self._make_room(runtime, settings, [each for each in names if each != name])
        if client is None and wants:
            listener = runtime.listen(name)
            if listener is not None:  # else another client was quicker
                with contextlib.closing(listener):
                    self._started = self._started or StartedEngine(self._command)
                    self._started.give(runtime, listener, name, settings)
            client = EngineClient.attached_to(runtime, name, settings.name, self._by, self._keep_alive)
        if client is not None and (warning := another_file(settings)):
            self.remarks.append(warning)
        return client

    def _make_room(self, runtime: Runtime, settings: LoadSettings, others: list[str]) -> None:
        """Ask idle engines of other pairs to leave where memory may not hold this pair too; say what is there."""
        needed = BASE + SPARE * pair_bytes(settings)
        for other in others:
            facts = asked(runtime, other)
            if facts is None or facts["loaded"] is None:
                continue
            pair, room = one_line(str(facts["loaded"]["name"])), available_memory()
            models = [each for each in (facts["loaded"]["target"], facts["loaded"]["draft"]) if each is not None]
            uses_gpu = any(device != "CPU" for model in models for device in model["devices"])
            is_full = uses_gpu or room is None or room < needed
            if is_full and left(runtime, other):
                self.remarks.append(f"the warm engine of {pair} left, to make room")
            elif is_full:
                self.remarks.append(f"{pair} is in memory too: localspec stop {pair} frees it")


def asked(runtime: Runtime, name: str, method: str = "GET", path: str = "") -> dict[str, Any] | None:
    opened = runtime.connect(name)
    if opened is None:
        return None
    with contextlib.closing(Connection(opened)) as connection, contextlib.suppress(OSError, ValueError, MalformedError):
        if connection.ask(method, f"/v1/engine{path}") == 200:
            reply: dict[str, Any] = json.loads(connection.lines.read())
            return reply
    return None


def left(runtime: Runtime, name: str) -> bool:
    """Ask an engine to leave, which one that is used does not. Return whether it has ended."""
    opened = runtime.connect(name)  # it lasts as long as the engine
    if opened is None:
        return True
    with opened:
        opened.settimeout(PATIENCE)
        try:
            return asked(runtime, name, "POST", "/leave") is not None and not opened.recv(1)
        except ConnectionResetError:
            return True
        except OSError:
            return False


def engines_in_memory() -> list[dict[str, Any]]:
    """Return the facts of every engine of this user, those that a command has for itself too. Raises ResourceError."""
    with Runtime.opened() as runtime:
        if runtime is None:
            return []
        replies = [(name, asked(runtime, name)) for name in runtime.names()]
        return [{**facts, "id": name} for name, facts in replies if facts is not None] + [
            sign
            for sign in runtime.signs()
            if is_running(sign["pid"])  # its command has not looked yet
        ]


def stop_engine(facts: dict[str, Any]) -> bool:
    """End an engine with the answers that it writes, and wait until its process is gone. Return whether it is."""
    pid = facts["engine_pid"]
    with contextlib.suppress(ProcessLookupError), Runtime.opened() as runtime:
        is_asked = runtime is not None and "id" in facts and asked(runtime, facts["id"], "POST", "/stop") is not None
        if is_asked and _has_ended(pid):
            return True
        os.kill(pid, signal.SIGTERM)
        return _has_ended(pid)
    return True


def _has_ended(pid: int) -> bool:
    ends = time.monotonic() + PATIENCE
    while is_running(pid):
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:
        return False
    except OSError:
        return os.path.isdir("/proc/self") is False  # where there is no /proc, the signal says it
