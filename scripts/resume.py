"""The measurements of an interrupted matrix, one JSON line each, so that the next call can go on.

The file is named after what is measured, so no other bench's lines are ever taken for ours. It goes when the bench is
complete; until then lines are only added, so a run that starts over costs an earlier one nothing. Invariant: a folder
that cannot be written, and a line that a crash tore, cost nothing but themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from localspec.bench.measurement import Measurement, from_wire
from localspec.errors import ResourceError
from localspec.ui.files import write_whole


def fingerprint(what: dict[str, Any]) -> str:
    """Return the name of a bench: the same models, prompts and options give the same."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


class State:
    """The lines of one bench below `folder`; `reason` says why nothing is kept, "" where it is."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.jsonl"
        self.reason = ""

    def load(self) -> list[Measurement]:
        """Return what was measured before; of a cell that was measured twice, what was measured last."""
        found = (_measurement(line) for line in self._lines())
        return list({one.cell: one for one in found if one is not None}.values())

    def begin(self) -> None:
        """Make the file ready for more lines. What it holds stays, but for torn lines, which would tear the next."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            lines = self._lines()
            whole = [line for line in lines if line.endswith("\n") and _measurement(line) is not None]
            if whole != lines:
                write_whole(self.path, "".join(whole), hint="free some space")
        except OSError as error:
            self._note(error)
        except ResourceError as error:
            self.reason = error.message

    def append(self, one: Measurement) -> None:
        """Keep one more; a disk that fills up is noted once."""
        if self.reason:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(one))
        except OSError as error:
            self._note(error)

    def clear(self) -> None:
        """Forget everything: the bench is complete."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _lines(self) -> list[str]:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        except OSError:
            return []

    def _note(self, error: OSError) -> None:
        self.reason = f"cannot write {self.path}: {error.strerror or error}"


def _line(one: Measurement) -> str:
    return json.dumps(one.to_wire()) + "\n"


def _measurement(line: str) -> Measurement | None:
    """Return what a line holds, None for a torn one."""
    try:
        return from_wire(json.loads(line))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
