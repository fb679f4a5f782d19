"""Files that people name: read with a limit, written whole or not at all, and completed as they are typed."""

import errno
import os
import stat
from pathlib import Path

from localspec.errors import NotFoundError, PromptTooLongError, ResourceError, UsageError
from localspec.settings.folders import replacing
from localspec.settings.text_files import did_you_mean, is_binary

MAX_NAMES = 200  # names: a folder of more is not chosen from by reading


def write_whole(path: Path, text: str, *, hint: str) -> None:
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise ResourceError(f"cannot write {path}: {error.strerror}", hint=hint) from None


def read_regular(name: str, limit: int, *, said: str = "") -> bytes:
    """Return the bytes of a regular file or of /dev/null, at most `limit`; `said` is how an error calls it. Raises
    NotFoundError, PromptTooLongError, or UsageError for a file that is too long and no text anyway."""
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
        hint = did_you_mean(name, "the name of a text file")
        raise NotFoundError(f"cannot read {said}: {reason}", hint=hint) from None
    if len(data) > limit and is_binary(data):
        raise UsageError(f"{said} is no text", hint="the name of a text file")
    if len(data) > limit:
        raise PromptTooLongError(f"{said} is longer than {limit / 2**20:g} MiB", hint="a shorter text")
    return data


def path_completions(typed: str, endings: tuple[str, ...] = ()) -> list[str]:
    """Return the paths that a beginning may become, folders with a slash; `endings` are those of files that count. What
    is written stays as it is written, "~" included. A hidden name is only offered where its dot was typed."""
    folder, slash, beginning = typed.rpartition("/")
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder + slash) or "."), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return []
    names = []
    for entry in entries:
        is_hidden = entry.name.startswith(".") and not beginning.startswith(".")
        if is_hidden or not entry.name.startswith(beginning):
            continue
        if _is_folder(entry):
            names.append(f"{folder}{slash}{entry.name}/")
        elif not endings or entry.name.lower().endswith(endings):
            names.append(f"{folder}{slash}{entry.name}")
    return names[:MAX_NAMES]


def several_completions(typed: str) -> list[str]:
    """Return the lines of paths that a beginning may become: its end, of one word or more, is the beginning of one."""
    for at in [0, *(i + 1 for i, char in enumerate(typed) if char == " ")]:
        if paths := path_completions(typed[at:]):
            return [typed[:at] + path for path in paths]
    return []


def is_path(typed: str) -> bool:
    return typed.startswith(("/", "~", "./", "../")) or (":" not in typed and "/" in typed)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
