"""Writing a message in the editor of one's choice."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from localspec.errors import NotFoundError
from localspec.sanitize import decoded


def edited(text: str, *, hint: str = "EDITOR=nano localspec chat") -> str:
    """Let $VISUAL or $EDITOR change `text`; return what it has become. Raises NotFoundError where that fails."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        with tempfile.TemporaryDirectory() as folder:  # for its owner alone
            path = Path(folder) / "message.md"
            path.write_text(text, "utf-8")
            done = subprocess.run([*shlex.split(command), str(path)], check=False)
            if done.returncode:
                raise NotFoundError(f"the editor {command} left with status {done.returncode}", hint=hint)
            found = decoded(path.read_bytes(), errors="replace")
            return text if found == text else found.removesuffix("\n")  # which editors end a file with
    except (OSError, ValueError) as error:  # also of a full disk, of a lone quote in the command, of no file left
        raise NotFoundError(f"the editor {command} failed: {error}", hint=hint) from None


@contextlib.contextmanager
def left_to_it() -> Iterator[None]:
    """Leave Ctrl+C and Ctrl+\\ to the editor: the terminal tells them to every process that has it."""
    # A handler, since the editor would inherit that they are ignored.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
