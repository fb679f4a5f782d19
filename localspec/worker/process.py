"""The client's end of a child process: its pipes, its log and its death. What is POSIX-only about the client is here.

The child gets a session of its own, so the terminal's Ctrl-C does not reach it, and an end of file on two pipes when
its parent is gone. Whatever it prints goes to the log: its standard output is not the stream of events.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from localspec.errors import ResourceError
from localspec.sanitize import sanitize

MAX_LINE = 64 * 1024 * 1024  # no event is longer; a child that never ends a line must not fill memory
BURST = 4096  # bytes; a pipe mostly holds sixteen times as much, and never less
MAX_LOG = 4 * 1024 * 1024
KILL_GRACE = 2.0  # seconds; a process that waits for a device may outlive even SIGKILL, and we do not wait with it
HUGE_PAGES = "glibc.malloc.hugetlb=1"  # asked for, not reserved
SPINS = 4_000_000  # rounds of GNU OpenMP's waiting, measured as 50 ms; LLVM's OpenMP waits for 200 ms by itself
TAIL_BYTES = 64 * 1024
CRASH = "Fatal Python error"  # how faulthandler begins


class ProtocolError(Exception):
    """The child wrote something that is not a JSON object on a line."""


class Log:
    """The file the child's stdout and stderr go to: unnamed and bounded, or one that the user named."""

    def __init__(self, path: Path | None) -> None:
        self._is_ours = path is None
        self.file: BinaryIO
        if path is None:
            try:
                import tempfile  # late: it takes as long as a dozen of our own modules

                self.file = tempfile.TemporaryFile(prefix="localspec-")  # noqa: SIM115 - it lives as long as the child
                # Appending, so that writers go on at the start of the file after it was cut.
                fcntl.fcntl(self.file, fcntl.F_SETFL, fcntl.fcntl(self.file, fcntl.F_GETFL) | os.O_APPEND)
            except OSError:  # no folder for temporary files: then there is no log to show
                self.file = io.FileIO(os.devnull, "r+")
        else:
            try:
                self.file = io.FileIO(path, "a+")
            except OSError as error:
                reason = f"--log-file {path} cannot be written: {error.strerror}"
                raise ResourceError(sanitize(reason), hint="--log-file ./localspec.log") from None
        self._start = os.fstat(self.file.fileno()).st_size if path is not None else 0

    def trim(self) -> None:
        """Start the log anew when it has grown too long; a file of the user's is left alone."""
        with contextlib.suppress(OSError, ValueError):
            if self._is_ours and os.fstat(self.file.fileno()).st_size > MAX_LOG:
                os.ftruncate(self.file.fileno(), 0)

    def tail(self) -> str:
        try:
            size = os.fstat(self.file.fileno()).st_size
            start = max(self._start, size - TAIL_BYTES)
            raw = os.pread(self.file.fileno(), TAIL_BYTES, start)
        except (OSError, ValueError):
            return ""
        said = [line for line in raw.decode("utf-8", "replace").splitlines() if line.strip(" .")]
        return "\n".join(sanitize(line) for line in said)


def last_lines(log: str, lines: int) -> str:
    """Return the last `lines` of a log; of a longer crash report its first, which name the crash and where it was."""
    said = log.splitlines()
    crash = max((i for i, line in enumerate(said) if line.startswith(CRASH)), default=len(said))
    start = min(crash, max(0, len(said) - lines))
    return "\n".join(said[start : start + lines])


def _environment() -> dict[str, str]:
    """Return the child's environment: this process's, and what has to be said before it starts."""
    # On an abort ggml would start a debugger on the dying process, which can take longer than its death.
    environment = {"GGML_NO_BACKTRACE": "1", **os.environ}
    # Large blocks in huge pages, where Linux leaves that to the program. Weights that ggml lays out anew are such a
    # block, and a pass reads all of it: it took 2 to 4 % less time.
    tunables = environment.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb" not in tunables:
        environment["GLIBC_TUNABLES"] = f"{tunables}:{HUGE_PAGES}" if tunables else HUGE_PAGES
    # A thread that has done its share of a matrix waits for the others, awake for 300 000 rounds and then asleep. Where
    # one is held up for longer, as by the drawing of a screen, the rest fall asleep and have to be woken: with a longer
    # wait answers were 1 % faster, and beside a screen 4 %.
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", str(SPINS))
    return environment


