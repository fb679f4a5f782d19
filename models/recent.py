"""The pairs that a chat has loaded, the last one first: one small file in the state folder.

A bare `localspec` opens the first of them, and the pair picker lists them on top. The file is a convenience: one that
is damaged or cannot be written costs the list and nothing else.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.ollama import spoken
from localspec.models.store import reference, target_reference
from localspec.settings.folders import state_folder
from localspec.settings.request import LoadSettings
from localspec.settings.stores import read_stored, write_stored

MAX_PAIRS = 9  # pairs: a list that is seen at a glance


@dataclass(frozen=True, slots=True)
class RecentPair:
    """A pair that was loaded. `pair` is a value of -m that finds it from any folder, `name` is for people. `target` and
    `draft` are absolute paths of its files as they were then, `used` is seconds since the epoch."""

    pair: str
    name: str
    target: str
    draft: str | None
    used: float

    @property
    def is_here(self) -> bool:
        return all(os.path.isfile(path) for path in (self.target, self.draft) if path is not None)


def recent_pairs() -> list[RecentPair]:
    """Return the pairs that were loaded last, the latest first; [] where none is known."""
    return (read_stored(_path(), list[RecentPair]) or [])[:MAX_PAIRS]


def remember_pair(settings: LoadSettings, clock: Callable[[], float] = time.time) -> None:
    new = RecentPair(reference(settings), settings.name, settings.target, settings.draft, clock())
    files = new.target, new.draft
    others = [each for each in recent_pairs() if (each.target, each.draft) != files]
    with suppress(OSError):
        write_stored(_path(), [new, *others][:MAX_PAIRS])


def _path() -> Path:
    return state_folder("recent.json")


def another_file(settings: LoadSettings) -> str:
    """Return a warning where the target is another file than the one that was expected, else ""."""
    name, mark = settings.expected or ("", "")
    if not mark or name != target_reference(settings) or mark == file_fingerprint(Path(settings.target)):
        return ""
    return f"{spoken(settings.target, briefly=True)} is another file than the one that answered in this conversation"
