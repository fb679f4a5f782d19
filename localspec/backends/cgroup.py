"""What a Linux control group leaves this process: containers and systemd limit cores and memory this way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")


def core_quota(root: Path = ROOT, self: Path = SELF) -> int | None:
    """Return the whole cores granted, at least 1; None without a limit."""
    grants = [read(group / "cpu.max").split() for group in _groups(root, self)]  # version 2: "200000 100000"
    grants.append([read(root / "cpu" / "cpu.cfs_quota_us"), read(root / "cpu" / "cpu.cfs_period_us")])  # version 1
    cores = [int(grant[0]) // int(grant[1]) for grant in grants if len(grant) == 2 and all(map(_is_count, grant))]
    return max(1, min(cores)) if cores else None


def memory_room(root: Path = ROOT, self: Path = SELF) -> int | None:
    """Return the bytes that may still be taken, file cache counted as free; None without a limit."""
    rooms = []
    for group in _groups(root, self):
        limit, used = read(group / "memory.max"), read(group / "memory.current")
        if _is_count(limit) and _is_count(used):
            rooms.append(int(limit) - int(used) + _file_cache(read(group / "memory.stat")))
    return max(0, min(rooms)) if rooms else None


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


def _file_cache(stat: str) -> int:
    fields = dict(line.split() for line in stat.splitlines() if len(line.split()) == 2)
    return sum(int(fields.get(name, 0)) for name in ("active_file", "inactive_file"))


def _is_count(text: str) -> bool:
    return text.isdecimal() and int(text) > 0
