"""The part of the machine that this process may use: its processors, and what a control group leaves.

Containers and systemd limit cores and memory by Linux control groups. `available_memory` asks any system.

Two threads on one core share its vector units, which decoding keeps busy: hyperthreads slow it down. So a process
decodes with as many threads as it may use physical cores.
"""

from __future__ import annotations

import contextlib
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
    grants += [  # version 1
        [read(group / "cpu.cfs_quota_us"), read(group / "cpu.cfs_period_us")]
        for group in _groups(root / "cpu", self, "cpu")
    ]
    cores = [int(grant[0]) // int(grant[1]) for grant in grants if len(grant) == 2 and all(map(_is_count, grant))]
    return max(1, min(cores)) if cores else None


def memory_room(root: Path = ROOT, self: Path = SELF) -> int | None:
    """Return the bytes that may still be taken, file cache counted as free; None without a limit."""
    # Beyond memory.max a process is ended, beyond memory.high it is slowed down until it hardly runs.
    version_2 = (root, "", ("memory.high", "memory.max"), "memory.current", "")
    version_1 = (root / "memory", "memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_")
    known = [
        (read(group / limit), read(group / usage), _file_cache(read(group / "memory.stat"), prefix))
        for folder, controller, limits, usage, prefix in (version_2, version_1)
        for group in _groups(folder, self, controller)
        for limit in limits
    ]
    rooms = [
        int(limit) - int(used) + cache
        for limit, used, cache in known
        if _is_count(limit) and _is_count(used) and int(limit) < UNLIMITED
    ]
    return max(0, min(rooms)) if rooms else None


def available_memory() -> int | None:
    """Return the bytes of main memory this process could still take; None where the system does not say."""
    free = next((line.split()[1] for line in read(MEMINFO).splitlines() if line.startswith("MemAvailable:")), None)
    installed = None  # all memory there is: the best that macOS tells without help
    with contextlib.suppress(ValueError, OSError, AttributeError):
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [int(free) * 1024 if free else installed, memory_room()]
    return min((limit for limit in limits if limit is not None), default=None)


def read(path: Path) -> str:
    """Return the stripped text of a small file of the kernel, "" where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _groups(root: Path, self: Path, controller: str = "") -> Iterator[Path]:
    """Yield this process's group and those above it, of version 2 or of a `controller` of 1: each may limit.

    A container of version 1 may be shown its own group as `root`, and the name that the group has outside.
    """
    fields = [line.split(":", 2) for line in read(self).splitlines() if line.count(":") >= 2]
    name = next((name for _, controllers, name in fields if controller in controllers.split(",")), "/")
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


SYSFS = Path("/sys/devices/system/cpu")


_remembered: set[int] = set()  # the logical CPUs of this process before its threads were bound to some of them


def remember(cpus: set[int]) -> None:
    """Take `cpus` for those of this process from now on, whatever thread asks."""
    _remembered.update(cpus)


def allowed() -> set[int]:
    """Return the logical CPUs that this process may use; none where the system has no affinity mask."""
    try:
        return set(_remembered) or os.sched_getaffinity(0)
    except AttributeError:  # macOS and Windows
        return set()


def bound_processors(threads: int) -> set[int]:
    """Return the logical CPUs to which `threads` threads are bound, one each; none where they run anywhere."""
    return set(_remembered) if threads == len(_remembered) else set()


def physical_cores() -> int:
    cores = count_cores(allowed()) or os.cpu_count() or 1
    return max(1, min(cores, core_quota() or cores))


def count_cores(cpus: set[int], sysfs: Path = SYSFS) -> int:
    """Return how many cores the logical `cpus` are on; one of unknown topology counts as a core."""
    return len({_core(cpu, sysfs) for cpu in cpus})


def _core(cpu: int, sysfs: Path) -> str:
    """Name a CPU's core by the list of the threads on it."""
    topology = sysfs / f"cpu{cpu}" / "topology"
    return read(topology / "core_cpus_list") or read(topology / "thread_siblings_list") or f"cpu{cpu}"


def run_on(processors: set[int]) -> None:
    """Let the calling thread run on these logical CPUs; where there are none, leave it as it is."""
    # Refused where the processors were taken away from this process meanwhile.
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, processors)
