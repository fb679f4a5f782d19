"""The two streams and what may be done to them: colour, width, one line for people on stderr.

stdout has the answer, stderr everything about it. Colour goes to a stream only if that stream is a terminal, and not
with NO_COLOR, TERM=dumb or --color never.

People type while an answer comes. A terminal throws that away with Ctrl-C, unless it is told not to.
"""

import contextlib
import errno
import os
import re
import shutil
import sys
import termios
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from localspec.errors import LocalspecError, ResourceError
from localspec.sanitize import one_line
from localspec.ui.columns import fitted, hung


class OutputGone(ResourceError):
    """stdout cannot be written: nothing that is left to do would be seen."""


OnError = Callable[[dict[str, Any]], None]
NO_END = 1 << 30  # columns of a line that goes to a file or a program
SGR = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(slots=True)
class Console:
    """The streams of this process. `color` is the value of --color: auto, always or never. `on_error` writes an error
    object to stdout where --json or --events promised one. `has_told_stop` says that people have read why the command
    was stopped. `warned` are the warnings so far, which a full screen then hides."""

    color: str = "auto"
    quiet: bool = False
    log_file: str | None = None
    on_error: OnError | None = None
    has_told_stop: bool = False
    warned: list[str] = field(default_factory=list)

    def can_color(self, stream: IO[str] | None) -> bool:
        if self.color != "auto":
            return self.color == "always"
        return is_terminal(stream) and not os.environ.get("NO_COLOR") and not is_dumb()

    @property
    def is_live(self) -> bool:
        return is_terminal(sys.stderr) and not (self.quiet or is_dumb() or is_accessible())

    def paint(self, text: str, style: str, stream: IO[str] | None) -> str:
        return f"\x1b[{SGR[style]}m{text}\x1b[0m" if self.can_color(stream) else text

    def say(self, line: str, style: str = "") -> None:
        if sys.stderr is None:
            return  # print would take stdout instead
        with contextlib.suppress(OSError, ValueError):
            print(self.paint(line, style, sys.stderr) if style else line, file=sys.stderr, flush=True)

    def note(self, text: str, style: str = "") -> None:
        for line in wrapped(text, sys.stderr).split("\n"):
            self.say(line, style)

    def warn(self, message: str) -> None:
        self.warned.append(message)
        if not self.quiet:
            self._say_painted("localspec: ", "warning", "yellow", f": {one_line(message)}")

    def stopped(self, kind: str) -> None:
        if not (self.quiet or self.has_told_stop):
            self.say(kind, "dim")
        self.has_told_stop = True

    def fail(self, error: LocalspecError) -> None:
        gap = " " if error.advice.startswith(" ") else ""  # one_line strips it
        self._say_painted("localspec: ", one_line(error.message), "red", f"{gap}{one_line(error.advice)}")

    def _say_painted(self, before: str, text: str, style: str, after: str) -> None:
        line = before + text + after
        if is_terminal(sys.stderr):
            line = broken(line, width() - 1)
        at, end = len(before), len(before) + len(text)
        self.say(line[:at] + self.paint(line[at:end], style, sys.stderr) + line[end:])


def is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def is_dumb() -> bool:
    return os.environ.get("TERM", "") in ("dumb", "")


def is_accessible() -> bool:
    """Whether the user asked for output without redrawing (the ACCESSIBLE convention)."""
    return os.environ.get("ACCESSIBLE", "").lower() not in ("", "0", "false")


def wants_plain(is_asked: bool) -> bool:
    has_screen = all(map(is_terminal, (sys.stdin, sys.stdout, sys.stderr)))
    return is_asked or is_accessible() or is_dumb() or not has_screen


def share_terminal() -> bool:
    if not (is_terminal(sys.stdout) and is_terminal(sys.stderr)):
        return False
    return os.fstat(sys.stdout.fileno()).st_rdev == os.fstat(sys.stderr.fileno()).st_rdev


def width() -> int:
    return _columns(sys.stderr)


def columns_of_stdout() -> int:
    return _columns(sys.stdout)


def in_room(lines: Sequence[Sequence[str]], right: Collection[int] | None = None) -> list[str]:
    return fitted(lines, columns_of_stdout() if is_terminal(sys.stdout) else NO_END, right)


def wrapped(text: str, stream: IO[str] | None, indent: int = 0) -> str:
    """Return `text` for a terminal wrapped at words, further lines indented below the first; as it is for others."""
    if stream is None or not is_terminal(stream):
        return text
    columns = max(_columns(stream) - indent - 1, 20)
    return f"\n{'':<{indent}}".join(textwrap.wrap(text, columns, break_on_hyphens=False, break_long_words=False))


def broken(text: str, columns: int) -> str:
    """Return `text` with line ends in place of blanks, so that only words that are longer have more than `columns`."""
    line, *words = text.split(" ")
    made, room = [line], columns - len(line)
    for word in words:
        is_next = room < 1 + len(word)
        made.append("\n" if is_next else " ")
        made.append(word)
        room = columns - len(word) if is_next else room - 1 - len(word)
    return "".join(made)


def _columns(stream: IO[str]) -> int:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return columns or shutil.get_terminal_size().columns


def write_text(text: str) -> None:
    columns = columns_of_stdout() if is_terminal(sys.stdout) else NO_END
    write_out("".join(f"{hung(line, columns)}\n" for line in text.removesuffix("\n").split("\n")))


def write_out(text: str) -> None:
    """Write to stdout and flush. Raises BrokenPipeError if the reader is gone, OutputGone if it is full."""
    if sys.stdout is None:
        raise OutputGone("standard output is closed", hint="the same command with > FILE")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "the same command with > FILE"
        raise OutputGone(f"cannot write to standard output: {reason}", hint=hint) from error


def prepare_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace", newline="")


_LOCAL, _CHARACTERS = 3, 6  # places in what tcgetattr returns
_KEYS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)|[\x00-\x08\x0b-\x1f\x7f]")  # that are no text


@contextmanager
def kept() -> Iterator[None]:
    """Let what is typed in the block outlive Ctrl-C: it stays for the next reader."""
    if not is_terminal(sys.stdin):
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    _set_local(before[_LOCAL] | termios.NOFLSH)
    try:
        yield
    finally:
        with suppress(termios.error, OSError):  # the terminal has gone
            now = termios.tcgetattr(sys.stdin)
            _set_local(now[_LOCAL] & ~termios.NOFLSH | before[_LOCAL] & termios.NOFLSH)


def taken() -> str:
    typed = b""
    with suppress(termios.error, OSError):
        before = termios.tcgetattr(sys.stdin)
        _set_local(before[_LOCAL] & ~termios.ICANON, wait=0)  # else nothing is there before Enter
        try:
            while part := os.read(sys.stdin.fileno(), 1 << 12):
                typed += part
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
    return _KEYS.sub("", typed.decode("utf-8", "replace").replace("\r", "\n")).rstrip("\n")


def _set_local(local: int, wait: int | None = None) -> None:
    modes = termios.tcgetattr(sys.stdin)
    modes[_LOCAL] = local
    if wait is not None:
        modes[_CHARACTERS][termios.VMIN] = modes[_CHARACTERS][termios.VTIME] = wait
    termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)
