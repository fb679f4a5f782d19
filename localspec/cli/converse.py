r"""The loop of the line chat. It only appends, so that it works in any terminal, with a screen reader, in a script.

A final \ or triple quotes join lines. What is pasted at the prompt is one message: a line that more follows at once
goes on in the next, unless it is a slash command. Lines that were typed ahead, while an answer came, stay lines.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from localspec.chat.commands import TABLE
from localspec.chat.conversation_writer import Unsent, recover
from localspec.chat.listing import YOU, came_back
from localspec.chat.opening import remarks
from localspec.chat.state import ChatState
from localspec.cli import console
from localspec.cli.console import Console, OutputGone, is_dumb, is_terminal, write_out
from localspec.cli.line_chat import LineChat
from localspec.cli.options import ScreenOptions
from localspec.cli.signals import Terminated, ringing
from localspec.conversations.records import Conversation
from localspec.errors import LocalspecError, PromptTooLongError
from localspec.models.store import introduction
from localspec.settings.folders import state_folder
from localspec.settings.request import LoadSettings
from localspec.worker.shared import SharedWorker

if TYPE_CHECKING:
    from localspec.worker.served import ServedWorker


QUOTES = '"""'
MAX_LINE = 1 << 24  # characters; more is no message but a mistake
AT_ONCE = 0.02  # seconds: hands take longer from Enter to the next key, and a paste does not
TICK = 0.1  # seconds between two looks at the line that is typed
_KEPT = 1000  # lines of history
_editor = import_module("readline") if find_spec("readline") else None  # without it the kernel edits lines

ReadLine = Callable[[str], str | None]


