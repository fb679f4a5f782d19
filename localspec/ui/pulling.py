"""Words of progress: the name of a file that is downloaded, and a time."""

from __future__ import annotations

from localspec.models.pull import DownloadProgress
from localspec.sanitize import one_line


def label(file: DownloadProgress, width: int) -> str:
    """Return a file's name, cut at its start where it is long."""
    name = one_line(file.item.file.name.rpartition("/")[2])
    return name if len(name) <= width else f"…{name[1 - width :]}"


def duration(seconds: float) -> str:
    """Return seconds as people say them."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
