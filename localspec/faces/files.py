"""Files that people name for what is to be kept: written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from localspec.errors import ResourceError


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


def write_output(path: Path, text: str, *, hint: str) -> None:
    """Write a file that others may read: in one step where that is possible. Raises ResourceError with `hint`.

    A link stays one, a file keeps its mode. Devices and pipes, and files in a folder that takes no others, are written
    as they are.
    """
    try:
        path = Path(os.path.realpath(path)) if path.is_file() else path
        if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):
            path.write_text(text, encoding="utf-8", newline="")
            return
        beside = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            # Not tempfile's, which nobody else may read: who may is the umask's to say.
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            with open(handle, "w", encoding="utf-8", newline="") as out:
                out.write(text)
            if path.exists():
                os.chmod(beside, path.stat().st_mode & 0o777)
            os.replace(beside, path)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
    except OSError as error:
        raise ResourceError(f"cannot write {path}: {error.strerror or error}", hint=hint) from None
