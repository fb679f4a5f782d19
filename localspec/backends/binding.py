"""Which thread runs on which processor.

The engine's threads are bound to processors of their own, where each processor of this process has one. After every
operation the threads wait for each other, awake. Where there are as many as processors and another program
keeps one of these busy, Linux puts two threads on one processor for a while: there the one waits through its slice for
the other, which cannot run meanwhile, hundreds of times a pass. With bound threads the other program moves, or shares
with one of them. Where processors are left over Linux finds each thread its own, and binding would only tie two engines
to the same ones.

OpenMP binds the threads that it starts if it is told before it is loaded. The thread that loads it is bound too, and
what that starts meanwhile (a driver's threads) would be tied to its processor: so it is freed, and bound once the
models are loaded. Builds without OpenMP bind theirs in `backends/threads.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from localspec.backends.limits import allowed, physical_cores, remember, run_on

SETTINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")  # what a person sets there stays


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
                run_on(self._cpus)

    def hold(self, threads: int) -> None:
        """Bind the calling thread, which decodes with `threads`, to the processor that the other threads leave it."""
        if self._is_told and threads == len(self._cpus):
            from localspec.backends.threads import has_openmp  # late: it loads llama.cpp

            run_on({min(self._cpus) if has_openmp() else max(self._cpus)})
