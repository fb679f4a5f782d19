"""What the terminal sends: keys, and bursts of text, in which more came at once than hands type.

A terminal that does not bracket pastes sends them as keys. A burst is handed over whole, so it is one edit, and who
takes it sees what its Enters are followed by. Where the terminal sends nothing, this thread sleeps.
"""

from __future__ import annotations

import os
import re
import selectors
import threading
import time
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from typing import Any

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.events import InputEvent, Key
from textual.keys import KEY_NAME_REPLACEMENTS, _character_to_key
from textual.message import Message

HANDS = 0.02  # seconds between two keys: hands take longer, and a terminal that hands over a paste does not
HELD = 0.05  # seconds that a burst waits for more of it
PASTED = 16  # characters of a burst that are no roll of two keys
SLOW = 0.5  # seconds that such a burst, or one with a newline, waits: a slow line hands over a paste in pieces
_READ = 1 << 16  # bytes
# What a terminal answers that is asked for its background and for what it is, by this program or another; it may come
# late.
ANSWERS = re.compile(
    r"\x1b\]11;[^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[?>=][\d;]*[cu]|\x1bP[^\x07\x1b]{1,256}(?:\x07|\x1b\\)"
)
_COLOR = r"\x1b\]11;(?:r|rg|rgb|rgba?:[\da-fA-F/]{0,24})?\x1b?"  # the beginning of its first answer: no key has that
_BEGUN = re.compile(rf"{_COLOR}\Z|\x1b(?:\]1{{0,2}}|\[(?:[?>=][\d;]*|20?1?)?|P[^\x07\x1b]{{0,256}}\x1b?)?\Z")
_TEXT = re.compile("[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+")
_NAMES = {"\n": "enter", "\t": "tab"}


class Burst(InputEvent, bubble=True):
    """Text that came faster than hands type; Enter is a newline in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def each_key(self) -> Iterator[Key]:
        for char in self.text:
            name = _NAMES.get(char) or (char if char.isalnum() else _character_to_key(char))
            yield Key(KEY_NAME_REPLACEMENTS.get(name, name), "\r" if char == "\n" else char)


class Reader:
    """Makes events of what is read, in its order. Times are monotonic seconds."""

    def __init__(self, parser: XTermParser) -> None:
        self._parser = parser
        self._text = ""  # a burst that waits for more
        self._begun, self._begun_at = "", 0.0  # an answer of the terminal, or a key, of which more is to come
        self._end = ""  # the last characters that were read: they may be the beginning of a mark
        self._is_bracketed = False
        self._last, self._last_at = "", 0.0  # the text that was read before

    @property
    def patience(self) -> float | None:
        """Seconds after which `quiet` is to be called, None while nothing waits."""
        if self._text:
            return SLOW if len(self._text) >= PASTED or "\r" in self._text or "\n" in self._text else HELD
        until = self._begun_at + ESCAPE_DELAY if self._may_be_key else self._parser._timeout_time
        return None if until is None else max(0.0, until - time.monotonic())

    def read(self, data: str, at: float) -> Iterable[Message]:
        """Take what was read at one time. Answers of the terminal are no text, in however many reads they come."""
        given = self._begun + data
        if re.fullmatch(_COLOR, self._begun) and not (ANSWERS.match(given) or _BEGUN.match(given)):
            given = data  # that answer has no end
        text = ANSWERS.sub("", given)
        begun = _BEGUN.search(text)
        self._begun, self._begun_at = ("", 0.0) if begun is None else (begun[0], at)
        data = text.removesuffix(self._begun)
        if not data:
            return
        is_text = not self._is_bracketed and self._parser._timeout_time is None and _TEXT.fullmatch(data) is not None
        if is_text and (self._text or self._is_fast(data, at)):
            self._text += data
        else:
            yield from self._burst()
            yield from self._parser.feed(data)
            self._note_brackets(data)
        self._last, self._last_at = (data, at) if is_text else ("", 0.0)

    def quiet(self) -> Iterable[Message]:
        yield from self._burst()
        if self._may_be_key and time.monotonic() >= self._begun_at + ESCAPE_DELAY:
            begun, self._begun = self._begun, ""
            yield from self._parser.feed(begun)
            self._note_brackets(begun)
            self._parser._timeout_time = 0.0  # that has been waited for
        yield from self._parser.tick()

    @property
    def _may_be_key(self) -> bool:
        """Whether what has begun may be a key: Escape, or one with Alt. An answer or a paste is waited for."""
        return bool(self._begun) and not (
            self._is_bracketed or self._begun.startswith(("\x1b]11;", "\x1b[?", "\x1b[>", "\x1bP>"))
        )

    def _is_fast(self, data: str, at: float) -> bool:
        """Whether text came faster than hands type, and not because a key is held down."""
        return len(data) > 1 or (at - self._last_at <= HANDS and (data != self._last or data == "\r"))

    def _burst(self) -> Iterator[Message]:
        text, self._text = self._text.replace("\r\n", "\n").replace("\r", "\n"), ""
        if text:
            yield Burst(text)

    def _note_brackets(self, data: str) -> None:
        seen = self._end + data
        begun, ended = seen.rfind(BRACKETED_PASTE_START), seen.rfind(BRACKETED_PASTE_END)
        if begun != ended:
            self._is_bracketed = begun > ended
        self._end = seen[-len(BRACKETED_PASTE_START) + 1 :]


class WakingEvent(threading.Event):
    """An event that wakes who waits for a file: once it is set, a byte is written there."""

    def __init__(self, waker: int) -> None:
        super().__init__()
        self._waker = waker

    def set(self) -> None:
        """Set it, then wake the thread: it must see that it is set."""
        super().set()
        os.write(self._waker, b"\0")


class Keyboard(LinuxDriver):
    """Textual's driver, but for the reading: Textual looks ten times a second, and hands over one key at a time.
    `typed` was read before, from a terminal in raw mode. Input is disabled once. Textual does it again when the
    terminal is the shell's, and drops what is typed for that."""

    def __init__(self, *args: Any, typed: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self._typed = typed
        self._woken, waker = os.pipe()
        self.exit_event = WakingEvent(waker)

    def disable_input(self) -> None:
        if self._key_thread is not None:
            super().disable_input()
            self._key_thread = None

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        reader, decode = Reader(parser), getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            typed, self._typed = self._typed, ""
            for event in reader.read(typed, time.monotonic()) if typed else ():
                self.process_message(event)
            while not self.exit_event.is_set():
                events: Iterable[Message] = reader.quiet()
                for key, _ in selector.select(reader.patience) or ():
                    raw = os.read(key.fd, _READ)
                    if key.fd == self._woken:
                        continue
                    if not raw:  # the terminal is gone
                        selector.unregister(self.fileno)
                    text = decode(raw)
                    events = reader.read(text, time.monotonic()) if text else ()
                for event in events:
                    self.process_message(event)