def open_line_chat(
    console: Console,
    worker: SharedWorker | ServedWorker,
    state: ChatState,
    find: Callable[[str], LoadSettings] | None,
    options: ScreenOptions,
    conversation: Conversation | None,
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
        if conversation is not None and is_terminal(sys.stdin) and not console.quiet:
            console.say(came_back(conversation, state.messages.path()), "dim")
        for line in remarks(state):
            console.warn(line)
        return converse(chat, _lines(chat))


def _lines(chat: LineChat) -> Lines:
    """Return the keyboard. What is typed and not sent is kept, and what ended chats have left is put back."""
    lines, writer = Lines(), chat.state.writer
    if _editor is not None and is_terminal(sys.stdin) and is_terminal(sys.stdout):
        left = recover(chat.state.session) if writer.is_saved else ""
        if left:
            lines.put_back(left)
            chat.console.say("what was not sent the last time is back; Ctrl-C clears it", "dim")
        lines.on_change = Unsent(
            writer, lambda: "\n".join(filter(None, (lines.unsent, chat.state.mentions))), lambda: chat.state.session
        ).keep
        chat.on_stop = lambda: lines.put_back(console.taken())
    return lines


def converse(chat: LineChat, lines: Lines) -> int:
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
            with console.kept():
                code = _take(chat, text) or code
        except KeyboardInterrupt:  # it ends what a command is doing, and not the chat
            if chat.is_script:
                raise
            chat.on_stop()
            write_out("\n")
    return code if chat.is_script else 0


def _take(chat: LineChat, text: str) -> int:
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


class Lines:
    """Logical messages. `read_line(prompt)` returns one line without its newline, None at the end. `on_change` is
    called while a person types, and after every message. What the kernel edits, as where Python has no readline, is not
    seen before Enter."""

    def __init__(self, read_line: ReadLine | None = None) -> None:
        self._read_line = read_line or self._line
        self._above: list[str] = []  # of the message: its lines above the one that is typed
        self._is_typing = False
        self._put_back = ""  # what the next line begins with
        self._left = ""  # what Ctrl-C has taken since the last message
        self.taken = ""  # what the last Ctrl-C has taken
        self.on_change: Callable[[], object] = lambda: None

    @property
    def typed(self) -> str:
        return "\n".join([*self._above, _editor_line() if self._is_typing else ""]).removesuffix("\n")

    @property
    def unsent(self) -> str:
        return self.typed or self._put_back or self._left

    def put_back(self, text: str) -> None:
        self._put_back += text
        self.on_change()

    def read(self, prompt: str) -> str | None:
        """Return the next message, None at the end of input. Ctrl-C raises KeyboardInterrupt. What was typed stays
        `unsent`, and Up brings it back."""
        self.taken, came_back = "", self._put_back
        try:
            message = self._message(prompt)
            self._left = self._left if message is None else ""
            return message
        except BaseException:
            self.taken = self.typed
            if self.taken and _editor is not None:
                _editor.add_history(self.taken)
            if self.taken != came_back:  # else it was cleared as it was found
                self._left = self.taken or self._left
            raise
        finally:
            self._above, self._is_typing = [], False
            self.on_change()

    def _message(self, prompt: str) -> str | None:
        line = self._read_line(prompt)
        if line is None:
            return None
        if line.lstrip().startswith(QUOTES):
            return self._quoted(line)
        while line is not None and line.endswith("\\"):
            self._above.append(line[:-1])
            line = self._read_line(_continued(prompt))
        return "\n".join([*self._above, line or ""])

    def _quoted(self, line: str) -> str:
        parts, following = [], line.lstrip().removeprefix(QUOTES)
        while not following.rstrip().endswith(QUOTES):
            parts.append(following)
            self._above.append(line)
            read = self._read_line("... ")
            if read is None:
                return "\n".join(parts)
            line = following = read
        return "\n".join([*parts, following.rstrip().removesuffix(QUOTES)])

    def _line(self, prompt: str) -> str | None:
        if is_terminal(sys.stdin) and is_terminal(sys.stdout):
            try:
                return self._at_once(prompt)
            except EOFError:
                return None
        return _piped(prompt)

    def _at_once(self, prompt: str) -> str:
        is_ahead, n = _is_waiting(0.0), len(self._above)
        self._edit(prompt)
        while not is_ahead and not TABLE.begins_command(self._above[n]) and _is_waiting(AT_ONCE):
            try:
                self._edit(_continued(prompt))
            except EOFError:
                break
        lines = self._above[n:]
        del self._above[n:]
        return "\n".join(lines)

    def _edit(self, prompt: str) -> None:
        """Read one line from the keyboard, and tell of it while it is typed; raises EOFError. A line that ends with the
        terminal was not sent: raises Terminated, as the signal would. The editor has lost it."""
        lines, n = self._above, len(self._above)
        text = self._put_back

        def note() -> None:
            nonlocal text
            text = _editor_line()
            self.on_change()

        if _editor is not None:
            _editor.set_startup_hook(partial(_editor.insert_text, text))
        self._put_back, self._is_typing = "", True
        try:
            with ringing(TICK, note):
                lines.extend(map(input, [prompt]))  # in one step: a signal may come as soon as it returns
        finally:
            if not is_terminal(sys.stdin):
                lines[n:] = lines[n:] or [_editor_line() or text]
                self._is_typing = False
                raise Terminated(signal.SIGHUP)
        self._is_typing = False


def _editor_line() -> str:
    return str(_editor.get_line_buffer()) if _editor is not None else ""


def _continued(prompt: str) -> str:
    return "... ".rjust(len(prompt))


def _piped(prompt: str) -> str | None:
    if sys.stdin is None:
        return None
    if is_terminal(sys.stdin) and sys.stderr is not None:
        print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline(MAX_LINE)
    if len(line) >= MAX_LINE:
        raise PromptTooLongError("a line of standard input is longer than 16 MiB", hint="/read FILE")
    return line.removeprefix("\ufeff").rstrip("\r\n").replace("\0", "\ufffd") if line else None


def _completed(text: str, n: int) -> str | None:
    completions = TABLE.completions(text)
    completions = completions if completions or text.startswith("/") else [f"{text}\t"]
    return completions[n] if n < len(completions) else None


def _is_waiting(seconds: float) -> bool:
    return bool(select.select([sys.stdin], [], [], seconds)[0])


@contextmanager
def history(*, is_kept: bool = True) -> Iterator[None]:
    """Offer the lines typed earlier, and keep those typed here unless `is_kept` is False."""
    if _editor is None:
        yield
        return
    readline = _editor
    if not is_dumb():
        readline.parse_and_bind("set enable-bracketed-paste on")  # Python turns it off
    readline.set_completer_delims("")
    readline.set_completer(_completed)
    readline.parse_and_bind("tab: complete")
    if os.environ.get("LOCALSPEC_NO_HISTORY") or not is_terminal(sys.stdin):
        yield
        return
    path = state_folder("history")
    readline.set_history_length(_KEPT)
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    n_before = readline.get_current_history_length()
    try:
        yield
    finally:
        n_typed = readline.get_current_history_length() - n_before
        if is_kept and n_typed > 0:
            # If the home cannot be written, the chat goes on without a history.
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
                if hasattr(readline, "append_history_file"):
                    readline.append_history_file(n_typed, path)  # others may have added theirs meanwhile
                else:  # libedit
                    readline.write_history_file(path)
