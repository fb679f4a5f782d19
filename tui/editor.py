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


def edited(text: str) -> str:
    """Let $VISUAL or $EDITOR change `text`; return what it has become. Raises NotFoundError where that fails."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8", delete=False) as file:
        file.write(text)
    path = Path(file.name)
    try:
        done = subprocess.run([*shlex.split(command), str(path)], check=False)
        if done.returncode:
            raise NotFoundError(f"{command} left with status {done.returncode}", hint="EDITOR=nano localspec chat")
        return path.read_text("utf-8", "replace").removesuffix("\n")
    except (OSError, ValueError) as error:
        raise NotFoundError(f"{command} cannot be run: {error}", hint="EDITOR=nano localspec chat") from None
    finally:
        path.unlink(missing_ok=True)


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
