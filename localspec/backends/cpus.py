"""How many threads this process should decode with: physical cores it may use.

Two threads on one core share its vector units, which decoding keeps busy: hyperthreads slow it down.
"""

from __future__ import annotations

import os
from pathlib import Path

from localspec.backends.cgroup import core_quota, read

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


def physical_cores() -> int:
    """Return the number of physical cores available to this process, at least 1."""
    cores = count_cores(allowed()) or os.cpu_count() or 1
    return max(1, min(cores, core_quota() or cores))


def count_cores(cpus: set[int], sysfs: Path = SYSFS) -> int:
    """Return how many cores the logical `cpus` are on; one of unknown topology counts as a core."""
    return len({_core(cpu, sysfs) for cpu in cpus})


def _core(cpu: int, sysfs: Path) -> str:
    """Name a CPU's core by the list of the threads on it."""
    topology = sysfs / f"cpu{cpu}" / "topology"
    return read(topology / "core_cpus_list") or read(topology / "thread_siblings_list") or f"cpu{cpu}"