def pipes() -> tuple[list[int], list[int]]:
    """Return our ends and the child's ends of its three pipes: commands, control, events. Raises ResourceError."""
    ends: list[int] = []
    try:
        for _ in range(3):
            ends += os.pipe()
    except OSError as error:
        for fd in ends:
            os.close(fd)
        raise not_started(error) from None
    return [ends[1], ends[3], ends[4]], [ends[0], ends[2], ends[5]]  # the child reads the first two


def not_started(error: OSError) -> ResourceError:
    reason = f"The engine's process cannot be started: {error.strerror}"
    return ResourceError(reason, hint="close other programs and try again")


class Child:
    """A running child. Used by one thread at a time, but for `cancel` and `end`."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, control: int, events: int, log: Log) -> None:
        self.process = process
        self.log = log
        self.events = events
        self.is_ready = False
        self.fate: tuple[int, str, str] | None = None  # its status, and why we ended it, with a hint
        self._commands = io.FileIO(commands, "w")
        self._control = io.FileIO(control, "w")
        self._received = bytearray()
        self._patience = 1.0  # part of a pause in which the child says less than BURST
        for fd in (commands, control):
            os.set_blocking(fd, False)
        # Not select: it refuses descriptors from 1024 on.
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(events, select.POLLIN)
        self._writable.register(commands, select.POLLOUT)
        # Only when nobody holds the child any more: another thread may be waiting on this number in `read`.
        weakref.finalize(self, os.close, events)
        weakref.finalize(self, log.file.close)

    @classmethod
    def start(cls, command: Sequence[str], log: Log) -> Child:
        """Start `command` with the numbers of its ends of the three pipes behind it."""
        ours, theirs = pipes()
        # Linux ends the child with the *thread* that started it, so a thread that may end sooner must not ask for it.
        bond = ["--bound"] if threading.current_thread() is threading.main_thread() else []
        try:
            process = subprocess.Popen(
                [*command, *map(str, theirs), *bond],
                stdin=subprocess.DEVNULL,
                stdout=log.file,
                stderr=log.file,
                pass_fds=theirs,
                start_new_session=True,
                env=_environment(),
            )
        except OSError as error:
            for fd in ours:
                os.close(fd)
            log.file.close()
            raise not_started(error) from None
        finally:
            for fd in theirs:
                os.close(fd)
        return cls(process, ours[0], ours[1], ours[2], log)

    def send(self, line: bytes, timeout: float) -> None:
        """Write a command. A child that is gone, or takes nothing for `timeout` seconds, shows when it is read."""
        rest = memoryview(line)
        started = time.monotonic()
        try:
            while rest:
                n = self._commands.write(rest)
                if n is not None:
                    rest = rest[n:]
                elif self.process.poll() is not None:
                    return
                elif time.monotonic() - started > timeout:
                    self.process.kill()
                    return
                else:
                    self._writable.poll(250)
        except (OSError, ValueError):
            return

    def cancel(self, sequence: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._control.write(b"%d\n" % sequence)

    def read(self, timeout: float, pause: float = 0.0) -> dict[str, Any] | None:
        """Return the child's next object, None if there is none within `timeout` seconds; EOFError after the last.

        What was not received yet is looked for after `pause` seconds, sooner while the child says more than BURST in
        such a pause: nobody shall wait for room in the pipe.
        """
        paused = 0.0
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > MAX_LINE:
                raise ProtocolError("a line without end")
            if pause > paused:
                time.sleep(pause * self._patience)
                paused = pause
            if not self._readable.poll(1e3 * timeout):
                self.log.trim()
                if self.process.poll() is not None:
                    raise EOFError
                return None
            chunk = os.read(self.events, 1 << 16)
            if not chunk:
                raise EOFError
            self._received += chunk
            if paused and len(chunk) >= BURST:
                self._patience = max(1.0 / 64.0, self._patience / 2.0)
            elif paused and len(chunk) < BURST / 4.0:
                self._patience = min(1.0, 2.0 * self._patience)
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        try:
            wire = json.loads(line)
        except (ValueError, RecursionError):
            raise ProtocolError("a line that is not JSON") from None
        if not isinstance(wire, dict):
            raise ProtocolError("JSON that is not an object")
        self.is_ready = True
        return wire

    def end(self, grace: float) -> int:
        """End the child, by force after `grace` seconds, and return its exit status (minus the signal's number)."""
        self._commands.close()
        self._control.close()
        for patience in (grace, KILL_GRACE):
            try:
                return self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return -signal.SIGKILL

    def bury(self, grace: float, reason: str, hint: str) -> int:
        """End a child that is lost, or that we end for a `reason`; `fate` says so to all who wait for it."""
        self.fate = self.end(grace), reason, hint
        return self.fate[0]
