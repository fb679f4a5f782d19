"""A file of the hub that is not whole yet: its bytes so far, their hash, and whether they came out right."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BLOCK = 1 << 20  # bytes read at once for hashing


class LostError(Exception):
    """Another program has deleted the file while it was written."""


class Partial:
    """The bytes so far, in the file `path`; `size` of them, and all of `total` bytes are to hash to `sha256`."""

    def __init__(self, path: Path, handle: int, total: int, sha256: str) -> None:
        self.path = path
        self.total = total
        self.sha256 = sha256
        self.size = 0
        self._handle = handle
        self._digest = hashlib.sha256()

    @property
    def is_right(self) -> bool:
        """Whether it is whole and what it should be."""
        return self.size == self.total and self.digest == self.sha256

    @property
    def digest(self) -> str:
        """Return the hash of the bytes so far."""
        return self._digest.hexdigest()

    def resume(self, look: Callable[[], None]) -> None:
        """Take what an interrupted pull left, hashing it; `look` is called on the way. Too much of it is nothing."""
        if os.fstat(self._handle).st_size > self.total:
            self.clear()
            return
        while block := os.read(self._handle, BLOCK):
            self._digest.update(block)
            self.size += len(block)
            look()

    def clear(self) -> None:
        os.ftruncate(self._handle, 0)
        os.lseek(self._handle, 0, os.SEEK_SET)
        self._digest, self.size = hashlib.sha256(), 0

    def add(self, chunk: bytes) -> None:
        """Append bytes; raises OSError for a disk that does not take them, LostError where the file is gone."""
        if os.fstat(self._handle).st_nlink == 0:
            raise LostError
        view = memoryview(chunk)
        while view:
            view = view[os.write(self._handle, view) :]
        self._digest.update(chunk)
        self.size += len(chunk)

    def settle(self) -> None:
        """See that the bytes outlast a power failure, readable for whoever may read the folder."""
        try:
            os.fsync(self._handle)
        except OSError:
            # What the disk did not take may still be in memory, where the next pull would find it right.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)
            raise
        with suppress(OSError):  # drives of Windows and some shares have no permissions to give
            os.fchmod(self._handle, 0o666 & os.stat(self.path.parent).st_mode)


@contextmanager
def partial_file(path: Path, total: int, sha256: str) -> Iterator[Partial]:
    """Open what there is of a file, or begin one; a link in its place, to bytes that are not ours, is removed."""
    if path.is_symlink():
        path.unlink()
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags, 0o666)
    try:
        yield Partial(path, handle, total, sha256)
    finally:
        os.close(handle)


def hash_of(path: Path, look: Callable[[], None]) -> str:
    """Return the SHA-256 of a file; `look` is called on the way."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            look()
    return digest.hexdigest()
