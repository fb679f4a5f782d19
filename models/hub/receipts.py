"""Receipts: which files localspec pulled, and the hash that was found right.

A receipt is for one blob as it was: of another size or changed since, it says nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from localspec.models.hub.partial import hash_of
from localspec.settings.folders import state_folder


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was pulled from where; `mtime_ns` is the blob's own, `pulled` false where another program brought it."""

    blob: str
    sha256: str
    bytes: int
    mtime_ns: int
    repo: str
    commit: str
    file: str
    pulled: bool


class Receipts:
    """The receipts in a folder, one file each."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or state_folder("receipts")

    def of(self, blob: Path) -> Receipt | None:
        """Return the receipt of a blob that is as it was, None without one."""
        found = self.any(blob)
        with suppress(OSError):
            status = os.stat(blob)
            if found is not None and (found.bytes, found.mtime_ns) == (status.st_size, status.st_mtime_ns):
                return found
        return None

    def any(self, blob: Path) -> Receipt | None:
        """Return the receipt of a blob, also if it has changed since."""
        try:
            found = Receipt(**json.loads(self._path(blob).read_text("utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        return found if found.blob == str(blob) else None

    def is_unchanged(self, blob: Path) -> bool:
        """Whether a blob is as it was found right, hashing it again if it looks changed. True without a receipt."""
        receipt = self.any(blob)
        if receipt is None or self.of(blob) is not None:
            return True
        status = os.stat(blob)
        if status.st_size != receipt.bytes or hash_of(blob, lambda: None) != receipt.sha256:
            return False
        with suppress(OSError):
            self._store(replace(receipt, mtime_ns=status.st_mtime_ns))
        return True

    def write(
        self, blob: Path, status: os.stat_result, *, sha256: str, repo: str, commit: str, file: str, pulled: bool
    ) -> None:
        """Keep that a blob's hash was found right; `status` is that of its bytes."""
        self._store(Receipt(str(blob), sha256, status.st_size, status.st_mtime_ns, repo, commit, file, pulled))

    def move(self, blob: Path, to: Path) -> None:
        """Keep a receipt for where its bytes are now; the move left their time as it was."""
        found = self.any(blob)
        if found is not None:
            self._store(replace(found, blob=str(to)))
            self.remove(blob)

    def _store(self, receipt: Receipt) -> None:
        path = self._path(Path(receipt.blob))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(asdict(receipt)) + "\n", "utf-8")
        beside.replace(path)

    def remove(self, blob: Path) -> None:
        with suppress(OSError):
            self._path(blob).unlink(missing_ok=True)

    def _path(self, blob: Path) -> Path:
        return self.folder / f"{hashlib.sha256(os.fsencode(blob)).hexdigest()[:32]}.json"
