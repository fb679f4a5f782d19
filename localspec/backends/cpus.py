"""How many threads this process should decode with: physical cores it may use.

Two threads on one core share its vector units, which decoding keeps busy: hyperthreads slow it down.
"""

from __future__ import annotations

import os
from pathlib import Path

SYSFS = Path("/sys/devices/system/cpu")
CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def physical_cores(sysfs: Path = SYSFS) -> int:
    """Return the number of physical cores available to this process, at least 1."""
    try:
        logical = os.sched_getaffinity(0)
    except AttributeError:  # macOS and Windows have no affinity mask
        return max(1, os.cpu_count() or 1)
    cores = {_core(cpu, sysfs) for cpu in logical}
    quota = _quota()
    return max(1, min(len(cores), quota) if quota else len(cores))


def _core(cpu: int, sysfs: Path) -> str:
    """Name the core of a logical CPU by the list of its threads; a CPU of unknown topology counts as a core."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        text = _read(sysfs / f"cpu{cpu}" / "topology" / name)
        if text:
            return text
    return f"cpu{cpu}"


def _quota() -> int | None:
    """Return the whole cores that a control group grants, None without a limit."""
    text = _read(CGROUP_V2).split()
    if len(text) == 2 and text[0].isdecimal():
        return max(1, int(text[0]) // int(text[1]))
    quota, period = _read(CGROUP_V1 / "cpu.cfs_quota_us"), _read(CGROUP_V1 / "cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(period) > 0:
        return max(1, int(quota) // int(period))
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
