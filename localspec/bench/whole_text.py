"""Files of other people, read whole and with a limit: benches, results, caches."""

import gzip
import os
import stat
import zlib
from pathlib import Path

from localspec.errors import NotFoundError, UsageError
from localspec.sanitize import decoded
from localspec.settings.text_files import did_you_mean

LIMIT = 256 << 20  # bytes, unpacked


def read_text(path: Path, *, said: str, hint: str) -> str:
    """Return the text of a regular file, unpacked where its name ends in .gz; `said` is how an error calls it.

    Raises NotFoundError where it cannot be read, UsageError where it is too large or no text.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe that nobody writes to opens without waiting
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NotFoundError(f"cannot read {said}: it is not a regular file", hint=hint)
            if path.suffix == ".gz":
                with gzip.open(file) as unpacked:
                    data = unpacked.read(LIMIT + 1)
            else:
                data = file.read(LIMIT + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UsageError(f"{said} ends in .gz and is not a whole gzip file", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such name"
        raise NotFoundError(f"cannot read {said}: {reason}", hint=did_you_mean(str(path), hint)) from None
    if len(data) > LIMIT:
        raise UsageError(f"{said} is longer than {LIMIT >> 20} MiB", hint=hint)
    try:
        return decoded(data)
    except UnicodeDecodeError:
        raise UsageError(f"{said} is not UTF-8 text", hint=hint) from None
