"""How often the tokens of a draft model are accepted, where the first load of the pair on this machine found out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.settings.folders import cache_folder


def learned(target: Path, draft: Path) -> float | None:
    """Return the chance at the usual temperature, None where no trial was made of these files."""
    folder = cache_folder("profiles")
    if not folder.is_dir():
        return None
    from localspec.control.profile import learned_acceptance  # late: it brings numpy

    with suppress(OSError):
        return learned_acceptance(folder, [file_fingerprint(target), file_fingerprint(draft)])
    return None
