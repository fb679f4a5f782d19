"""Names of files that options have.

In config.toml they are relative to its folder, and absolute once `localspec config set` has written them.
On the command line and in the environment they are relative to the current folder, as everywhere.

What the shell has for <(command) is a pipe of this process alone: what it holds is kept for the engine's process too.
"""

import fcntl
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from localspec.errors import NotFoundError, PromptTooLongError, UsageError
from localspec.models.lookup import placed
from localspec.models.names import DraftChoice, ModelName, PathName, parse, parse_draft
from localspec.settings.folders import typed_path

_PIPE = re.compile(r"(@?)(/dev/fd/|/proc/self/fd/)(\d{1,9})")
LONGEST = 256 << 20  # bytes that one pipe may hold
_KEPT: list[IO[bytes]] = []  # files that are gone with this process


def kept(given: Any, option: str) -> Any:
    """Return what an option was given; for a pipe that the shell made of <(command), a file's name with its content.
    Raises PromptTooLongError for a command that writes without end, and NotFoundError where it cannot be read."""
    if isinstance(given, list | tuple):
        return [kept(each, option) for each in given]
    match = _PIPE.fullmatch(given) if isinstance(given, str) else None
    if match is None or not _is_input(int(match[3])):
        return given
    import tempfile  # late: few commands need it

    try:
        with open(int(match[3]), "rb", closefd=False) as pipe:
            content = pipe.read(LONGEST + 1)
        is_nameless = os.path.isdir("/proc/self/fd")  # where an open file has a name in any case
        file = (tempfile.TemporaryFile if is_nameless else tempfile.NamedTemporaryFile)()
        file.write(content)
        file.flush()
    except OSError as error:
        raise NotFoundError(f"{option} {given} cannot be read: {error.strerror}", hint=f"{option} FILE") from None
    if len(content) > LONGEST:
        raise PromptTooLongError(f"{option} {given} is longer than {LONGEST >> 20} MiB", hint="a shorter text")
    _KEPT.append(file)
    return f"{match[1]}{f'/proc/{os.getpid()}/fd/{file.fileno()}' if is_nameless else file.name}"


def _is_input(fd: int) -> bool:
    try:
        is_read = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        return is_read and stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def located(key: str, placeholder: str, text: str, folder: Path) -> str:
    """Return an option's text with the files that it names, as seen from `folder`, absolute; other texts as they are.
    `placeholder` is what the help shows in place of the text. It says where a text names a file: FILE, FOLDER or PATH,
    NAME|FILE, TEXT|@FILE. In PATH|answers the second is a word of its own."""
    if text.islower() and text in placeholder.split("|"):
        return text
    if key in ("model", "draft"):
        return _pair(key, text, folder)
    if "@FILE" in placeholder:
        return f"@{_path(text[1:], folder)}" if text[:1] == "@" else text
    if placeholder.startswith(("FILE", "FOLDER", "PATH")):
        return _path(text, folder)
    is_path = "FILE" in placeholder and (os.sep in text or "." in text)  # else it is a name
    return _path(text, folder) if is_path else text


def _path(text: str, folder: Path) -> str:
    return text if text in ("", "-") else os.path.normpath(folder / typed_path(text))


def _pair(key: str, text: str, folder: Path) -> str:
    def exists(path: str) -> bool:
        return os.path.exists(folder / typed_path(path))

    parts: list[ModelName | DraftChoice] = []
    try:
        if key == "model":
            pair = parse(text, exists=exists)
            parts += [pair.target, *([] if pair.draft is DraftChoice.UNSET else [pair.draft])]
        else:
            parts.append(parse_draft(text, exists=exists))
    except (UsageError, ValueError):  # told where the pair is looked up
        return text
    has_file = any(isinstance(each, PathName) for each in parts)
    return "+".join(_model(each, folder) for each in parts) if has_file else text


def _model(name: ModelName | DraftChoice, folder: Path) -> str:
    if isinstance(name, PathName):
        with suppress(UsageError):  # told where the pair is looked up
            name = name if os.path.lexists(folder / typed_path(name.path)) else placed(name)
        return _path(name.path, folder)
    return name.value if isinstance(name, DraftChoice) else str(name)
