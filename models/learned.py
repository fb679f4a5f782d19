"""What this machine measured of a target with a draft model: the chance that its tokens are accepted, and its price."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.settings.folders import cache_folder

if TYPE_CHECKING:
    from localspec.control.profile import Learned


def learned(target: Path, draft: Path) -> Learned | None:
    """Return what the profiles of these files say, None where there is none."""
    folder = cache_folder("profiles")
    if not folder.is_dir():
        return None
    from localspec.control.profile import learned_of  # late: it brings numpy

    with suppress(OSError):
        return learned_of(folder, [file_fingerprint(target), file_fingerprint(draft)])
    return None
