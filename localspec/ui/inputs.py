"""The input of `run`: words, standard input and files, made one prompt.

Texts are UTF-8 or UTF-16, with any line ends. All else is replaced, counted and warned of; nothing is read without a
limit.
"""

import os
import select
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.conversations.records import Attachment, with_attachments
from localspec.engine.events import Warned
from localspec.errors import NotFoundError, PromptTooLongError, UsageError
from localspec.sanitize import decoded
from localspec.settings.folders import typed_path
from localspec.settings.text_files import did_you_mean, is_binary
from localspec.ui.files import read_regular
from localspec.ui.mentions import Taken, is_pattern, is_several, take

MAX_FILE = 16 << 20  # bytes, where no option says otherwise
STDIN = "standard input"
PATIENCE = 1.0  # seconds of a silent standard input before a line says so


@dataclass(slots=True)
class Inputs:
    """Reads input up to `limit` bytes each, collecting warnings; `on_wait` is told once when a pipe stays silent."""

    limit: int
    on_wait: Callable[[], None] | None = None
    command: str = "localspec run"
    warnings: list[Warned] = field(default_factory=list)
    taken: Taken | None = None  # what folders, patterns and several files gave, for a line to a person

    def stdin(self, *, is_wanted: bool) -> str:
        """Return what standard input holds; "" for a terminal, a device, or no standard input at all. With `is_wanted`
        (nothing else is the prompt) any readable non-terminal is read. Raises NotFoundError where reading fails."""
        if sys.stdin is None or sys.stdin.closed:
            return ""
        try:
            fd = sys.stdin.fileno()
            mode = os.fstat(fd).st_mode
            is_data = stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        except OSError:  # closed by the caller
            return ""
        if os.isatty(fd) or not (is_data or is_wanted):
            return ""
        try:
            if self.on_wait is not None and not _can_read(fd, PATIENCE):
                self.on_wait()
            return self._text(STDIN, self._read(fd, STDIN))
        except OSError as error:
            hint = f"{self.command} PROMPT </dev/null"
            raise NotFoundError(f"cannot read standard input: {error.strerror}", hint=hint) from None

    def file(self, name: str) -> str:
        if name == "-":
            return self.stdin(is_wanted=True)
        try:
            with typed_path(name).open("rb") as file:
                return self._text(name, self._read(file.fileno(), name))
        except OSError as error:
            hint = did_you_mean(name, "--file PATH of a text")
            raise NotFoundError(f"cannot read {name}: {error.strerror}", hint=hint) from None

    def prompt_of(self, spoken: str, data: list[Attachment], *, is_raw: bool, is_given: bool) -> str:
        """Return one prompt. Raises UsageError if there is none; a raw one that `is_given` may be empty."""
        prompt = compose(spoken, data, is_raw=is_raw)
        if not prompt.strip() and not (is_raw and is_given):
            hint = f'{self.command} "Once upon a time", or pipe a prompt in'
            raise UsageError("there is no prompt", hint=hint)
        return prompt

    def regular(self, name: str) -> str:
        """Return the text of a file that ends: no device, and no pipe that nobody writes to. Raises NotFoundError."""
        return self._text(name, read_regular(name, self.limit))

    def word(self, text: str) -> str:
        return self._text("the prompt", text.encode("utf-8", "surrogateescape"))

    def _read(self, fd: int, name: str) -> bytes:
        data = bytearray()
        while chunk := _chunk(fd):
            data += chunk
            if len(data) > self.limit:
                _require_text(name, bytes(data))
                message = f"{name} is longer than {self.limit / 2**20:g} MiB"
                raise PromptTooLongError(message, hint="--max-stdin MIB allows more")
        return bytes(data)

    def _text(self, name: str, data: bytes) -> str:
        if name != "the prompt":
            _require_text(name, data)
        text = decoded(data, errors="replace")
        n_bad = text.count("\ufffd") - data.count("\ufffd".encode())
        n_zero = text.count("\0")
        if n_bad or n_zero:
            what = " and ".join(
                words for n, words in ((n_bad, f"{n_bad} invalid UTF-8"), (n_zero, f"{n_zero} NUL")) if n
            )
            self.warnings.append(Warned("input", f"{name}: {what} replaced by \ufffd"))
        return text.replace("\0", "\ufffd")


