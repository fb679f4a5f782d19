"""What a Linux control group leaves this process: containers and systemd limit cores and memory this way.

`available_memory` is that on any system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")
UNLIMITED = 1 << 60  # bytes: version 1 says a number even larger where there is no limit


def core_quota(root: Path = ROOT, self: Path = SELF) -> int | None:
    """Return the whole cores granted, at least 1; None without a limit."""
    grants = [read(group / "cpu.max").split() for group in _groups(root, self)]  # version 2: "200000 100000"
    grants.append([read(root / "cpu" / "cpu.cfs_quota_us"), read(root / "cpu" / "cpu.cfs_period_us")])  # version 1
    cores = [int(grant[0]) // int(grant[1]) for grant in grants if len(grant) == 2 and all(map(_is_count, grant))]
    return max(1, min(cores)) if cores else None


def memory_room(root: Path = ROOT, self: Path = SELF) -> int | None:
    """Return the bytes that may still be taken, file cache counted as free; None without a limit."""
    # Beyond memory.max a process is ended, beyond memory.high it is slowed down until it hardly runs.
    known = [
        (read(group / limit), read(group / "memory.current"), _file_cache(read(group / "memory.stat"), ""))
        for group in _groups(root, self)
        for limit in ("memory.high", "memory.max")
    ]
    old = root / "memory"  # version 1 shows a container its own group there
    limit, used = read(old / "memory.limit_in_bytes"), read(old / "memory.usage_in_bytes")
    known.append((limit, used, _file_cache(read(old / "memory.stat"), "total_")))
    rooms = [
        int(limit) - int(used) + cache
        for limit, used, cache in known
        if _is_count(limit) and _is_count(used) and int(limit) < UNLIMITED
    ]
    return max(0, min(rooms)) if rooms else None


def available_memory() -> int | None:
    """Return the bytes of main memory this process could still take; None where the system does not say."""
    free = next((line.split()[1] for line in read(MEMINFO).splitlines() if line.startswith("MemAvailable:")), None)
    limits = [int(free) * 1024 if free else _installed(), memory_room()]
    return min((limit for limit in limits if limit is not None), default=None)


def _installed() -> int | None:
    """Return all memory there is: the best that macOS tells without help."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def read(path: Path) -> str:
    """Return the stripped text of a small file of the kernel, "" where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _groups(root: Path, self: Path) -> Iterator[Path]:
    """Yield this process's version 2 group and those above it: each may limit."""
    name = next((line[3:] for line in read(self).splitlines() if line.startswith("0::")), "/")
    group = root / name.strip("/")
    while group != root and root in group.parents:
        yield group
        group = group.parent
    yield root


def _file_cache(stat: str, prefix: str) -> int:
    fields = dict(line.split() for line in stat.splitlines() if len(line.split()) == 2)
    return sum(int(fields.get(prefix + name, 0)) for name in ("active_file", "inactive_file"))


def _is_count(text: str) -> bool:
    return text.isdecimal() and int(text) > 0
