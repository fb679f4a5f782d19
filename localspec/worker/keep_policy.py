"""For how long an engine stays in memory, and whether one is to be started for a pair.

`server/warm_engine.py` ends it. Which pairs of a server stay beside each other is in `server/engine.py`.
"""

import contextlib
import os
from dataclasses import dataclass

from localspec.settings.request import LoadSettings

SPARE = 1.25  # times the files' size: memory that a pair takes with its context
BASE = 512 << 20  # bytes on top
SLOW = 2.0  # seconds of a load after which an engine stays though nobody asked for that
LEAST = 100 << 20  # bytes of a pair whose load may be a slow one


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Seconds for which an engine stays after its last client; 0 starts none, and leaves the time of one as it is.

    `is_auto`: nobody asked for it, so only a pair stays that loads slowly and leaves as much memory to others.
    """

    seconds: float = 0.0
    is_auto: bool = False

    def wants(self, settings: LoadSettings) -> bool:
        if not self.is_auto or not self.seconds:
            return self.seconds > 0
        size = pair_bytes(settings)
        if size < LEAST:
            return False
        from localspec.backends.limits import available_memory  # late: few commands ask

        room = available_memory()
        return room is not None and 2 * (SPARE * size + BASE) <= room


def pair_bytes(settings: LoadSettings) -> int:
    with contextlib.suppress(OSError):
        return sum(os.path.getsize(path) for path in (settings.target, settings.draft) if path)
    return 0


def fits(settings: LoadSettings) -> bool:
    from localspec.backends.limits import available_memory  # late, as above

    room = available_memory()
    return room is not None and room >= BASE + SPARE * pair_bytes(settings)
