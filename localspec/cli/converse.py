"""The loop of the line chat. It only appends, so that it works in any terminal, with a screen reader, in a script."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.chat.commands import TABLE
from localspec.chat.listing import YOU, came_back
from localspec.chat.opening import remarks
from localspec.chat.state import ChatState
from localspec.chat.unsent import Unsent, recover
from localspec.cli.console import Console, OutputGone, is_terminal, write_out
from localspec.cli.line_chat import LineChat
from localspec.cli.lines import Lines, can_put_back, history
from localspec.cli.options import ScreenOptions
from localspec.conversations.records import Conversation
from localspec.errors import LocalspecError
from localspec.models.store import introduction
from localspec.settings.request import LoadSettings
from localspec.worker.client import Worker

if TYPE_CHECKING:
    from localspec.worker.served import ServedWorker


def open_line_chat(
    console: Console,
    worker: Worker | ServedWorker,
    state: ChatState,
    find: Callable[[str], LoadSettings] | None,
    options: ScreenOptions,
    found: Conversation | None,
    *,
    is_kept: bool,
) -> int:
    """Talk until the end of input, going on with the conversation `found`; return the exit code."""
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")
    with history(is_kept=is_kept):
        chat = LineChat(console, worker, state, find)
        chat.has_marks = options.tokens
        chat.control = options.control_chars
        if options.stats is not None:
            chat.has_stats = options.stats
        chat.tell_trouble()
        if found is not None and is_terminal(sys.stdin) and not console.quiet:
            console.say(came_back(found, state.messages.path()), "dim")
        for line in remarks(state):
            console.warn(line)
        return converse(chat, _lines(chat))


def _lines(chat: LineChat) -> Lines:
    """Return the keyboard. What is typed and not sent is kept, and what ended chats have left is put back."""
    lines, writer = Lines(), chat.state.writer
    if can_put_back():
        left = recover() if writer.is_saved else ""
        if left:
            lines.put_back(left)
            chat.console.say("what was not sent the last time is back; Ctrl-C clears it", "dim")
        lines.on_change = Unsent(writer, lambda: lines.unsent).keep
    return lines


def converse(chat: LineChat, lines: Lines) -> int:
    """Read and answer until the end of input; return the exit code: of a script its last error's."""
    if not (chat.is_script or chat.console.quiet):
        chat.console.say(f"localspec · {chat.state.settings.name} · /help, Ctrl-D to leave", "dim")
        for sentence in introduction(chat.state.settings, chat.state.request.speculation):
            chat.console.note(sentence, "dim")
    was_interrupted, code = False, 0
    while not chat.is_over:
        try:
            text = lines.read(YOU)
            was_interrupted = False
        except KeyboardInterrupt:
            if chat.is_script:
                raise
            write_out("\n")
            if was_interrupted and not lines.taken:
                return 0  # meant, and no failure
            was_interrupted = True
            back = "Up brings it back; " if lines.taken else ""
            chat.console.say(f"{back}Ctrl-C again or Ctrl-D to leave", "dim")
            continue
        if text is None:
            if not chat.is_script:
                write_out("\n")
            break
        try:
            code = _take(chat, text) or code
        except KeyboardInterrupt:  # it ends what a command is doing, and not the chat
            if chat.is_script:
                raise
            write_out("\n")
    return code if chat.is_script else 0


def _take(chat: LineChat, text: str) -> int:
    """Run a command or send a message; return the exit code of an error, which ends neither chat nor conversation."""
    if chat.is_script and not chat.console.quiet and text.strip():
        write_out(f"{YOU}{text}\n")  # a transcript has both sides
    try:
        if TABLE.is_command(text):
            chat.run(text)
        elif text.strip():
            chat.send(text)
    except OutputGone:
        raise
    except LocalspecError as error:
        chat.console.fail(error)
        return error.exit_code
    return 0
