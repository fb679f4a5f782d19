"""The client's side of warm engines: which one holds what would be loaded, how it is asked, how one is started.

A warm engine is known by its identity: everything that loading the pair depends on. It is the name of its socket.
`localspec.worker.keeper` is the process behind that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import localspec
from localspec import __version__
from localspec.backends.limits import allowed, available_memory
from localspec.engine.events import Event, Warned
from localspec.errors import LocalspecError
from localspec.models.gguf.header import file_fingerprint
from localspec.models.recent import another_file
from localspec.sanitize import one_line
from localspec.settings.request import LoadSettings
from localspec.worker.process import Child, Log, not_started, pipes
from localspec.worker.runtime import Runtime
from localspec.worker.visitor import CLOSE_ON_EXEC

SHORT = 16  # characters of an identity that name a socket
SPARE = 1.25  # times the files' size: memory that a pair takes with its context
BASE = 512 << 20  # bytes on top
# What the environment says to llama.cpp and to the threads of an engine.
_SAYING = ("GGML_", "LLAMA_", "CUDA_", "HIP_", "OMP_", "GOMP_", "KMP_", "LOCALSPEC_HOME", "GLIBC_TUNABLES")
_USUAL = {("KMP_BLOCKTIME", "200")}


def identity(settings: LoadSettings) -> str:
    """Return what tells a loaded pair from any other. Raises OSError where a file cannot be read."""
    files = [settings.target, settings.draft, *(path for path, _ in settings.lora)]
    marks = [None if path is None else file_fingerprint(Path(path)) for path in files]
    lora = tuple((mark, scale) for mark, (_, scale) in zip(marks[2:], settings.lora, strict=True))
    rest = replace(settings, target=str(marks[0]), draft=marks[1], lora=(), name="", expected=None)
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
    """Return the libraries of llama.cpp with size and time of change; nothing of them is loaded."""
    folder = os.environ.get("LLAMA_CPP_LIB_PATH")
    spec = None if folder else find_spec("llama_cpp")
    if spec is not None and spec.origin is not None:
        folder = str(Path(spec.origin).parent / "lib")
    if folder is None or not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat()) for entry in entries]
    return sorted((name, status.st_size, status.st_mtime_ns) for name, status in found)


class KeptProcess:
    """The child of a warm engine, as far as a client may look at it: through its connection."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        connection.setblocking(False)
        self.pid = pid
        self._connection = connection
        self._said = b""
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the child's exit status, None while it runs. 0 once the client has left it."""
        while self._status is None:
            try:
                chunk = self._connection.recv(4096)
            except BlockingIOError:
                return None
            except OSError:
                chunk = b""
            self._said += chunk
            if not chunk:  # its keeper was killed, and it with that
                self._status = -signal.SIGKILL
            elif self._said.endswith(b"\n"):
                self._status = int(json.loads(self._said)["status"])
        return self._status

    def wait(self, timeout: float) -> int:
        """Leave the engine, at once. Return its exit status, 0 if it runs on."""
        self._status = self.poll() or 0
        self._connection.close()
        return self._status

    def kill(self) -> None:
        """Have it killed: it hangs."""
        with contextlib.suppress(OSError):
            self._connection.send(b'{"ask":"kill"}\n')


class KeptChild(Child):
    """A warm engine, used as a child of one's own. `name` is its identity. To end it is to leave it."""

    name = ""

    def read(self, timeout: float, pause: float = 0.0) -> dict[str, Any] | None:
        """Return the next event, as of any child. The engine's keeper makes the pauses."""
        return super().read(timeout)


