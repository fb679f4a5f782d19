"""Calls of tools in an answer's text: the three commonest forms, and else text.

    <tool_call>{"name": ..., "arguments": {...}}</tool_call>     Hermes, Qwen
    {"name": ..., "parameters": {...}}                           Llama 3, also after <|python_tag|>, or fenced as code
    [TOOL_CALLS][{"name": ..., "arguments": {...}}]              Mistral, also as name[ARGS]{...}

Text from where a call may begin is held back until the answer's end; what is no call after all is text then.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from localspec.server.refusal import Wire

HERMES, PYTHON, MISTRAL = "<tool_call>", "<|python_tag|>", "[TOOL_CALLS]"
MARKS = (HERMES, PYTHON, MISTRAL)
BARE = ("{", "```json")  # where an answer begins so, it may be a call without a mark
NOT_READ = "a call of a tool could not be read, and is text of the answer"
# A text in the arguments may have the mark of the end.
_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>\s*(?=<tool_call>|\Z)|\Z)", re.S)
_NAMED = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?={)")
_FENCED = re.compile(r"```json\s(.*)```", re.S)
_READER = json.JSONDecoder()


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
    """What the end of an answer turned out to be: `text`, `calls`, and a warning where a call could not be read."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    warning: str = ""


class CallReader:
    """Reads an answer, and then the next; `names` are those of the tools that were offered. Without, all is text."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._is_holding = False
        self._has_begun = False

    def feed(self, text: str) -> str:
        """Return what of the text so far is text in any case and was not returned before."""
        if not self._names:
            return text
        self._held += text
        if self._is_holding:
            return ""
        if not self._has_begun:
            stripped = self._held.lstrip()
            self._is_holding = stripped.startswith(BARE)
            if self._is_holding or any(start.startswith(stripped) for start in BARE):
                return ""
            self._has_begun = True
        at = min((found for mark in MARKS if (found := self._held.find(mark)) >= 0), default=None)
        self._is_holding = at is not None
        if at is None:  # the beginning of a mark may stand at the end
            at = len(self._held) - max(n for mark in MARKS for n in range(len(mark)) if self._held.endswith(mark[:n]))
        shown, self._held = self._held[:at], self._held[at:]
        return shown

    def read(self, text: str) -> ReadAnswer:
        """Return what a whole answer is."""
        shown = self.feed(text)
        rest = self.finish()
        return replace(rest, text=shown.rstrip() if rest.calls else shown + rest.text)

    def finish(self) -> ReadAnswer:
        """Return what was held back: calls, or text."""
        text = self._held
        self._held, self._is_holding, self._has_begun = "", False, False
        is_marked = any(mark in text for mark in MARKS)
        try:
            calls = tuple(self._calls(text))
        except (ValueError, TypeError, RecursionError):
            return ReadAnswer(text, warning=NOT_READ if is_marked else "")
        if not calls or not all(call.name in self._names for call in calls):
            return ReadAnswer(text, warning=NOT_READ if is_marked else "")
        return ReadAnswer(calls=calls)

    def _calls(self, text: str) -> Iterator[Call]:
        """Yield the calls in a text that begins with one; raises ValueError or TypeError for another text."""
        text = text.strip()
        if text.startswith(HERMES):
            for found in _HERMES.findall(text):
                yield from _objects(found)
        elif text.startswith(MISTRAL):
            for part in filter(str.strip, text.split(MISTRAL)):
                named = _NAMED.match(part)
                if named is None:
                    yield from _objects(part)
                    continue
                arguments, end = _READER.raw_decode(part, named.end())
                if part[end:].strip():
                    raise ValueError
                yield _call({"name": named[1], "arguments": arguments})
        else:
            fenced = _FENCED.fullmatch(text)
            yield from _objects(fenced[1] if fenced else text.removeprefix(PYTHON))


def _objects(text: str) -> Iterator[Call]:
    """Yield the calls of JSON objects, of lists of them, or of several with a semicolon, comma or space between."""
    text = text.strip()
    if text.startswith("{{") and text.endswith("}}"):  # as Qwen 2.5's template has it by mistake
        text = text[1:-1]
    at = 0
    while (at := _after_space(text, at)) < len(text):
        found, at = _READER.raw_decode(text, at)
        for each in found if isinstance(found, list) else [found]:
            yield _call(each)


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n;,":
        at += 1
    return at


def _call(given: Any) -> Call:
    """Return a call; raises ValueError or TypeError for what is none."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise TypeError
    arguments = given.get("arguments", given.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise TypeError
    json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()  # ValueError for what JSON or UTF-8 cannot have
    return Call(given["name"], arguments)
