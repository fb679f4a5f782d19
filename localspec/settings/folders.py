"""Where localspec keeps its files: below LOCALSPEC_HOME, or in the folders that the system has for them.

Those that a person edits too are replaced here.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from localspec.errors import ResourceError

BOM = "\ufeff"


def cache_folder(name: str) -> Path:
    """Return where files called `name` that can be made again are kept: below LOCALSPEC_HOME, or where the system says.
    The folder need not exist."""
    return _folder("cache") / name


def states_folder() -> Path:
    return cache_folder("states")


def answers_folder() -> Path:
    return cache_folder("answers")


def drop_texts() -> None:
    """Delete what holds texts that were said and can be made again: states of prompts, and answers to copy from."""
    answers = answers_folder()
    index = list(cache_folder("corpus").glob("*.npy")) if answers.is_dir() else []
    for file in (*states_folder().glob("*.state"), *answers.glob("*"), *index):
        with suppress(OSError):
            file.unlink()


def config_folder() -> Path:
    return _folder("config")


def conversations_file() -> Path:
    return _folder("data") / "conversations.db"


def heads_folder() -> Path:
    return _folder("data") / "heads"


def drafts_folder() -> Path:
    return _folder("data") / "drafts"


def state_folder(name: str) -> Path:
    return _folder("state") / name


def typed_path(name: str) -> Path:
    """Return the path that a person typed. "~name" of nobody here is a file's name, as in a shell."""
    return Path(os.path.expanduser(name))


@contextmanager
def replacing(file: Path) -> Iterator[IO[bytes]]:
    """Open what takes the place of `file` when the block ends, for its owner alone; after an error nothing is left."""
    import tempfile  # late: few commands write

    handle, beside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}-")
    try:
        with open(beside, "wb", opener=lambda name, flags: handle) as out:
            yield out
        os.replace(beside, file)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)


def replace_file(file: Path, text: str) -> None:
    """Replace a file that a person edits too by one with `text`, or leave it as it is; a link to it stays a link. A
    byte order mark at its beginning stays too. Raises ResourceError where it cannot be written."""
    file = Path(os.path.realpath(file))
    text = text if text.endswith("\n") or not text else f"{text}\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        begins = file.read_bytes()[:3] if file.exists() else b""
        mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
        with replacing(file) as out:
            out.write(((BOM if begins == BOM.encode() else "") + text).encode("utf-8"))
            out.flush()
            os.fsync(out.fileno())
            os.fchmod(out.fileno(), mode)
    except OSError as error:
        message = f"cannot write {file}: {error.strerror}"
        raise ResourceError(message, hint="keep it elsewhere with LOCALSPEC_HOME=FOLDER") from error


def _folder(kind: str) -> Path:
    home = os.environ.get("LOCALSPEC_HOME")
    if home:
        return typed_path(home).absolute() / kind
    import platformdirs  # late; it follows XDG_CACHE_HOME and its like

    try:
        folder: Path = getattr(platformdirs, f"user_{kind}_path")("localspec")
    except RuntimeError:  # neither HOME nor an entry in the system's list of users
        raise ResourceError("this user has no home folder", hint="LOCALSPEC_HOME=FOLDER, or HOME=FOLDER") from None
    return folder