class Keeping:
    """Warm engines, as one client uses them.

    `keep_alive`: seconds for which an engine stays after its last client; 0 starts none, and leaves the time of one
    that is there as it is. `command` starts the child.
    """

    def __init__(self, command: Sequence[str], keep_alive: float) -> None:
        self._command = command
        self._keep_alive = keep_alive
        self._remarks: list[str] = []

    def engine(self, settings: LoadSettings, before: Child | None) -> Child | None:
        """Return the engine that holds or is to load the pair, None where the client needs a child of its own.

        `before` is what the client has. Raises ResourceError where an engine is to be kept and cannot.
        """
        if before is not None and not isinstance(before, KeptChild):
            return before
        with Runtime.opened(make=True) if self._is_asked else _if_safe() as runtime:
            if runtime is None:
                return None
            names = runtime.names()
            if not names and not self._is_asked:
                return None
            name = self._identity(settings)
            if isinstance(before, KeptChild):
                if before.name == name and before.process.poll() is None:
                    return before
                before.end(0.0)
            if name is None:
                return None
            found = self._found(runtime, name)
            if found is None:
                self._make_room(runtime, settings, [each for each in names if each != name])
                found = self._started(runtime, name) if self._is_asked else None
            if found is not None and (warning := another_file(settings)):
                self._remarks.append(warning)
            return found

    def told(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield what there is to say about the engine that `engine` returned, then the events of its load."""
        remarks, self._remarks = self._remarks, []
        yield from (Warned("engine", each) for each in remarks)
        yield from events

    @property
    def _is_asked(self) -> bool:
        return bool(self._keep_alive)

    def _identity(self, settings: LoadSettings) -> str | None:
        try:
            return identity(settings)
        except OSError:  # loading says what is wrong with the file
            return None

    def _found(self, runtime: Runtime, name: str) -> KeptChild | None:
        connection = runtime.connect(name)
        return None if connection is None else attach(connection, name, self._keep_alive or None)

    def _started(self, runtime: Runtime, name: str) -> KeptChild | None:
        listener = runtime.listen(name)
        if listener is not None:  # else another client was quicker
            with contextlib.closing(listener):
                start(runtime, listener, name, self._command)
        return self._found(runtime, name)

    def _make_room(self, runtime: Runtime, settings: LoadSettings, others: list[str]) -> None:
        """Ask idle engines of other pairs to leave where memory may not hold this pair too; say what is there."""
        files = [settings.target] + ([settings.draft] if settings.draft else [])
        needed = BASE + SPARE * sum(os.path.getsize(path) for path in files)
        for other in others:
            facts = ask(runtime, other, "facts")
            if facts is None or facts["loaded"] is None:
                continue
            pair, room = one_line(str(facts["loaded"]["name"])), available_memory()
            is_full = uses_gpu(facts) or room is None or room < needed
            if is_full and ask(runtime, other, "leave") is None:
                self._remarks.append(f"the warm engine of {pair} left, to make room")
            else:
                self._remarks.append(f"{pair} is in memory too: localspec stop frees it")


def uses_gpu(facts: dict[str, Any]) -> bool:
    """Whether an engine's models lie on other devices than the processor."""
    models = [facts["loaded"]["target"], facts["loaded"]["draft"]]
    return any(device != "CPU" for model in models if model is not None for device in model["devices"])


def ask(runtime: Runtime, name: str, what: str) -> dict[str, Any] | None:
    """Return an engine's answer; None where it has none, or is gone.

    After "stop" and "leave" this waits until it is gone.
    """
    connection = runtime.connect(name)
    if connection is None:
        return None
    with contextlib.closing(connection):
        said = b""
        try:
            connection.sendall(json.dumps({"ask": what}).encode("ascii") + b"\n")
            while not said.endswith(b"\n") and (chunk := connection.recv(1 << 16)):
                said += chunk
        except OSError:
            return None
    found: dict[str, Any] | None = json.loads(said) if said.endswith(b"\n") else None
    return found


def attach(connection: socket.socket, name: str, keep_alive: float | None) -> KeptChild | None:
    """Become a client of an engine; None where it does not answer."""
    ours, theirs = pipes()
    line = json.dumps({"ask": "attach", "keep_alive": keep_alive}).encode("ascii") + b"\n"
    fds: list[int] = []
    try:
        socket.send_fds(connection, [line], theirs)
        said, fds, _, _ = socket.recv_fds(connection, 4096, 1, CLOSE_ON_EXEC)
        told = json.loads(said)
        log = Log(None, os.fdopen(fds[0], "rb", buffering=0))
    except (OSError, ValueError, IndexError):
        for fd in (*ours, *fds):
            os.close(fd)
        connection.close()
        return None
    finally:
        for fd in theirs:
            os.close(fd)
    child = KeptChild(KeptProcess(connection, int(told["pid"])), ours[0], ours[1], ours[2], log)
    child.name = name
    return child


def start(runtime: Runtime, listener: socket.socket, name: str, command: Sequence[str]) -> None:
    """Start a keeper that takes over `listener`. Raises ResourceError."""
    fds = [listener.fileno(), runtime.fd]
    log = Log(None)
    home = os.environ.get("LOCALSPEC_HOME")
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "localspec.worker.keeper", *map(str, fds), str(runtime.path), name, *command],
            stdin=subprocess.DEVNULL,
            stdout=log.file,
            stderr=log.file,
            pass_fds=fds,
            start_new_session=True,
            cwd="/",  # a disk that the client lies on can be taken away
            env={**os.environ, **({"LOCALSPEC_HOME": os.path.abspath(home)} if home else {})},
        )
    except OSError as error:
        runtime.remove(name)
        raise not_started(error) from None
    finally:
        log.file.close()
    process.returncode = 0  # it lives on; nobody waits for it


@contextlib.contextmanager
def _if_safe() -> Iterator[Runtime | None]:
    """Open the folder if it is there and safe: who asked for no warm engine need not know of it."""
    with contextlib.ExitStack() as stack:
        try:
            runtime = stack.enter_context(Runtime.opened())
        except LocalspecError:
            runtime = None
        yield runtime


def warm_engines() -> list[dict[str, Any]]:
    """Return the facts of every warm engine of this user (`Keeper` has them). Raises ResourceError."""
    with Runtime.opened() as runtime:
        names = [] if runtime is None else runtime.names()
        found = [(name, ask(runtime, name, "facts")) for name in names if runtime is not None]
    return [{**facts, "id": name} for name, facts in found if facts is not None]


def stop_engine(facts: dict[str, Any]) -> None:
    """Stop a warm engine, and wait until nothing of it is left."""
    with Runtime.opened() as runtime:
        if runtime is not None:
            ask(runtime, facts["id"], "stop")
