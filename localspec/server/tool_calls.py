"""Calls of tools in an answer's text, as it comes. `prompt.call_forms` has the forms in which models write them.

A call counts only if its tool was offered. Text before, between and behind calls stays text. What may become a call is
held back until that is decided, at the latest at the answer's end; what is no call after all is text then.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from localspec.prompt.call_forms import BARE, FORMS, JSON, Called, CallForm, Tools, after, json_calls, python_calls
from localspec.server.call_pieces import LONGEST_HEAD, NOT_OFFERED, CallPiece, CallsInPieces, drawn_id, is_sendable
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
    id: str = field(default_factory=drawn_id)

    @property
    def json(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False)

    def to_openai(self) -> Wire:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.json}}

    def to_ollama(self) -> Wire:
        return {"function": {"name": self.name, "arguments": self.arguments}}


Part = str | Call | CallPiece  # of an answer: text, a whole call, or a piece of one


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What an answer, or its end, turned out to be: its `parts` in order, and a warning where a call was not read.

    `has_called`: the answer ends with calls that are whole.
    """

    parts: tuple[Part, ...] = ()
    warning: str = ""
    has_called: bool = False

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]


class CallReader:
    """Reads an answer, and then the next. `tools` are the schemas of the tools that were offered, by name.

    With `in_pieces` calls come while they are written; else each comes once it is whole.
    """

    def __init__(self, tools: Tools | None = None, *, in_pieces: bool = False) -> None:
        self._tools: Tools = tools or {}
        self._in_pieces = in_pieces
        self._restart()

    def _restart(self) -> None:
        self._parts: list[str] = []  # of the text that is held back
        self._awaited: str | None = None  # what has to come before the held text can be a call
        self._tail = ""  # of the held text, in which that may have begun
        self._has_begun = False  # text or a call was read
        self._is_behind = False  # a call was the last that was read: blanks behind it are no text
        self._failures = 0
        self._warning = ""  # of a call that could not be read
        self._n_calls = 0
        self._written: CallsInPieces | None = None  # that are being written
        # Of a call that may be, and where it begins in the held text.
        self._held_form: tuple[CallForm, int] | None = None

    def feed(self, text: str) -> list[Part]:
        """Return what the text so far is in any case, and was not returned before."""
        if not self._tools:
            return [text] if text else []
        parts: list[Part] = []
        if self._written is not None:
            rest = self._continued(parts, text)
            if rest is None:
                return parts
            text = rest
        self._parts.append(text)
        if self._awaited is not None:
            seen = self._tail + text
            self._tail = seen[len(seen) - len(self._awaited) + 1 :]
            if self._awaited == _AT_THE_END or self._awaited not in seen:
                rest = self._begun(parts)
                if rest is None:
                    return parts
                self._parts = [rest]
        self._read(parts, is_last=False)
        return _joined(parts)

    def read(self, text: str) -> ReadAnswer:
        """Return what a whole answer is; where it calls, its text has no blanks at its ends."""
        in_pieces, self._in_pieces = self._in_pieces, False
        parts, end = self.feed(text), self.finish()
        self._in_pieces = in_pieces
        parts = _joined([*parts, *end.parts])
        if end.has_called:
            texts = [i for i, part in enumerate(parts) if isinstance(part, str)]
            for i in texts[:1]:
                parts[i] = str(parts[i]).lstrip()
            for i in texts[-1:]:
                parts[i] = str(parts[i]).rstrip()
        return ReadAnswer(tuple(filter(None, parts)), end.warning, end.has_called)

    def finish(self) -> ReadAnswer:
        parts: list[Part] = []
        n_cut = 0  # calls, the last of which was cut
        if self._written is not None:
            written = self._written
            parts += written.finish()
            n_cut = written.index + 1 if written.is_cut else 0
            self._parts = [self._continued(parts, "") or ""]
        self._read(parts, is_last=True)
        answer = ReadAnswer(tuple(_joined(parts)), self._warning, self._n_calls > n_cut)
        self._restart()
        return answer

    def _continued(self, parts: list[Part], text: str) -> str | None:
        """Go on with calls that are being written; return the text behind them once it comes."""
        assert self._written is not None
        parts += self._written.feed(text)
        return self._rest_of(self._written)

    def _rest_of(self, written: CallsInPieces) -> str | None:
        self._written, self._n_calls, self._has_begun = written, written.index + 1, True
        self._warning = written.warning or self._warning
        if written.rest is not None:
            self._written, self._is_behind = None, True
        return written.rest

    def _begun(self, parts: list[Part]) -> str | None:
        """Take the held text for calls that are being written, if it has their head; return the text behind them."""
        if self._held_form is None:
            return None
        (form, at), held = self._held_form, "".join(self._parts)
        begun = CallsInPieces.begun(form, self._tools, self._n_calls, held[at:])
        if begun is None:
            self._held_form = self._held_form if len(held) - at < LONGEST_HEAD else None
            return None
        self._parts, self._awaited, self._held_form = [], None, None
        parts += begun[1]
        return self._rest_of(begun[0])

    def _read(self, parts: list[Part], *, is_last: bool) -> None:
        while (rest := self._looked_through(parts, is_last=is_last)) is not None:
            self._parts = [rest]

    def _looked_through(self, parts: list[Part], *, is_last: bool) -> str | None:
        """Decide on it up to calls that are being written; return what is behind them."""
        held = "".join(self._parts)
        self._parts, self._awaited, self._held_form = [], None, None
        if not self._has_begun:
            start = held.lstrip()
            if not is_last and (not start or _may_be_bare(start)):
                is_decided = '"' in start or "(" in start or len(start) > LONGEST_HEAD
                self._hold(held, _AT_THE_END if is_decided else None)
                return self._try(parts, BARE, 0)
            self._has_begun = True
            held = self._without_bare(parts, held)
        at = 0  # what comes before is decided
        while self._failures < FAILURES and (mark := _MARK.search(held, at)) is not None:
            form, behind = _BY_MARK[mark[0]], mark.end()
            self._say(parts, held[at : mark.start()])
            end = self._called(parts, held, form, behind, is_last=is_last)
            if end is None:
                self._hold(held[mark.start() :], form.end)
                return self._try(parts, form, len(mark[0]))
            self._say(parts, mark[0] if end == behind else "")
            at = end
        n = 0 if is_last or self._failures >= FAILURES else _begun(held)
        rest = max(at, len(held) - n)
        self._say(parts, held[at:rest])
        self._hold(held[rest:])
        return None

    def _try(self, parts: list[Part], form: CallForm, at: int) -> str | None:
        """Take the held text for calls of a form if they have begun; return the text behind them."""
        self._held_form = (form, at) if self._in_pieces and form.heads else None
        return self._begun(parts)

    def _hold(self, text: str, awaited: str | None = None) -> None:
        """Hold a text back until `awaited` comes, None for any further text."""
        self._parts, self._awaited = [text], awaited
        self._tail = text[len(text) - len(awaited or " ") + 1 :]

    def _say(self, parts: list[Part], text: str) -> None:
        text = text.lstrip() if self._is_behind else text
        self._is_behind &= not text
        if text:
            parts.append(text)

    def _called(self, parts: list[Part], text: str, form: CallForm, at: int, *, is_last: bool) -> int | None:
        """Read the call behind a mark; return the place behind it, `at` if it is none, None if that is yet to come."""
        begun = text[at : at + 80].lstrip()
        if form.is_json and begun and begun[0] not in "{[":
            self._warning = self._warning if form.is_code else NOT_READ
            return at
        if not is_last and not (form.end and text.find(form.end, at) >= 0):
            return None
        try:
            calls, end = self._calls_behind(text, form, at, is_last=is_last)
        except ValueError:
            if not is_last and not form.is_code:
                self._failures += 1
                if self._failures < FAILURES:
                    return None  # the end may have stood in an argument
                self._warning = NOT_READ
                return at
            calls, end = [], at
        self._failures += not calls
        if not calls and not form.is_code:
            self._warning = NOT_READ
        self._add(parts, calls)
        return end if calls else at

    def _calls_behind(self, text: str, form: CallForm, at: int, *, is_last: bool) -> tuple[list[Call], int]:
        """Return the calls behind a mark and the place behind them; raises ValueError where one is not whole."""
        begun = CallsInPieces.begun(form, self._tools, 0, text[at:])
        if begun is None:
            given, end = form.read(text, at, self._tools)
            calls = self._offered(given)
            if len(calls) < len(given) and (calls or not form.is_code):
                self._warning = NOT_OFFERED
            return calls, _past(form.end, text, end)
        made, pieces = begun
        if made.rest is None and not is_last:
            raise ValueError
        pieces += made.finish()
        if any(piece.is_broken for piece in pieces):
            raise ValueError
        assert made.rest is not None
        self._warning = made.warning or self._warning
        said = ["".join(piece.text for piece in pieces if piece.index == i) for i in range(made.index + 1)]
        firsts = [piece for piece in pieces if piece.is_first]
        calls = [Call(each.name, JSON.decode(said[each.index]), each.id) for each in firsts]
        return calls, len(text) - len(made.rest)

    def _add(self, parts: list[Part], calls: list[Call]) -> None:
        for i, call in enumerate(calls, self._n_calls):
            parts += _whole(call, i) if self._in_pieces else [call]
        self._n_calls += len(calls)
        self._is_behind |= bool(calls)

    def _without_bare(self, parts: list[Part], text: str) -> str:
        """Return a whole answer without the calls that begin it without a mark."""
        start = text.strip()
        for read in (json_calls, python_calls) if start[:1] in ("{", "[") else ():
            with suppress(ValueError):
                calls, end = read(start, 0, self._tools)
                allowed = self._offered(calls)
                if len(allowed) == len(calls) and (end == len(start) or read is json_calls):
                    self._add(parts, allowed)
                    return start[end:]
        return text

    def _offered(self, calls: list[Called]) -> list[Call]:
        """Return those calls whose tools were offered, and whose arguments JSON and UTF-8 can have."""
        return [Call(name, given) for name, given in calls if name in self._tools and is_sendable(given)]


def _joined(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        alike = list(group)
        joined += ["".join(map(str, alike))] if is_text else alike
    return joined


def _whole(call: Call, index: int) -> Iterator[CallPiece]:
    yield CallPiece(index, call.id, call.name, is_first=True)
    yield CallPiece(index, call.id, call.name, call.json)
    yield CallPiece(index, call.id, call.name, is_last=True)


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
