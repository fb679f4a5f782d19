"""The sha256 of model files, kept beside size and time of the file, for a 40 GB one takes a minute to read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.errors import NotFoundError

CHUNK = 1 << 22


class Hashes:
    """Looks up or computes; `reason` says why nothing could be kept, "" where it was."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.reason = ""

    def sha256(self, path: Path, on_progress: Callable[[float], None] = lambda share: None) -> str:
        """Return the file's hash. Raises NotFoundError where it cannot be read."""
        try:
            status = path.stat()
            key = f"{path}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}"
            kept = self._kept()
            if key in kept:
                return kept[key]
            digest, done = hashlib.sha256(), 0
            with path.open("rb") as file:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    on_progress(done / max(1, status.st_size))
        except OSError as error:
            raise NotFoundError(f"cannot read {path}: {error.strerror}", hint="Check the path.") from None
        self._keep({**kept, key: digest.hexdigest()})
        return digest.hexdigest()

    def of_model(self, parts: Sequence[Path], on_progress: Callable[[float], None] = lambda share: None) -> str:
        """Return the hash of a model: its file's, or that of its parts' hashes. Raises NotFoundError."""
        hashes = [self.sha256(part, on_progress) for part in parts]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()

    def _kept(self) -> dict[str, str]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return {str(key): str(value) for key, value in kept.items()} if isinstance(kept, dict) else {}

    def _keep(self, kept: dict[str, str]) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(kept), encoding="utf-8")
        except OSError as error:
            self.reason = error.strerror or str(error)
