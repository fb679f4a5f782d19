"""Saved states of texts on disk: a file a text, in a folder of this user's alone.

A file is trusted as little as a download: the checksum at its end is verified before llama.cpp sees a byte. What is
damaged, cut short or of another kind is no error. It is deleted or left alone, and the text is read anew.
"""

import contextlib
import hashlib
import io
import os
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.saved_state import SavedState
from localspec.engine.distribution import Ids
from localspec.settings.folders import replacing
from localspec.settings.stores import read_stored, write_stored

MAGIC = b"localspec state\n"
VERSION = 1
# Magic, version, tokens, of them read in chunks, points, bytes, seconds a token, key. Tokens and points follow.
HEAD = struct.Struct("<16sIIIIQd32s")
POINT = np.dtype([("length", "<u4"), ("bytes", "<u8")])
DIGEST = hashlib.sha256().digest_size
SUFFIX = ".state"
PIECE = 1 << 22  # bytes that are read at a time
STALE = 60.0  # seconds: a part that is older was left by a process that was killed
ASSUMED = 150e6  # bytes a second, until a state was read back: a slow disk
RATE = "read-rate"  # the file with the bytes a second that were measured
ENOUGH = 1 << 20  # bytes whose reading tells how fast the disk is
LATEST = 0.5  # weight of the last reading


@dataclass(frozen=True, slots=True)
class StateFile:
    """What a file says of itself; only its size was compared with that. `tokens` [n] are those of the text.

    To evaluate one of them took `seconds`. `points` [m] are the length and the bytes of each shorter state, which stand
    behind the whole one.
    """

    path: Path
    tokens: Ids
    read: int
    points: NDArray[Any]
    n_bytes: int
    seconds: float

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the lengths at which a model that keeps states can go on."""
        return (*self.points["length"].tolist(), len(self.tokens))


class StateFolder:
    """The states that take at most `limit` bytes together; those that were used least recently go first."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._rate: float | None = None

    @property
    def rate(self) -> float:
        """Return how many bytes a second are read back, as measured; a slow disk's until then."""
        if self._rate is None:
            rate = read_stored(self._folder / RATE, float)
            self._rate = rate if rate is not None and 1e6 <= rate <= 1e12 else ASSUMED
        return self._rate

    def of_kind(self, key: bytes) -> Iterator[StateFile]:
        for path in self._paths(f"{_name(key)}-*{SUFFIX}"):
            with contextlib.suppress(OSError, ValueError), _opened(path) as file:
                yield _head(path, file, key)

    def load(self, stored: StateFile, key: bytes) -> SavedState | None:
        """Return a state; None, and the file is gone, where it is not what was written."""
        began = time.perf_counter()
        try:
            with _opened(stored.path) as file:
                head = _head(stored.path, file, key)
                data, left = np.empty(head.n_bytes, np.uint8), head.n_bytes
                file.seek(0)
                digest = hashlib.sha256(file.read(HEAD.size + head.tokens.nbytes + head.points.nbytes))
                while n := file.readinto(rest := data.data[head.n_bytes - left :][:PIECE]):
                    digest.update(rest[:n])
                    left -= n
                is_whole = file.read() == digest.digest()
        except (OSError, ValueError, MemoryError):
            return None
        if not is_whole:
            self.remove(stored)
            return None
        with contextlib.suppress(OSError):
            os.utime(stored.path)
        self._measured(head.n_bytes, time.perf_counter() - began)
        starts = (len(data) - np.cumsum(head.points["bytes"][::-1])[::-1]).tolist()
        states = np.split(data, starts)
        return SavedState(head.tokens, head.read, states[0], tuple(zip(head.ends[:-1], states[1:], strict=True)))

    def write(self, key: bytes, state: SavedState, seconds: float) -> bool:
        """Keep a state, whose tokens took `seconds` each to evaluate; tell whether it was written.

        A part of its text that was kept before goes.
        """
        tokens = np.asarray(state.tokens, "<i4")
        points = np.array([(length, len(data)) for length, data in state.points], POINT)
        parts: list[Any] = [state.data, *(data for _, data in state.points)]
        n_bytes = sum(map(len, parts))
        head = HEAD.pack(MAGIC, VERSION, len(tokens), state.read, len(points), n_bytes, seconds, key)
        head += tokens.tobytes() + points.tobytes()
        size = len(head) + n_bytes + DIGEST
        named = hashlib.sha256(key + tokens.tobytes()).hexdigest()[:16]
        path = self._folder / f"{_name(key)}-{named}{SUFFIX}"
        if size > self._limit:
            return False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            os.chmod(self._folder, 0o700)
            others = (each for each in self.of_kind(key) if each.path != path)
            covered = [each for each in others if np.array_equal(tokens[: len(each.tokens)], each.tokens)]
            self._make_room(size)
            digest = hashlib.sha256()
            with replacing(path) as file:
                for part in (head, *parts):
                    file.write(part)
                    digest.update(part)
                file.write(digest.digest())
        except OSError:  # a full disk, a folder that may not be written: it is read anew next time
            return False
        for each in covered:
            self.remove(each)
        return True

    def remove(self, stored: StateFile) -> None:
        with contextlib.suppress(OSError):
            stored.path.unlink()

    def _paths(self, pattern: str) -> list[Path]:
        with contextlib.suppress(OSError):
            return list(self._folder.glob(pattern))
        return []

    def _make_room(self, size: int) -> None:
        """Delete what was used least recently until `size` bytes fit, and what killed processes left."""
        now, files = time.time(), []
        for path in self._paths("*"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                if path.suffix == SUFFIX:
                    files.append((status.st_mtime, status.st_size, path))
                elif (path.name[0] == "." or path.suffix == ".part") and now - status.st_mtime > STALE:
                    path.unlink()
        total = size + sum(n for _, n, _ in files)
        for _, n, path in sorted(files):
            if total <= self._limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= n

    def _measured(self, n: int, seconds: float) -> None:
        if n < ENOUGH or seconds <= 0:
            return
        self._rate = LATEST * n / seconds + (1.0 - LATEST) * self.rate
        with contextlib.suppress(OSError):
            write_stored(self._folder / RATE, round(self._rate))


def _name(key: bytes) -> str:
    return key.hex()[:16]


def _opened(path: Path) -> io.BufferedReader:
    """Open a plain file to be read; raises OSError for a link and all that is no file."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is no file")
    return open(fd, "rb")


def _head(path: Path, file: io.BufferedReader, key: bytes) -> StateFile:
    """Return what a file says of itself; raises ValueError for one that is not of this kind, or not of its length."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        raise ValueError(f"{path} is cut short")
    magic, version, n, read, n_points, n_bytes, seconds, stored_key = HEAD.unpack(head)
    size = HEAD.size + 4 * n + POINT.itemsize * n_points + n_bytes + DIGEST
    if (magic, version, stored_key, os.fstat(file.fileno()).st_size) != (MAGIC, VERSION, key, size):
        raise ValueError(f"{path} holds another state")
    tokens = np.frombuffer(file.read(4 * n), "<i4")
    points = np.frombuffer(file.read(POINT.itemsize * n_points), POINT)
    return StateFile(path, tokens, read, points, n_bytes, seconds)
