"""Files that people name for what is to be kept: written whole or not at all."""

from __future__ import annotations

import os
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
