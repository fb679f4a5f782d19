"""How much memory a process holds."""

from __future__ import annotations

import os


def resident(pid: int | None) -> int:
    """Return the resident size of a process in bytes, 0 where the system does not say."""
    if pid is None:
        return 0
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
