"""What was written and not sent in a chat, kept in a file of this process: a kill loses half a second of it.

The next chat that begins takes over what ended processes have left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from localspec.chat.conversation_writer import ConversationWriter
from localspec.settings.folders import replace_file, state_folder

PAUSE = 0.5  # seconds between a change and its writing

Later = Callable[[float, Callable[[], None]], object]


class Unsent:
    """Keeps what `text` returns. Nothing is kept where the conversation is not."""

    def __init__(self, writer: ConversationWriter, text: Callable[[], str]) -> None:
        self._writer = writer
        self._text = text
        self._is_due = False
        self._kept: str | None = None  # not known: what was taken over may be there

    def changed(self, later: Later) -> None:
        """Keep the text soon; `later` calls something after so many seconds."""
        if self._writer.is_saved and not self._is_due:
            self._is_due = True
            later(PAUSE, self.keep)

    def keep(self) -> None:
        self._is_due, text = False, self._text()
        if self._writer.is_saved and text != self._kept:
            self._kept = text
            self._writer.ask(lambda _store: write(text))  # a screen waits for no disk: a thread writes


def write(text: str) -> None:
    """Replace what this process has left, "" by nothing."""
    file = _folder() / str(os.getpid())
    if text:
        replace_file(file, text)
    else:
        file.unlink(missing_ok=True)


def recover() -> str:
    """Take over what ended processes have left, and return it; "" for nothing."""
    found = [file for file in sorted(_folder().glob("[0-9]*"), key=os.path.getmtime) if not _is_anothers(file)]
    text = "\n".join(file.read_text("utf-8", "replace").removesuffix("\n") for file in found)
    if text:
        write(text)  # first: it is never in no file
    for file in found:
        if file.name != str(os.getpid()):
            file.unlink()
    return text


def _folder() -> Path:
    return state_folder("unsent")


def _is_anothers(file: Path) -> bool:
    """Whether a file is one of another process that goes on."""
    if file.name == str(os.getpid()):
        return False
    try:
        os.kill(int(file.name), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except (OSError, ValueError):  # of another user; or no name that was made here
        return True
    return True
