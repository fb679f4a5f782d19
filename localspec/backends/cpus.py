"""How many threads this process should decode with: physical cores it may use.

Two threads on one core share its vector units, which decoding keeps busy: hyperthreads slow it down.

Threads of the engine that stay on processors of their own, where it has one for each of this process's.

After every operation the threads wait for each other, awake. Where there are as many as processors and another program
keeps one of these busy, Linux puts two threads on one processor for a while: there the one waits through its slice for
the other, which cannot run meanwhile, hundreds of times a pass. With bound threads the other program moves, or shares
with one of them. Where processors are left over Linux finds each thread its own, and binding would only tie two engines
to the same ones.

OpenMP binds the threads that it starts if it is told before it is loaded. The thread that loads it is bound too, and
what that starts meanwhile (a driver's threads) would be tied to its processor: so it is freed, and bound once the
models are loaded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from localspec.backends.cgroup import core_quota, read

SETTINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")  # what a person sets there stays
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


class Binding:
    """How this process's threads are bound. Where they cannot be, or need not, all of it does nothing."""

    def __init__(self) -> None:
        self._cpus = allowed()
        self._is_told = False

    @contextlib.contextmanager
    def loading(self, threads: int | None) -> Iterator[None]:
        """Import llama.cpp within this: it is to decode with `threads` (None: as many as fit), at first.

        Afterwards the calling thread may run anywhere, until `hold`.
        """
        everything = len(self._cpus)
        is_wanted = everything > 1 and everything == (threads or physical_cores())
        if is_wanted and not any(name in os.environ for name in SETTINGS):
            remember(self._cpus)
            os.environ["OMP_PROC_BIND"] = "true"
            self._is_told = True
        try:
            yield
        finally:
            if self._is_told:
                _run_on(self._cpus)

    def hold(self, threads: int) -> None:
        """Bind the calling thread, which decodes with `threads`, to the processor on which OpenMP counts it."""
        if self._is_told and threads == len(self._cpus):
            _run_on({min(self._cpus)})


def _run_on(processors: set[int]) -> None:
    # Refused where the processors were taken away from this process meanwhile.
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, processors)
