"""The file of a model in this process's memory: what llama.cpp has copied out of it leaves again.

Where weights are laid out anew, llama.cpp reads them from the mapped file into memory of its own, and both stay
resident: 1.6 times the file of a 1.5B in Q4_K_M. After the load the file's pages are let go. Those that a pass reads
come back with it, from the system's cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

MAPS = Path("/proc/self/maps")
DONTNEED = 4  # MADV_DONTNEED: pages of a file that is only read are read again when needed


@contextlib.contextmanager
def released(is_wanted: bool) -> Iterator[None]:
    """Let the pages of files go that were mapped within this. Where that is not wanted or impossible, do nothing."""
    before = _mapped() if is_wanted else set()
    yield
    for start, end in _mapped() - before if is_wanted else ():
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), DONTNEED)


def _mapped() -> set[tuple[int, int]]:
    """Return the addresses of files that this process shares and only reads."""
    ranges: set[tuple[int, int]] = set()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            for line in MAPS.read_text("utf-8", "replace").splitlines():
                span, rights, _, _, inode = line.split(maxsplit=5)[:5]
                if rights == "r--s" and inode != "0":
                    start, end = span.split("-")
                    ranges.add((int(start, 16), int(end, 16)))
    return ranges
