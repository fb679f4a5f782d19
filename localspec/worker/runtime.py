"""The folder in which engines of this user listen: theirs alone, and no file in it outlives its engine for long.

Invariants: the folder has mode 0700 and this user for an owner, and is no link; a socket has mode 0600; the process at
the other end of a connection is this user's. A socket that nobody listens to is removed where it is met.

An engine that a command has for itself listens nowhere. A sign, a file that its command keeps locked, names it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from localspec.errors import ResourceError
from localspec.settings.folders import cache_folder

SUFFIX = ".sock"
SIGN = ".engine"
BACKLOG = 64
PATIENCE = 10.0  # seconds to wait for a word of the process that listens
ELSEWHERE = "XDG_RUNTIME_DIR=FOLDER names another folder"
SIGN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCAL_PEERCRED = 1  # of macOS and the BSDs: version, uid, groups


def runtime_folder() -> Path:
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if folder and os.path.isabs(folder) and not os.environ.get("LOCALSPEC_HOME"):
        return Path(folder) / "localspec"
    return cache_folder("run")


class Runtime:
    """The opened folder. Names are those of sockets, without the suffix."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    @staticmethod
    @contextlib.contextmanager
    def opened(*, make: bool = False) -> Iterator[Runtime | None]:
        """Open the folder, None if there is none; `make` makes it. Raises ResourceError for one that is not safe."""
        path = runtime_folder()
        try:
            if make:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=0o700)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENOENT and not make:
                yield None
                return
            raise _unsafe(path, "it is no folder" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error) from None
        try:
            status = os.fstat(fd)
            if status.st_uid != os.geteuid():
                raise _unsafe(path, "it belongs to another user")
            if stat.S_IMODE(status.st_mode) != 0o700:
                os.fchmod(fd, 0o700)
            yield Runtime(path, fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from binding and removing sockets meanwhile. Raises ResourceError without locks."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError as error:
            raise _unsafe(self.path, error) from None
        try:
            yield
        finally:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def names(self) -> list[str]:
        return sorted(name.removesuffix(SUFFIX) for name in os.listdir(self.fd) if name.endswith(SUFFIX))

    def connect(self, name: str) -> socket.socket | None:
        """Return a connection to the engine called `name`, None where nobody listens; then the socket is removed.

        Raises ResourceError where another user listens.
        """
        if name + SUFFIX not in os.listdir(self.fd):
            return None
        connection = _socket()
        try:
            connection.connect(self._address(name))
            if peer(connection) != os.geteuid():
                raise _unsafe(self.path, "another user listens there")
        except OSError as error:
            connection.close()
            if error.errno == errno.ECONNREFUSED:
                with self.locked():
                    if not self.is_alive(name):
                        self.remove(name)
            return None
        except BaseException:
            connection.close()
            raise
        return connection

    def listen(self, name: str) -> socket.socket | None:
        """Return a socket that listens as `name`, None if there is one already. Raises ResourceError."""
        with self.locked():
            if self.is_alive(name):
                return None
            self.remove(name)
            made = _socket()
            try:
                made.bind(self._address(name))
                os.chmod(name + SUFFIX, 0o600, dir_fd=self.fd)
                made.listen(BACKLOG)
            except OSError as error:
                made.close()
                raise _unsafe(self.path, error) from None
            return made

    def is_alive(self, name: str) -> bool:
        with contextlib.closing(_socket()) as probe:
            try:
                probe.connect(self._address(name))
            except (ConnectionRefusedError, FileNotFoundError):
                return False
            except OSError:  # it is too busy to take another connection
                return True
        return True

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name + SUFFIX, dir_fd=self.fd)

    def sign(self, facts: dict[str, Any]) -> IO[bytes]:
        """Return a sign with these facts: it stands until it is closed, or this process ends. Raises OSError."""
        with self.locked():
            fd = os.open(f"{os.getpid()}-{facts['pid']}{SIGN}", SIGN_FLAGS, 0o600, dir_fd=self.fd)
            made = os.fdopen(fd, "wb", buffering=0)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            made.write(json.dumps(facts).encode("ascii"))
            return made

    def signs(self) -> list[dict[str, Any]]:
        """Return the facts of all signs; those of processes that are gone are removed."""
        notes = []
        with self.locked():
            for name in sorted(name for name in os.listdir(self.fd) if name.endswith(SIGN)):
                with contextlib.suppress(OSError, ValueError):
                    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
                    with os.fdopen(fd, "rb") as file:
                        try:
                            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                            os.unlink(name, dir_fd=self.fd)
                        except BlockingIOError:
                            notes.append(json.loads(file.read()))
        return notes

    def _address(self, name: str) -> str:
        """Return the path of a socket; on Linux through the open folder, since such paths have 107 bytes at most."""
        if sys.platform == "linux" and os.path.isdir(f"/proc/self/fd/{self.fd}"):
            return f"/proc/self/fd/{self.fd}/{name}{SUFFIX}"
        return str(self.path / f"{name}{SUFFIX}")


def has_engines() -> bool:
    """Whether a warm engine may listen; False where the folder is not safe."""
    with contextlib.suppress(ResourceError), Runtime.opened() as runtime:
        return runtime is not None and bool(runtime.names())
    return False


def peer(connection: socket.socket) -> int:
    if hasattr(socket, "SO_PEERCRED"):
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    return int(struct.unpack("2I", connection.getsockopt(0, _LOCAL_PEERCRED, 76)[:8])[1])


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(PATIENCE)
    return made


def _unsafe(path: Path, why: OSError | str) -> ResourceError:
    reason = why if isinstance(why, str) else why.strerror or str(why)
    return ResourceError(f"{path} cannot hold the socket of a warm engine: {reason}", hint=ELSEWHERE)
