"""A spelling of a pair that finds the same files again, from any folder and on another day.

The name on screen need not be one: of a file it has the last part alone.
"""

from __future__ import annotations

from localspec.errors import LocalspecError
from localspec.models.store import parse_pair
from localspec.settings.request import LoadSettings


def reference(settings: LoadSettings) -> str:
    """Return a spelling of the pair that finds the same files again, from any folder."""
    if _files(settings.name) == (settings.target, settings.draft):
        return settings.name
    return f"{target_reference(settings)}+{settings.draft or 'none'}"


def target_reference(settings: LoadSettings) -> str:
    """Return such a spelling of the target alone."""
    name = settings.name.partition("+")[0]
    return name if _files(f"{name}+none")[0] == settings.target else settings.target


def _files(name: str) -> tuple[str, str | None]:
    """Return the files that a pair's name stands for here; "" for none."""
    try:
        pair = parse_pair(name)
    except LocalspecError:
        return "", None
    return str(pair.target.absolute()), None if pair.draft is None else str(pair.draft.absolute())
