"""Files that are made of a model and kept in a cache folder: written by one process at a time, whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.errors import LocalspecError, ResourceError
from localspec.models.gguf.header import Header, read_header
from localspec.models.gguf.open import open_regular
from localspec.sanitize import shown

_CHEAP = 64 * 2**20  # bytes: up to here the whole file is hashed, in well under a second
_SAMPLE = 64 * 2**10
_SAMPLES = 32


def identity(header: Header) -> str:
    """Return a name for the file's content.

    A small file is hashed whole. Of a large one: size, time of change, and its start, its end and blocks between.
    """
    digest = hashlib.sha256(b"early-exit 1")
    for path in header.files[1:]:  # of the further parts of a split model, what says whether they changed
        with open_regular(path) as (fd, size):
            digest.update(size.to_bytes(8, "little"))
            digest.update(os.fstat(fd).st_mtime_ns.to_bytes(16, "little", signed=True))
    with open_regular(header.path) as (fd, size):
        digest.update(size.to_bytes(8, "little"))
        if size <= _CHEAP:
            spans = [(at, 2**20) for at in range(0, size, 2**20)]
        else:
            digest.update(os.fstat(fd).st_mtime_ns.to_bytes(16, "little", signed=True))
            step = (size - header.data_offset - _SAMPLE) // (_SAMPLES - 1)
            spans = [(at, 2**20) for at in range(0, header.data_offset, 2**20)]
            spans += [(header.data_offset + i * step, _SAMPLE) for i in range(_SAMPLES)]
        for at, n in spans:
            digest.update(os.pread(fd, n, at))
    return digest.hexdigest()[:24]


@contextmanager
def only_writer(folder: Path, what: str) -> Iterator[None]:
    """Wait until no other process writes here, then clear away what an interrupted one left half done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(folder, what, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the system when its holder dies
            for left in (*folder.glob("*.part"), *folder.glob("*.tmp")):
                left.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(folder, what, error) from error
        yield
    finally:
        os.close(lock)


def is_whole(path: Path) -> bool:
    """Return whether a file is there and as long as its header says."""
    try:
        read_header(path)
    except LocalspecError:
        return False
    return True


def unwritable(folder: Path, what: str, error: OSError) -> ResourceError:
    """Return the error of a folder where `what` cannot be kept."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return ResourceError(
        f"{what} cannot be kept in {shown(folder)}: {error.strerror or error}",
        hint="free some space" if is_full else "keep it elsewhere with LOCALSPEC_HOME=FOLDER",
    )
