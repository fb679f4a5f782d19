"""What an interrupted bench has measured so far, a JSON line a measurement, so that `--resume` can go on.

The file is named after what is measured, so no other bench's lines are ever taken for ours. It goes when the bench is
complete. Invariant: a folder that cannot be written, and a line that a crash tore, cost nothing but themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from localspec.bench.measurement import Measurement, from_wire


def fingerprint(what: dict[str, Any]) -> str:
    """Return the name of a bench: the same models, prompts and options give the same."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


class State:
    """The lines of one bench below `folder`; `reason` says why nothing is kept, "" where it is."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.jsonl"
        self.reason = ""

    def load(self) -> list[Measurement]:
        """Return what was measured before."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        found = []
        for line in lines:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                found.append(from_wire(json.loads(line)))
        return found

    def begin(self, kept: list[Measurement]) -> None:
        """Start the file with the measurements that are still good."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(map(_line, kept)), encoding="utf-8")
        except OSError as error:
            self.reason = error.strerror or str(error)

    def append(self, one: Measurement) -> None:
        """Keep one more; a disk that fills up is noted once."""
        if self.reason:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(one))
        except OSError as error:
            self.reason = error.strerror or str(error)

    def clear(self) -> None:
        """Forget everything: the bench is complete."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def _line(one: Measurement) -> str:
    return json.dumps(one.to_wire()) + "\n"
