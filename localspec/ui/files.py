"""Files that people name: read with a limit, written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from localspec.errors import NotFoundError, PromptTooLongError, ResourceError


def write_whole(path: Path, text: str, *, hint: str) -> None:
    """Write a file in one step, readable by its owner alone. Raises ResourceError with `hint`."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", newline="", delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as error:
        if "file" in locals():
            Path(file.name).unlink(missing_ok=True)
        raise ResourceError(f"cannot write {path}: {error.strerror}", hint=hint) from None


def read_regular(name: str, limit: int, *, said: str = "") -> bytes:
    """Return the bytes of a regular file or of /dev/null, at most `limit`; `said` is how an error calls it.

    Raises NotFoundError, or PromptTooLongError.
    """
    said = said or name
    try:
        fd = os.open(os.path.expanduser(name), os.O_RDONLY | os.O_NONBLOCK)  # which opens a pipe without waiting
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not (stat.S_ISREG(status.st_mode) or os.path.samestat(status, os.stat(os.devnull))):
                raise OSError(errno.EINVAL, "it is not a regular file")
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such name"
        raise NotFoundError(f"cannot read {said}: {reason}", hint="the name of a text file") from None
    if len(data) > limit:
        raise PromptTooLongError(f"{said} is longer than {limit / 2**20:g} MiB", hint="a shorter text")
    return data
