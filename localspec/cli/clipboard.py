"""The clipboard: a program of this system where there is one, else the terminal's own (OSC 52).

Over SSH a local program would fill the wrong machine's clipboard, so there the terminal is asked. A terminal does not
say whether it obeyed, which people are told.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys

from localspec.cli.console import is_dumb, is_terminal, write_out
from localspec.errors import NotFoundError

PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)
LONGEST = 100_000  # bytes; more a terminal may drop
_PATIENCE = 5.0  # seconds


def copy(text: str) -> str:
    """Copy `text`; return what was done, for people. Raises NotFoundError where there is no clipboard."""
    data = text.encode("utf-8", "replace")
    done = by_program(data)
    if done is not None:
        return done
    if not is_terminal(sys.stdout) or is_dumb() or len(data) > LONGEST:
        raise NotFoundError("there is no clipboard to be reached from here", hint="/export FILE")
    sequence = f"\x1b]52;c;{base64.b64encode(data).decode('ascii')}\x07"
    if os.environ.get("TMUX"):  # which passes on what is wrapped, if it is allowed to
        sequence = "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    write_out(sequence)
    return f"sent {len(data)} bytes to the terminal, which may put them into the clipboard"


def by_program(data: bytes) -> str | None:
    """Copy with a program of this machine; return what was done, None where there is none."""
    if not os.environ.get("SSH_CONNECTION"):
        for variable, words in PROGRAMS:
            if (not variable or os.environ.get(variable)) and shutil.which(words[0]) and _piped(words, data):
                return f"copied {len(data)} bytes with {words[0]}"
    return None


def _piped(words: tuple[str, ...], data: bytes) -> bool:
    try:
        # They go on in the background to serve the clipboard, and must not hold our output open.
        done = subprocess.run(
            words, input=data, timeout=_PATIENCE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
