"""Calls of tools while they are written: the name as soon as it stands there, then pieces of the arguments' JSON.

A call begins where a form's head names a tool that was offered, and its arguments follow. From there on it is a call,
whatever comes: what was sent cannot be taken back.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from localspec.prompt.call_forms import JSON, CallForm, Markup, Tools, after, value_of

NOT_WHOLE = "a call of a tool is not whole, and its arguments are no JSON"
NOT_OFFERED = "a call of a tool that was not offered was left out"
LONGEST_HEAD = 512  # characters between a mark and the arguments
LONGEST_SKIPPED = 4096  # characters that may stand between two calls that no mark ends
_PLAIN = re.compile(r'[^"\\{}\[\]\x00-\x1f]+')
_SEPARATORS = re.compile(r"[\s,;\]}]*")
_BEGUN_TAG = re.compile(r"\n?(?:<[^<>\n]{0,60}(?:>\s{0,20}(?:<[^<>\n]{0,60})?)?)?\Z")
_json = partial(json.dumps, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of call number `index` of an answer: its beginning, more `text` of its arguments' JSON, or its end.

    `is_broken` at the end: the arguments are no JSON, or a limit cut them.
    """

    index: int
    id: str
    name: str
    text: str = ""
    is_first: bool = False
    is_last: bool = False
    is_broken: bool = False


def drawn_id() -> str:
    """Return the id of a call: nine letters, on which Mistral's templates insist."""
    return secrets.token_hex(5)[:9]


def is_sendable(arguments: Any) -> bool:
    """Whether JSON and UTF-8 can have these arguments."""
    with suppress(ValueError, RecursionError):
        return bool(_json(arguments, allow_nan=False).encode())
    return False


class _Arguments(Protocol):
    """The arguments of one call: `rest` is the text behind them, None as long as they go on."""

    rest: str | None

    def feed(self, text: str) -> str:
        """Return what a text adds to their JSON."""


class _Json:
    """Arguments that are JSON. Line ends within texts are written as JSON has them."""

    def __init__(self) -> None:
        self.rest: str | None = None
        self._depth = 0
        self._is_text = self._is_escaped = False

    def feed(self, text: str) -> str:
        said, at = [], 0
        while at < len(text) and self.rest is None:
            plain = None if self._is_escaped else _PLAIN.match(text, at)
            each = text[at] if plain is None else plain[0]
            at += len(each)
            if self._is_escaped:
                self._is_escaped = False
            elif each == '"':
                self._is_text = not self._is_text
            elif self._is_text:
                self._is_escaped = each == "\\"
                each = _json(each)[1:-1] if each < " " else each
            elif plain is None:
                self._depth += (each in "{[") - (each in "}]")
                self.rest = None if self._depth else text[at:]
            said.append(each)
        return "".join(said)


class _Tags:
    """Arguments in markup: texts come as they are written, and values of other types once they are whole."""

    def __init__(self, markup: Markup, schema: Mapping[str, Any]) -> None:
        self.rest: str | None = None
        self._markup, self._schemas = markup, schema.get("properties", {})
        self._ahead, self._separator = "", "{"
        self._key: str | None = None  # of the value at hand
        self._is_new = self._is_text = False

    def feed(self, text: str) -> str:
        said, seen = "", len(self._ahead)
        self._ahead += text
        while self.rest is None:
            if self._key is None:
                key, end = self._markup.key.match(self._ahead), self._markup.end.match(self._ahead)
                if key is None:
                    if end is not None or len(self._ahead) > LONGEST_HEAD:
                        self.rest = self._ahead if end is None else self._ahead[end.end() :]
                        said += "" if end is None else "{}" if self._separator == "{" else "}"
                    return said
                self._key, self._is_new, seen = key[1].strip(), True, 0
                self._ahead = self._ahead[key.end() :]
                schema = self._schemas.get(self._key)
                self._is_text = isinstance(schema, dict) and schema.get("type") == "string"
                said += f"{self._separator}{_json(self._key)}: " + '"' * self._is_text
                self._separator = ", "
            closed = self._markup.closes.search(self._ahead, max(0, seen - LONGEST_HEAD))
            begun = closed or (_BEGUN_TAG.search(self._ahead) if self._is_text else None)
            if begun is None:
                return said
            value, self._ahead = self._ahead[: begun.start()], self._ahead[begun.end() if closed else begun.start() :]
            if self._is_new and value:
                value, self._is_new = value.removeprefix("\n"), False
            said += _json(value)[1:-1] if self._is_text else _json(value_of(value, self._schemas.get(self._key)))
            if closed is None:
                return said
            said += '"' * self._is_text
            self._key = None
        return said