def _require_text(name: str, data: bytes) -> None:
    if is_binary(data):
        hint = "pipe a text in" if name == STDIN else "the name of a text file"
        raise UsageError(f"{name} is no text", hint=hint)


def _chunk(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, 1 << 20)
        except BlockingIOError:
            _can_read(fd)


def _can_read(fd: int, seconds: float | None = None) -> bool:
    """Wait until there is something to read or the end is reached; False after `seconds` of silence."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else 1e3 * seconds))


def compose(words: str, data: list[Attachment], *, is_raw: bool) -> str:
    """Return one prompt: each piece of data fenced, a blank line, the words. Raw prompts are joined without fences. The
    newline at the end of a file is no part of a prompt that it ends."""
    if not is_raw:
        return with_attachments(words, data)
    text = "".join(piece.text for piece in data)
    return text + words if words else text.removesuffix("\n")


def read_prompt(words: tuple[str, ...], files: tuple[str, ...], inputs: Inputs, *, is_raw: bool) -> str:
    spoken, data = read_parts(words, files, inputs)
    return inputs.prompt_of(spoken, data, is_raw=is_raw, is_given=bool(words) and words != ("-",))


def read_parts(words: tuple[str, ...], files: tuple[str, ...], inputs: Inputs) -> tuple[str, list[Attachment]]:
    """Return the words, and what they are about; an input that has nothing else to it is words. A lone "-" stands for
    standard input, as for many programs. Raises NotFoundError for a name without a text."""
    words = () if words == ("-",) else words
    spoken = " ".join(inputs.word(word) for word in words)
    data = []
    for name in files:
        left_out = ""
        if name != "-" and (is_several(name) or is_pattern(name)):
            inputs.taken = inputs.taken or Taken()
            before, was = len(inputs.taken.texts), dict(inputs.taken.left_out)
            is_empty = not take(name, inputs.taken)
            data += inputs.taken.texts[before:]
            left_out = inputs.taken.left_since(was)
        else:
            data.append(Attachment("" if name == "-" else name, inputs.file(name)))
            is_empty = not data[-1].text
        if is_empty:
            message = f"{STDIN if name == '-' else name} holds no text{left_out}"
            raise NotFoundError(message, hint="--file PATH of a text, or no --file")
    if inputs.taken is not None or len(files) > 1:
        named = [each for each in data if each.name and each.text]
        inputs.taken = Taken(named, inputs.taken.left_out if inputs.taken else {})
    if "-" not in files:
        piped = inputs.stdin(is_wanted=not words and not files)
        if piped:
            data.insert(0, Attachment("", piped))
    data = [piece for piece in data if piece.text]
    if not spoken and len(data) == 1 and not data[0].name:
        return data[0].text.removesuffix("\n"), []
    return spoken, data


def text_or_file(name: str, value: str | None, limit: int = MAX_FILE) -> str | None:
    """Return `value`, or for @FILE what the file holds, at most `limit` bytes, without the newline at its end."""
    if value is None or not value.startswith("@"):
        return value
    return file_text(value[1:], f"{name} {value}", limit).removesuffix("\n")


def file_text(name: str, said: str, limit: int = MAX_FILE) -> str:
    """Return the text of a regular file of `limit` bytes at most; `said` is how an error calls it. Raises
    NotFoundError, PromptTooLongError, or UsageError for a file that is no text."""
    try:
        return decoded(read_regular(name, limit, said=said))
    except UnicodeDecodeError:
        raise UsageError(f"{said} is neither UTF-8 nor UTF-16 text", hint="the name of a text file") from None
