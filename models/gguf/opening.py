"""Opening a file that should be GGUF, which never blocks."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.errors import NotFoundError
from localspec.sanitize import shown


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[int, int]]:
    """Yield file descriptor and size in bytes of a regular file. Raises NotFoundError for whatever is missing, not
    readable or not a regular file; opening a FIFO or a device could block or have effects, so the kind is looked at
    first, and again once the file is open."""
    try:
        _check_regular(path, os.stat(path).st_mode)
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # ValueError: a zero byte or a lone surrogate in the path
        raise _unreadable(path, error) from error
    try:
        status = os.fstat(fd)
        _check_regular(path, status.st_mode)
        yield fd, status.st_size
    finally:
        os.close(fd)


def _check_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        message = f"{shown(path)} is a directory, not a GGUF file"
        raise NotFoundError(message, hint="give the path of a .gguf file in it")
    if not stat.S_ISREG(mode):
        message = f"{shown(path)} is a pipe or a device, not a GGUF file"
        raise NotFoundError(message, hint="give the path of a .gguf file")


def _unreadable(path: Path, error: OSError | ValueError) -> NotFoundError:
    name = shown(path)
    if isinstance(error, FileNotFoundError):
        hint = "the link points nowhere" if path.is_symlink() else "Check the path."
        return NotFoundError(f"{name} does not exist", hint=hint)
    if isinstance(error, PermissionError):
        message = f"{name} may not be read by this user"
        return NotFoundError(message, hint="give yourself the right with: chmod u+r FILE")
    reason = (error.strerror or "it cannot be opened") if isinstance(error, OSError) else "it is not a possible path"
    return NotFoundError(f"{name} cannot be opened: {reason}", hint="Check the path.")
