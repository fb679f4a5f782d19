"""The most memory that this process held: since `reset` where the system can count anew, since its start elsewhere."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset() -> None:
    """Let the count begin with what is held now (Linux; nothing elsewhere)."""
    with contextlib.suppress(OSError):
        RESET.write_text("5", encoding="ascii")


def of_process() -> int:
    """Return the largest resident size in bytes; models that are mapped from files are part of it."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = STATUS.read_text("ascii", "replace").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # macOS counts bytes, Linux kibibytes
