"""Which early exits stay in their folder: files that can be made again must not pile up.

Of a model, the tuned choice stays and the KEPT that were used last; of a model whose own file is gone or has changed,
nothing. It is looked after when another file is made, by the one process that then may write there.

Only what bears a name that was given here is ever removed, and never a file that a process is about to open: who wants
one holds a shared lock on it until it is loaded. Whose a file is, is noted beside it; one without a note stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KEPT = 2  # choices of a model beside the tuned one: to go to and fro between two costs a copy each time otherwise

_NAME = re.compile(r"([0-9a-f]{24})(-[0-9a-f]{12}\.gguf|\.json|\.from)")  # what Exits and this module write


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
        yield _is_same(fd, path)
    finally:
        os.close(fd)


def note_source(folder: Path, identity: str, source: Path) -> None:
    """Note that the files of `identity` are made of `source`; the caller holds the folder's lock."""
    found = source.stat()
    noted = {"path": str(source.absolute()), "size": found.st_size, "mtime_ns": found.st_mtime_ns}
    partial = folder / f"{identity}.part"
    partial.write_text(json.dumps(noted) + "\n", "utf-8")
    partial.replace(folder / f"{identity}.from")


def clean(folder: Path, identity: str, keep: Collection[Path]) -> None:
    """Remove what nobody needs, before a file of `identity` is made; the caller holds the folder's lock.

    `keep` are files that stay: the one to be made and the tuned one.
    """
    by_model: dict[str, list[Path]] = {}
    with suppress(OSError):  # what cannot be listed stays
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and _is_plain(path):
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
    """Return whether the file that a note tells of is what it was; a note that says nothing is no reason to remove."""
    try:
        noted = json.loads(note.read_text("utf-8"))
        source, size, mtime_ns = Path(noted["path"]), int(noted["size"]), int(noted["mtime_ns"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return True
    try:
        found = source.stat()
    except FileNotFoundError:
        return not source.parent.is_dir()  # without its folder it may lie on a drive that is not there now
    except OSError:
        return True
    return (found.st_size, found.st_mtime_ns) == (size, mtime_ns)


def _remove(path: Path) -> bool:
    """Remove a file unless somebody is about to open it; return whether it is gone."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            return True
        finally:
            os.close(fd)
    return False


def _is_same(fd: int, path: Path) -> bool:
    """Return whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _used(path: Path) -> int:
    """Return when the file was last used, in nanoseconds."""
    try:
        return path.stat().st_atime_ns
    except OSError:
        return 0
