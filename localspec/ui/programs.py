"""Programs of this machine that a chat calls: those of the clipboard, and the editor of one's choice.

Text is copied by a program of this machine where there is one, else through the terminal (OSC 52).

Over SSH a program would fill the wrong machine's clipboard. A terminal does not say whether it copied, so people are
told how it was done.
"""

import base64
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from localspec.errors import NotFoundError
from localspec.sanitize import decoded
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
            content = decoded(path.read_bytes(), errors="replace")
            return text if content == text else content.removesuffix("\n")  # which editors end a file with
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
