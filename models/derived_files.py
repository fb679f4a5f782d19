"""Files that are made of a model and kept in a cache folder: written by one process at a time, whole or not at all.

They can be made again, so old ones are removed when another is made: see `clean`. Only a file with a name that was
given here is ever removed, and never one that a process is about to open: `in_use` holds a shared lock on it until it
is loaded. A note beside the files names their source; files without a note stay.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, ResourceError
from localspec.models.gguf.header import Header, read_header
from localspec.models.gguf.opening import open_regular
from localspec.sanitize import shown
from localspec.settings.sizes import size
from localspec.settings.stores import read_stored, write_stored

KEPT = 2  # files of a model beside the tuned one: to go to and fro between two costs a copy each time otherwise
_NAME = re.compile(r"([0-9a-f]{24})(-[0-9a-f]{12}\.gguf|\.json|\.from)")  # of files, tuned choices and notes
_CHEAP = 64 * 2**20  # bytes: up to here the whole file is hashed, in well under a second
_SAMPLE = 64 * 2**10
_SAMPLES = 32


def identity(header: Header) -> str:
    """Return a name for the file's content. A small file is hashed whole. Of a large one: size, time of change, and its
    start, its end and blocks between."""
    digest = hashlib.sha256(b"early-exit 1")  # with another start all files would be made anew
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


def made(path: Path, source: Header, what: str, write: Callable[[Path], None], keep: Collection[Path] = ()) -> Path:
    """Return `path`, which `write` makes of `source` if it is not there yet; `keep` stays beside it. The name begins
    with the identity of `source`. Raises ResourceError where `what` cannot be kept."""
    if not is_whole(path):
        folder, mark = path.parent, path.name.partition("-")[0]
        with only_writer(folder, what):
            if not is_whole(path):  # another process may have made it meanwhile
                clean(folder, mark, {path, *keep})
                with new_file(path, what) as part:
                    write(part)
                with suppress(OSError):  # a file without a note stays
                    status = source.path.stat()
                    noted = _Source(str(source.path.absolute()), status.st_size, status.st_mtime_ns)
                    write_stored(folder / f"{mark}.from", noted)
    return path


def require_space(folder: Path, needed: int, what: str, hint: str = "free some space") -> None:
    """Refuse to fill the disk, before a large file takes minutes until it fails. Raises ResourceError."""
    free = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.is_dir())).free
    if needed > free:
        raise ResourceError(
            f"{what} needs {size(needed)} in {shown(folder)}, and {size(free)} are free",
            hint=f"{hint}, or keep it elsewhere with LOCALSPEC_HOME=FOLDER",
            detail={"needed_bytes": needed, "free_bytes": free},
        )


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


@contextmanager
def new_file(path: Path, what: str) -> Iterator[Path]:
    """Yield the place of a file that gets the name `path` at the end; after an error nothing is left of it."""
    part = path.with_suffix(".part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise unwritable(path.parent, what, error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def is_whole(path: Path) -> bool:
    try:
        read_header(path)
    except LocalspecError:
        return False
    return True


def unwritable(folder: Path, what: str, error: OSError) -> ResourceError:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    message = f"{what} cannot be kept in {shown(folder)}: {error.strerror or error}"
    return ResourceError(message, hint="free some space" if is_full else "keep it elsewhere with LOCALSPEC_HOME=FOLDER")


@contextmanager
def in_use(path: Path) -> Iterator[bool]:
    """Keep `path` from being removed, and note that it was used now; False where it is not there (any more)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_SH)
        with suppress(OSError):  # not ours to touch: it only counts as less used
            os.utime(fd, ns=(time.time_ns(), os.fstat(fd).st_mtime_ns))
        is_there = False
        with suppress(OSError):
            is_there = os.path.samestat(os.fstat(fd), path.stat())
        yield is_there
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class _Source:
    path: str
    size: int
    mtime_ns: int


def clean(folder: Path, identity: str, keep: Collection[Path]) -> None:
    """Remove old files before one of `identity` is made; the caller holds the folder's lock. Of a model the files in
    `keep` stay (the one to be made, the tuned one) and the `KEPT` used last. Of a model whose own file is gone or has
    changed none stays."""
    by_model: dict[str, list[Path]] = {}
    with suppress(OSError):  # what cannot be listed stays
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and path.is_file() and not path.is_symlink():
                by_model.setdefault(match[1], []).append(path)
    for model, paths in by_model.items():
        if model == identity:
            exits = [path for path in paths if path.suffix == ".gguf" and path not in keep]
            for path in sorted(exits, key=_used, reverse=True)[KEPT - 1 :]:  # the one to be made is one of them
                _remove(path)
        elif not _is_there(note := folder / f"{model}.from"):
            removed = [_remove(path) for path in paths if path != note]
            if all(removed):  # else the next time needs to know whose they are
                _remove(note)


def _is_there(note: Path) -> bool:
    noted = read_stored(note, _Source)
    if noted is None:
        return True
    try:
        status = os.stat(noted.path)
    except FileNotFoundError:
        return not os.path.isdir(os.path.dirname(noted.path))  # it may lie on a drive that is not there now
    except (OSError, ValueError):
        return True
    return (status.st_size, status.st_mtime_ns) == (noted.size, noted.mtime_ns)


def _remove(path: Path) -> bool:
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            return True
        finally:
            os.close(fd)
    return False


def _used(path: Path) -> int:
    try:
        return path.stat().st_atime_ns
    except OSError:
        return 0
