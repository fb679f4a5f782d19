"""Calls of tools in an answer's text, as it comes. `prompt.call_forms` has the forms in which models write them.

A call counts only if its tool was offered. Text before, between and behind calls stays text. What may become a call is
held back until that is decided, at the latest at the answer's end; what is no call after all is text then.
"""

from __future__ import annotations

import json
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from localspec.prompt.call_forms import FORMS, Called, CallForm, Tools, after, json_calls, python_calls
from localspec.server.refusal import Wire

NOT_READ = "a call of a tool could not be read, and is text of the answer"
FAILURES = 32  # calls that could not be read, after which the rest of an answer is text
_BY_MARK = {mark: form for form in FORMS for mark in form.marks}
_LONGEST = max(map(len, _BY_MARK))
_BEGINNINGS = {mark[:n] for mark in _BY_MARK for n in range(1, len(mark))}
_MARK = re.compile("|".join(map(re.escape, sorted(_BY_MARK, key=len, reverse=True))))
_NAME = re.compile(r"[\w.]*")
_BLANKS = re.compile(r"[\s,;]*")
_AT_THE_END = ""  # what decides whether a held text is a call: nothing but the end of the answer


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool; `id` is drawn."""

    name: str
    arguments: dict[str, Any]
    id: str = field(default_factory=lambda: secrets.token_hex(5)[:9])  # Mistral's templates insist on nine letters

    def to_openai(self) -> Wire:
        """Return OpenAI's object, with the arguments as JSON text."""
        arguments = json.dumps(self.arguments, ensure_ascii=False)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}

    def to_ollama(self) -> Wire:
        """Return Ollama's object."""
        return {"function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What a part of an answer turned out to be: `text`, `calls`, and a warning where a call could not be read."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    warning: str = ""


class CallReader:
    """Reads an answer, and then the next. `tools` are the schemas of the tools that were offered, by name."""

    def __init__(self, tools: Tools | None = None) -> None:
        self._tools: Tools = tools or {}
        self._restart()

    def _restart(self) -> None:
        self._parts: list[str] = []  # of the text that is held back
        self._awaited: str | None = None  # what has to come before the held text can be a call
        self._tail = ""  # of the held text, in which that may have begun
        self._has_begun = False  # text or a call was read
        self._is_behind = False  # a call was the last that was read: blanks behind it are no text
        self._failures = 0
        self._is_broken = False  # a call could not be read
        self._calls: list[Call] = []

    def feed(self, text: str) -> str:
        """Return what of the text so far is text in any case and was not returned before."""
        if not self._tools:
            return text
        self._parts.append(text)
        if self._awaited is not None:
            seen = self._tail + text
            self._tail = seen[len(seen) - len(self._awaited) + 1 :]
            if self._awaited == _AT_THE_END or self._awaited not in seen:
                return ""
        return self._read(is_last=False)

    def read(self, text: str) -> ReadAnswer:
        """Return what a whole answer is."""
        before = self.feed(text)
        rest = self.finish()
        said = before + rest.text
        return ReadAnswer(said.strip() if rest.calls else said, rest.calls, rest.warning)

    def finish(self) -> ReadAnswer:
        """Return what was held back as text, and all calls of the answer."""
        text = self._read(is_last=True)
        found = ReadAnswer(text, tuple(self._calls), NOT_READ if self._is_broken else "")
        self._restart()
        return found

    def _read(self, *, is_last: bool) -> str:
        """Decide on what is held as far as that can be; return its text."""
        held, said = "".join(self._parts), ""
        self._awaited = None
        if not self._has_begun:
            start = held.lstrip()
            if not is_last and (not start or _may_be_bare(start)):
                return self._hold(held, _AT_THE_END if start[1:] else None)
            self._has_begun = True
            if self._is_call(start.rstrip()):
                held = ""
        at = 0  # what comes before is decided
        while self._failures < FAILURES and (mark := _MARK.search(held, at)) is not None:
            form, behind = _BY_MARK[mark[0]], mark.end()
            said += self._text(held[at : mark.start()])
            end = self._called(held, form, behind, is_last=is_last)
            if end is None:
                return said + self._hold(held[mark.start() :], form.end)
            said += self._text(mark[0]) if end == behind else ""
            at = end
        n = 0 if is_last or self._failures >= FAILURES else _begun(held)
        rest = max(at, len(held) - n)
        said += self._text(held[at:rest])
        return said + self._hold(held[rest:])

    def _hold(self, text: str, awaited: str | None = None) -> str:
        """Hold a text back until `awaited` comes, None for any further text."""
        self._parts, self._awaited = [text], awaited
        self._tail = text[len(text) - len(awaited or " ") + 1 :]
        return ""

    def _text(self, text: str) -> str:
        """Return what is text of the answer."""
        text = text.lstrip() if self._is_behind else text
        self._is_behind &= not text
        return text

    def _called(self, text: str, form: CallForm, at: int, *, is_last: bool) -> int | None:
        """Read the call behind a mark; return the place behind it, `at` if it is none, None if that is yet to come."""
        begun = text[at : at + 80].lstrip()
        if form.read is json_calls and begun and begun[0] not in "{[":
            self._is_broken |= not form.is_code
            return at
        if not is_last and not (form.end and text.find(form.end, at) >= 0):
            return None
        try:
            calls, end = form.read(text, at, self._tools)
            end = _past(form.end, text, end)
        except ValueError:
            if not is_last and not form.is_code:
                self._failures += 1  # the end may have stood in an argument
                return None if self._failures < FAILURES else at
            calls, end = [], at
        kept = self._kept(calls)
        self._failures += not kept
        self._is_broken |= len(kept) < max(1, len(calls)) and not (form.is_code and not kept)
        self._calls += kept
        self._is_behind |= bool(kept)
        return end if kept else at

    def _is_call(self, text: str) -> bool:
        """Whether a whole answer without marks is calls, which are kept then."""
        for read in (json_calls, python_calls) if text[:1] in ("{", "[") else ():
            with suppress(ValueError):
                calls, end = read(text, 0, self._tools)
                kept = self._kept(calls)
                if end == len(text) and len(kept) == len(calls):
                    self._calls += kept
                    return True
        return False

    def _kept(self, calls: list[Called]) -> list[Call]:
        """Return those calls whose tools were offered, and whose arguments JSON and UTF-8 can have."""
        kept = []
        for name, arguments in calls:
            with suppress(ValueError, RecursionError):
                json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
                kept += [Call(name, arguments)] if name in self._tools else []
        return kept


def _may_be_bare(start: str) -> bool:
    """Whether a text may become calls without a mark: objects with names, or functions of Python in a list."""
    inner = start.lstrip("{[").lstrip()
    name = _NAME.match(inner)
    if start[0] == "{" or inner != start[1:].lstrip():
        return inner[:1] in ("", '"')
    return start[0] == "[" and (name is None or inner[name.end() :][:1] in ("", "("))


def _begun(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a mark."""
    return next((n for n in range(_LONGEST - 1, 0, -1) if text[-n:] in _BEGINNINGS), 0)


def _past(end: str, text: str, at: int) -> int:
    """Return the place behind the end of a call; raises ValueError where it stands behind other text."""
    start = after(_BLANKS, text, at)
    if end and text.startswith(end, start):
        return start + len(end)
    if end and text.find(end, start) >= 0 and not _MARK.match(text, start):
        raise ValueError
    return at
