r"""Messages from a terminal or a script: lines, with history, joined by a final \ or between triple quotes.

What is pasted at the prompt is one message: a line that more text follows at once goes on in the next line, unless it
is a slash command. Lines that were typed ahead, while an answer came, stay lines.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from localspec.chat.commands import TABLE
from localspec.cli.console import is_dumb, is_terminal
from localspec.errors import PromptTooLongError
from localspec.settings.folders import state_folder

QUOTES = '"""'
MAX_LINE = 1 << 24  # characters; more is no message but a mistake
AT_ONCE = 0.02  # seconds: hands take longer from Enter to the next key, and a paste does not
_KEPT = 1000  # lines of history

ReadLine = Callable[[str], str | None]


class Lines:
    """Logical messages. `read_line(prompt)` returns one line without its newline, None at the end."""

    def __init__(self, read_line: ReadLine | None = None) -> None:
        self._read_line = read_line or _line

    def read(self, prompt: str) -> str | None:
        """Return the next message, None at the end of input. Ctrl-C raises KeyboardInterrupt."""
        line = self._read_line(prompt)
        if line is None:
            return None
        if line.lstrip().startswith(QUOTES):
            return self._quoted(line.lstrip().removeprefix(QUOTES))
        parts = []
        while line is not None and line.endswith("\\"):
            parts.append(line[:-1])
            line = self._read_line(_continued(prompt))
        return "\n".join([*parts, line or ""])

    def _quoted(self, first: str) -> str:
        """Collect lines until the closing quotes, or the end of input."""
        parts, line = [], first
        while not line.rstrip().endswith(QUOTES):
            parts.append(line)
            following = self._read_line("... ")
            if following is None:
                return "\n".join(parts)
            line = following
        return "\n".join([*parts, line.rstrip().removesuffix(QUOTES)])


def _continued(prompt: str) -> str:
    return "... ".rjust(len(prompt))


def _line(prompt: str) -> str | None:
    """Read one line, with editing where both ends are a terminal. A script gets no prompts on its stdout."""
    if is_terminal(sys.stdin) and is_terminal(sys.stdout):
        try:
            return _typed(prompt)
        except EOFError:
            return None
    if sys.stdin is None:
        return None
    if is_terminal(sys.stdin) and sys.stderr is not None:
        print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline(MAX_LINE)
    if len(line) >= MAX_LINE:
        raise PromptTooLongError("a line of standard input is longer than 16 MiB", hint="/read FILE")
    return line.removeprefix("\ufeff").rstrip("\r\n").replace("\0", "\ufffd") if line else None


def _typed(prompt: str) -> str:
    """Read what a person types, or pastes; raises EOFError at its end."""
    is_ahead = _is_waiting(0.0)
    lines = [input(prompt)]
    while not is_ahead and not TABLE.begins_command(lines[0]) and _is_waiting(AT_ONCE):
        try:
            lines.append(input(_continued(prompt)))
        except EOFError:
            break
    return "\n".join(lines)


def _completed(text: str, n: int) -> str | None:
    """Return the `n`th line that a command may become; elsewhere Tab is a tab, as in what is pasted."""
    found = TABLE.completions(text)
    found = found if found or text.startswith("/") else [f"{text}\t"]
    return found[n] if n < len(found) else None


def _is_waiting(seconds: float) -> bool:
    """Whether there is more to read, now or within so many seconds."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


@contextmanager
def history(*, is_kept: bool = True) -> Iterator[None]:
    """Offer the lines typed earlier, and keep those typed here unless `is_kept` is False.

    They are readable by their owner alone; LOCALSPEC_NO_HISTORY=1 does without.
    """
    try:
        import readline
    except ImportError:  # not every Python has it: lines are then read without editing
        yield
        return
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
