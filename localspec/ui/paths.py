"""Completing a path as it is typed."""

from __future__ import annotations

import os

MAX_NAMES = 200  # names: a folder of more is not chosen from by reading


def path_completions(typed: str, endings: tuple[str, ...] = ()) -> list[str]:
    """Return the paths that a beginning may become, folders with a slash; `endings` are those of files that count.

    What is written stays as it is written, "~" included. A hidden name is only offered where its dot was typed.
    """
    folder, slash, beginning = typed.rpartition("/")
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder + slash) or "."), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return []
    found = []
    for entry in entries:
        is_hidden = entry.name.startswith(".") and not beginning.startswith(".")
        if is_hidden or not entry.name.startswith(beginning):
            continue
        if _is_folder(entry):
            found.append(f"{folder}{slash}{entry.name}/")
        elif not endings or entry.name.lower().endswith(endings):
            found.append(f"{folder}{slash}{entry.name}")
    return found[:MAX_NAMES]


def is_path(typed: str) -> bool:
    """Whether a person writes a path, and no name."""
    return typed.startswith(("/", "~", "./", "../")) or (":" not in typed and "/" in typed)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
