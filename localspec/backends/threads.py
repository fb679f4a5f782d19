"""How many threads a model decodes with: all cores for a large one, one for a tiny one, measured between.

Threads meet at a barrier after every operation. In a model of a few megabytes an operation takes microseconds, so the
barriers can cost more than the second core brings, and on a busy machine a thread that waits for its core stalls all:
a 5 MB model on two contended cores was seen at 7 tokens/s with two threads and at 2 800 with one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from localspec.backends.cpus import physical_cores
from localspec.backends.lib import api
from localspec.tuning import TINY_WEIGHTS

SMALL_MODEL = 256 * 2**20  # beyond, a pass takes tens of milliseconds and barriers do not matter
TRIES = 5


def settle_threads(context: Any, n_bytes: int, decode: Callable[[], None]) -> int:
    """Set and return the context's thread count; `decode` evaluates one token and forgets it."""
    cores = physical_cores()
    if n_bytes < TINY_WEIGHTS:
        fastest = 1
    elif n_bytes > SMALL_MODEL or cores == 1:
        fastest = cores
    else:
        fastest = min((1, cores), key=lambda n: _time(context, n, decode))
    api.llama_set_n_threads(context, fastest, fastest)
    return fastest


def _time(context: Any, n_threads: int, decode: Callable[[], None]) -> float:
    """Return the median seconds of a pass: a count that is only sometimes fast is not fast."""
    api.llama_set_n_threads(context, n_threads, n_threads)
    seconds = []
    for _ in range(TRIES):
        began = time.perf_counter()
        decode()
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[TRIES // 2]
