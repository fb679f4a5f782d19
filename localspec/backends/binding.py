"""Threads of the engine that stay on processors of their own, where it has one for each of this process's.

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

from localspec.backends import cpus

SETTINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")  # what a person sets there stays


class Binding:
    """How this process's threads are bound. Where they cannot be, or need not, all of it does nothing."""

    def __init__(self) -> None:
        self._cpus = cpus.allowed()
        self._is_told = False

    @contextlib.contextmanager
    def loading(self, threads: int | None) -> Iterator[None]:
        """Import llama.cpp within this: it is to decode with `threads` (None: as many as fit), at first.

        Afterwards the calling thread may run anywhere, until `hold`.
        """
        everything = len(self._cpus)
        is_wanted = everything > 1 and everything == (threads or cpus.physical_cores())
        if is_wanted and not any(name in os.environ for name in SETTINGS):
            cpus.remember(self._cpus)
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
