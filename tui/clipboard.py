"""Copying: by a program of this machine where there is one, else through the terminal; and it is said which.

Over SSH the machine's own clipboard is the wrong one, and the terminal's sequence (OSC 52) is all there is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import Any

from textual.app import App

PROGRAMS = (
    ("WAYLAND_DISPLAY", ["wl-copy"]),
    ("DISPLAY", ["xclip", "-selection", "clipboard"]),
    ("DISPLAY", ["xsel", "--clipboard", "--input"]),
    ("", ["pbcopy"]),
)
PATIENCE = 2.0  # seconds


def copy(app: App[Any], text: str, what: str) -> str:
    """Copy `text`; return what to say of it."""
    size = f"{len(text.encode())} bytes"
    if not os.environ.get("SSH_TTY"):
        for variable, command in PROGRAMS:
            if variable and not os.environ.get(variable):
                continue
            if shutil.which(command[0]) and _given(command, text):
                return f"copied {what}, {size}, with {command[0]}"
    app.copy_to_clipboard(text)
    return f"copied {what}, {size}, through the terminal, which may not allow it"


def _given(command: list[str], text: str) -> bool:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command,
            input=text.encode(),
            timeout=PATIENCE,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return True
    return False