class CallsInPieces:
    """The calls behind one mark. `rest` is the text behind them, None as long as more of them may come.

    `index` is the number of the first one. `warning` tells of one that is no JSON, was cut, or names another tool.
    """

    def __init__(self, form: CallForm, tools: Tools, index: int) -> None:
        self.rest: str | None = None
        self.warning = ""
        self.is_cut = False
        self.index = index - 1  # of the last call that has begun
        self._form, self._tools = form, tools
        self._ahead = ""  # text that no call has
        self._looked = 0  # characters of it
        self._arguments: _Arguments | None = None
        self._said: list[str] = []
        self._raw: list[str] = []  # as it was written
        self._id = self._name = ""

    @classmethod
    def begun(cls, form: CallForm, tools: Tools, index: int, text: str) -> tuple[CallsInPieces, list[CallPiece]] | None:
        """Return the calls that a text behind a mark begins, and their pieces so far; None while it begins none."""
        if not any(pattern.match(text) for pattern, _ in form.heads):
            return None
        made = cls(form, tools, index)
        pieces = made.feed(text)
        return (made, pieces) if pieces else None

    def feed(self, text: str) -> list[CallPiece]:
        pieces: list[CallPiece] = []
        self._ahead += text
        while self.rest is None:
            if self._arguments is None:
                if not self._has_begun():
                    break
                pieces.append(CallPiece(self.index, self._id, self._name, is_first=True))
            assert self._arguments is not None
            said = self._arguments.feed(self._ahead)
            self._said.append(said)
            self._raw.append(self._ahead)
            if said:
                pieces.append(CallPiece(self.index, self._id, self._name, said))
            self._ahead, self._looked = self._arguments.rest or "", 0
            if self._arguments.rest is None:
                break
            pieces.append(self._ended())
        return pieces

    def finish(self) -> list[CallPiece]:
        """Return the end of a call that was cut; what no call has is `rest`."""
        self.is_cut = self._arguments is not None
        if self.rest is None:
            self.rest = self._ahead[after(_SEPARATORS, self._ahead, 0) :]
        return [self._ended()] if self.is_cut else []

    def _has_begun(self) -> bool:
        """Whether a further call begins; where none can, `rest` is what follows."""
        ahead, end = self._ahead, self._form.end
        start = max(0, self._looked - LONGEST_HEAD) if end else after(_SEPARATORS, ahead, 0)
        self._looked = len(ahead)
        marked = min((at for mark in self._form.marks if (at := ahead.find(mark, start)) >= 0), default=len(ahead))
        closed = ahead.find(end, start, marked + len(end)) if end else -1
        last = closed if closed >= 0 else marked
        for pattern, markup in self._form.heads:
            heads = (
                pattern.finditer(ahead, start, last + len(end)) if end else filter(None, [pattern.match(ahead, start)])
            )
            head = next((head for head in heads if self._is_offered(head)), None)
            if head is not None:
                self.index, self._id, self._name, self._said = self.index + 1, drawn_id(), head[1], []
                self._raw = []
                self._arguments = _Json() if markup is None else _Tags(markup, self._tools[head[1]])
                self._ahead = ahead[head.end() :]
                return True
        if closed >= 0:
            self.rest = ahead[closed + len(end) :]
        elif marked < len(ahead) or (not end and ahead[start : start + 1] not in ("", "{")):
            self.rest = ahead[after(_SEPARATORS, ahead, 0) :]
        elif not end and len(ahead) > start:
            with suppress(ValueError, RecursionError):
                self._ahead = ahead[JSON.raw_decode(ahead, start)[1] :]  # a call of another tool
                return self._has_begun()
            self.rest = ahead[start:] if len(ahead) > LONGEST_SKIPPED else None
        return False

    def _is_offered(self, head: re.Match[str]) -> bool:
        is_offered = head[1] in self._tools
        self.warning = self.warning if is_offered else NOT_OFFERED
        return is_offered

    def _ended(self) -> CallPiece:
        """Return the end of the call at hand; behind a broken one, what follows its mark is read anew."""
        is_good, end = False, self._form.end
        with suppress(ValueError, RecursionError):
            is_good = is_sendable(JSON.decode("".join(self._said)))
        raw = "".join(self._raw)
        if not is_good and end and end in raw:
            self.rest = raw.partition(end)[2]
        self.warning = self.warning if is_good else NOT_WHOLE
        self._arguments = None
        return CallPiece(self.index, self._id, self._name, is_last=True, is_broken=not is_good)
