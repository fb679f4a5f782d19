"""What was written and not sent, kept in a file of this process: a kill loses half a second of it.

The next chat that begins takes over what ended processes have left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from localspec.chat.conversation_writer import ConversationWriter, sent_before
from localspec.settings.folders import replace_file, state_folder
from localspec.tui.host import Host
from localspec.tui.widgets.composer import Composer

PAUSE = 0.5  # seconds between a change and its writing


async def recall(host: Host, writer: ConversationWriter, composer: Composer) -> None:
    """Let Up bring back what was sent in earlier conversations, and write what was not sent."""
    composer.remember(await asyncio.wrap_future(writer.ask(sent_before)))
    left = await asyncio.wrap_future(writer.ask(lambda _store: recover())) if writer.is_saved else ""
    if left:
        composer.put_back(left)
        host.say("What was not sent the last time is back · Ctrl+C clears it")


class Unsent:
    """Keeps what `text` returns after each change; `later` calls something after so many seconds."""

    def __init__(
        self, writer: ConversationWriter, text: Callable[[], str], later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._writer = writer
        self._text = text
        self._later = later
        self._is_due = False
        self._kept: str | None = None  # not known: what was taken over may be there

    def changed(self) -> None:
        """Keep the text soon, unless nothing is to be kept."""
        if self._writer.is_saved and not self._is_due:
            self._is_due = True
            self._later(PAUSE, self._keep)

    def close(self) -> None:
        """Keep what is written now, also where no change was told yet."""
        if self._writer.is_saved:
            self._keep()

    def _keep(self) -> None:
        self._is_due, text = False, self._text()
        if text != self._kept:
            self._kept = text
            self._writer.ask(lambda _store: write(text))  # by its thread: the screen waits for no disk


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
