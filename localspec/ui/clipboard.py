"""Copying: by a program of this machine where there is one, else through the terminal (OSC 52).

Over SSH a program would fill the wrong machine's clipboard. A terminal does not say whether it copied, so people are
told how it was done.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable

from localspec.settings.sizes import counted

PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)
_PATIENCE = 5.0  # seconds


def copy(text: str, send: Callable[[bytes], None]) -> str:
    """Copy `text`, by `send` through the terminal where no program can; return what was done, for people."""
    data = text.encode("utf-8", "replace")
    if not os.environ.get("SSH_CONNECTION"):
        for variable, words in PROGRAMS:
            if (not variable or os.environ.get(variable)) and shutil.which(words[0]) and _piped(words, data):
                return f"copied {counted(len(data), 'byte')} with {words[0]}"
    send(data)
    return f"copied {counted(len(data), 'byte')}, if your terminal allows it"


def sequence(data: bytes) -> str:
    """Return the characters that ask a terminal to copy `data`."""
    asked = f"\x1b]52;c;{base64.b64encode(data).decode('ascii')}\x07"
    if os.environ.get("TMUX"):  # it passes on a wrapped sequence, if it is allowed to
        return "\x1bPtmux;" + asked.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return asked


def _piped(words: tuple[str, ...], data: bytes) -> bool:
    try:
        # They go on in the background to serve the clipboard, and must not hold our output open.
        done = subprocess.run(
            words, input=data, timeout=_PATIENCE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
