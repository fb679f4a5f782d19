"""Where localspec keeps its files: below LOCALSPEC_HOME, or in the folders that the system has for them."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return where files called `name` that can be made again are kept: below LOCALSPEC_HOME, or where the system says.

    The folder need not exist.
    """
    return _folder("cache") / name


def config_folder() -> Path:
    """Return where the user's own settings are kept. The folder need not exist."""
    return _folder("config")


def conversations_file() -> Path:
    """Return where the chat keeps what was said. Neither the file nor its folder need exist."""
    return _folder("data") / "conversations.db"


def heads_folder() -> Path:
    """Return where the draft heads are kept that were trained here. The folder need not exist."""
    return _folder("data") / "heads"


def state_folder(name: str) -> Path:
    """Return where localspec keeps what it did, such as receipts. The folder need not exist."""
    return _folder("state") / name


def typed_path(name: str) -> Path:
    """Return the path that a person typed. "~name" of nobody here is a file's name, as in a shell."""
    return Path(os.path.expanduser(name))


def _folder(kind: str) -> Path:
    home = os.environ.get("LOCALSPEC_HOME")
    if home:
        return typed_path(home).absolute() / kind
    import platformdirs  # late; it follows XDG_CACHE_HOME and its like

    folder: Path = getattr(platformdirs, f"user_{kind}_path")("localspec")
    return folder
