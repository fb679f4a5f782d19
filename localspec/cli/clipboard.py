"""The clipboard: by a program of this machine where there is one, else through the terminal (OSC 52).

A terminal does not say whether it obeyed, which people are told.
"""

from __future__ import annotations

import base64
import os
import sys

from localspec.cli.console import is_dumb, is_terminal, write_out
from localspec.errors import NotFoundError
from localspec.ui.clipboard import by_program

LONGEST = 100_000  # bytes; more a terminal may drop


def copy(text: str) -> str:
    """Copy `text`; return what was done, for people. Raises NotFoundError where there is no clipboard."""
    data = text.encode("utf-8", "replace")
    done = by_program(data)
    if done is not None:
        return done
    if not is_terminal(sys.stdout) or is_dumb() or len(data) > LONGEST:
        raise NotFoundError("no clipboard can be reached from here", hint="/export FILE")
    sequence = f"\x1b]52;c;{base64.b64encode(data).decode('ascii')}\x07"
    if os.environ.get("TMUX"):  # which passes on what is wrapped, if it is allowed to
        sequence = "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    write_out(sequence)
    return f"copied {len(data)} bytes, if your terminal allows it"
