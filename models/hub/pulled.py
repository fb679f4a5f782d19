"""Files of the hub on this machine: those that are not whole yet, and the receipts of those that are.

Receipts tell which files localspec pulled, and the hash that was found right. A receipt is for one blob as it was: of
another size or changed since, it says nothing.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.settings.folders import state_folder
from localspec.settings.stores import read_stored, write_stored

BLOCK = 1 << 20  # bytes read at once for hashing


class LostError(Exception):
    """Another program has deleted the file while it was written."""


@dataclass(slots=True)
class Partial:
    """The bytes so far, in the file `path`; `size` of them, and all of `total` bytes are to hash to `sha256`."""

    path: Path
    handle: int
    total: int
    sha256: str
    size: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)

    @property
    def is_right(self) -> bool:
        return self.digest == self.sha256

    @property
    def digest(self) -> str:
        return str(self._digest.hexdigest())

    def resume(self, look: Callable[[], None]) -> None:
        """Take what an interrupted pull left, hashing it; `look` is called on the way. Too much of it is nothing."""
        if os.fstat(self.handle).st_size > self.total:
            self.clear()
            return
        while block := os.read(self.handle, BLOCK):
            self._digest.update(block)
            self.size += len(block)
            look()

    def clear(self) -> None:
        os.ftruncate(self.handle, 0)
        os.lseek(self.handle, 0, os.SEEK_SET)
        self._digest, self.size = hashlib.sha256(), 0

    def add(self, chunk: bytes) -> None:
        """Append bytes; raises OSError for a disk that does not take them, LostError where the file is gone."""
        if os.fstat(self.handle).st_nlink == 0:
            raise LostError
        view = memoryview(chunk)
        while view:
            view = view[os.write(self.handle, view) :]
        self._digest.update(chunk)
        self.size += len(chunk)

    def settle(self) -> None:
        """See that the bytes outlast a power failure, readable for whoever may read the folder."""
        try:
            os.fsync(self.handle)
        except OSError:
            # What the disk did not take may still be in memory, where the next pull would find it right.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self.handle, 0, 0, os.POSIX_FADV_DONTNEED)
            raise
        with suppress(OSError):  # drives of Windows and some shares have no permissions to give
            os.fchmod(self.handle, 0o666 & os.stat(self.path.parent).st_mode)


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


def hash_of(path: Path, report: Callable[[int], None] = lambda done: None) -> str:
    """Return the SHA-256 of a file; `report` is called with the bytes that were read so far. Raises OSError."""
    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            done += len(block)
            report(done)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was pulled from where; `mtime_ns` is the blob's own, `pulled` false where another program brought it."""

    blob: str
    sha256: str
    bytes: int
    mtime_ns: int
    repo: str
    commit: str
    file: str
    pulled: bool


class Receipts:
    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or state_folder("receipts")

    def of(self, blob: Path) -> Receipt | None:
        receipt = self.any(blob)
        with suppress(OSError):
            status = os.stat(blob)
            if receipt is not None and (receipt.bytes, receipt.mtime_ns) == (status.st_size, status.st_mtime_ns):
                return receipt
        return None

    def any(self, blob: Path) -> Receipt | None:
        receipt = read_stored(self._path(blob), Receipt)
        return receipt if receipt is not None and receipt.blob == str(blob) else None

    def is_unchanged(self, blob: Path) -> bool:
        """Whether a blob is as it was found right, hashing it again if it looks changed. True without a receipt."""
        receipt = self.any(blob)
        if receipt is None or self.of(blob) is not None:
            return True
        status = os.stat(blob)
        if status.st_size != receipt.bytes or hash_of(blob) != receipt.sha256:
            return False
        with suppress(OSError):
            self._store(replace(receipt, mtime_ns=status.st_mtime_ns))
        return True

    def write(
        self, blob: Path, status: os.stat_result, *, sha256: str, repo: str, commit: str, file: str, pulled: bool
    ) -> None:
        """Keep that a blob's hash was found right; `status` is that of its bytes."""
        self._store(Receipt(str(blob), sha256, status.st_size, status.st_mtime_ns, repo, commit, file, pulled))

    def move(self, blob: Path, to: Path) -> None:
        receipt = self.any(blob)
        if receipt is not None:
            self._store(replace(receipt, blob=str(to)))
            self.remove(blob)

    def _store(self, receipt: Receipt) -> None:
        write_stored(self._path(Path(receipt.blob)), receipt)

    def remove(self, blob: Path) -> None:
        with suppress(OSError):
            self._path(blob).unlink()

    def _path(self, blob: Path) -> Path:
        return self.folder / f"{hashlib.sha256(os.fsencode(blob)).hexdigest()[:32]}.json"
