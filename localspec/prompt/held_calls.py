"""Calls of tools held to their schemas, from the mark that begins a call to its end.

Which form a model's calls have is read off its chat template. Each form is a grammar of Lark, with one alternative for
each tool that was offered. Before a call, and behind it, any text may follow: the law is restricted within calls alone.
Forms whose arguments are neither JSON nor markup (LFM2, Gemma, Llama 3.2) are not held, nor are calls without a mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.backends.model import Model
from localspec.engine.constraint import FREE, NOTHING, Matched, is_allowed
from localspec.engine.distribution import Ids
from localspec.engine.text import Marks, common_prefix
from localspec.errors import UsageError
from localspec.prompt.call_forms import Tools, call_schema
from localspec.prompt.form import OPTIONS, SPACED, compiled, prepared

Spelled = Callable[[str], str]  # a text as Lark has it: control tokens of the vocabulary by their numbers
MOST_ENDS = 64  # tokens that end a text, of a vocabulary
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_LINE = "LINE?"
_TERMINALS = r"""LINE: /[ \n]{1,2}/
ANY: /(.|\n)*/"""
Spell = Callable[[Spelled, str, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class HeldForm:
    """A call as text: `mark`, then what `frame` makes of one call of each tool, which `call` spells. `call` and `frame`
    return expressions of Lark. `call` gets the tool's name and its schema. `signs` are the texts of a chat template
    whose model writes such calls; without them the mark is."""

    mark: str
    call: Spell
    frame: Callable[[Spelled, str], str]
    tail: str = "</parameter>"  # what ends a text among markup
    signs: tuple[str, ...] = ()

    def grammar(self, spelled: Spelled, tools: Tools, *, or_json: str | None = None) -> str:
        """Return the grammar of what follows the mark; with a schema `or_json`, that of a whole call or of its JSON."""
        calls = [self.call(spelled, name, _kept(schema)) for name, schema in tools.items()]
        rules = [f"call_{i}: {call}" for i, call in enumerate(calls)]
        framed = self.frame(spelled, " | ".join(f"call_{i}" for i in range(len(calls))))
        start = f"start: {framed}"
        if or_json is not None:
            start = f"start: {spelled(self.mark)} ({framed}) | {_json(json.loads(or_json))}"
        value = "value[lazy]: /(.|\\n)*" + re.escape(self.tail).replace("/", "\\/") + "/"
        return "\n".join([start, *rules, _TERMINALS, value])


def held_form(template: str | None) -> HeldForm | None:
    """Return the form in which the model of a chat template writes calls, None where calls are not held."""
    text = template or ""
    if re.search(r"\btools\b", text) is None:
        return HERMES
    return next((form for form in _FORMS if all(sign in text for sign in form.signs or [form.mark])), None)


def schemas_of(tools: str | None) -> Tools:
    functions = [tool["function"] for tool in json.loads(tools or "[]")]
    return {function["name"]: function["parameters"] for function in functions}


def spelled_for(model: Model) -> Spelled:
    def spelled(text: str) -> str:
        parts: list[str] = []
        said = b""
        for token in model.tokenize(text, parse_special=True) if text else []:
            if model.is_parsed(token):
                parts += [_quoted(said), f"<[{token}]>"]
                said = b""
            else:
                said += model.piece(token)
        return " ".join(filter(None, [*parts, _quoted(said)]))

    return spelled


def _quoted(text: bytes) -> str:
    return json.dumps(text.decode("utf-8", "replace"), ensure_ascii=False) if text else ""


def _kept(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        compiled(("schema", json.dumps(schema)))
    except UsageError:
        return ANY_OBJECT
    return schema


def _json(schema: Any) -> str:
    return f"%json {json.dumps({**(prepared(schema) if isinstance(schema, dict) else {}), OPTIONS: SPACED})}"


def _markup(head: str, key: str, tail: str, end: str) -> Spell:
    def spell(spelled: Spelled, name: str, schema: Mapping[str, Any]) -> str:
        parts = [f"{spelled(head.format(name))} {_LINE}"]
        for each, value in (schema.get("properties") or {}).items():
            begun, ended = spelled(key.format(each)), spelled(tail)
            given = value if isinstance(value, dict) else {}
            if given.get("type") == "string" and not {"enum", "const"} & given.keys():
                said = f"ANY {ended}" if ended.startswith("<[") else "value"
            elif given.get("type") == "string":
                words = map(json.dumps, given.get("enum", [given.get("const")]))
                said = f"{_LINE} ({' | '.join(words)}) {_LINE} {ended}"
            else:
                said = (
                    f"{_LINE} {_json({**given, **{k: schema[k] for k in ('$defs',) if k in schema}})} {_LINE} {ended}"
                )
            part = f"{begun} {said} {_LINE}"
            parts.append(part if each in schema.get("required", ()) else f"({part})?")
        return " ".join([*parts, spelled(end)])

    return spell


def _listed(key: str, arguments: str) -> Spell:
    return lambda spelled, name, schema: _json(call_schema(name, schema, arguments, key))


def _named(text: str, end: str = "") -> Spell:
    return lambda spelled, name, schema: f"{spelled(text.format(name))} {_json(schema)} {spelled(end)}"


def _bare(spelled: Spelled, call: str) -> str:
    return f"({call})"


def _one(end: str) -> Callable[[Spelled, str], str]:
    return lambda spelled, call: f"{_LINE} ({call}) {_LINE} {spelled(end)}"


def _many(end: str) -> Callable[[Spelled, str], str]:
    return lambda spelled, call: f"{_LINE} ({call}) ({_LINE} ({call}))* {_LINE} {spelled(end)}"


def _list(end: str) -> Callable[[Spelled, str], str]:
    return lambda spelled, call: f'{_LINE} "[" {_LINE} ({call}) ("," {_LINE} ({call}))* {_LINE} "]" {spelled(end)}'


_OBJECT = _listed("name", "arguments")
_FUNCTION = _markup("<function={}>", "<parameter={}>", "</parameter>", "</function>")
_INVOKE = _markup('<invoke name="{}">', '<parameter name="{}">', "</parameter>", "</invoke>")
_KEYS = _markup("{}", "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>", "</tool_call>")
_DEEPSEEK = _named("<｜tool▁call▁begin｜>{}<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
_KIMI = _named("<|tool_call_begin|>functions.{}:0<|tool_call_argument_begin|>", "<|tool_call_end|>")
_CHANNEL = _named("{} <|constrain|>json<|message|>")
HERMES = HeldForm("<tool_call>", _OBJECT, _one("</tool_call>"))
_FORMS = (  # the first counts whose signs a template has
    HeldForm("<seed:tool_call>", _FUNCTION, _many("</seed:tool_call>")),
    HeldForm("<minimax:tool_call>", _INVOKE, _many("</minimax:tool_call>")),
    HeldForm("<tool_call>", _FUNCTION, _one("</tool_call>"), signs=("<tool_call>", "<function=")),
    HeldForm("<tool_call>", _KEYS, _bare, "</arg_value>", ("<tool_call>", "<arg_key>")),
    HERMES,
    HeldForm("[TOOL_CALLS]", _named("{}[ARGS]"), _bare, signs=("[TOOL_CALLS]", "[ARGS]")),
    HeldForm("[TOOL_CALLS]", _OBJECT, _list("")),
    HeldForm("<|tool_call|>", _OBJECT, _list("<|/tool_call|>"), signs=("<|tool_call|>", "<|/tool_call|>")),
    HeldForm("<|tool_call|>", _OBJECT, _list("")),
    HeldForm("<｜tool▁calls▁begin｜>", _DEEPSEEK, _many("<｜tool▁calls▁end｜>")),
    HeldForm("<|tool_calls_section_begin|>", _KIMI, _many("<|tool_calls_section_end|>")),
    HeldForm("commentary to=functions.", _CHANNEL, _bare, signs=("to=functions.",)),
)


class HeldCalls:
    """A constraint on calls alone: any text may follow (`FREE`) until `mark` stands in an answer, and behind a call.
    The answer follows the first `begin` tokens of a text. `piece` writes a token, `tokenize` reads a text. `matched`
    makes the constraint of what follows the mark. `marks` are those of the reasoning, in which no call begins."""

    def __init__(
        self,
        begin: int,
        mark: str,
        piece: Callable[[int], bytes],
        tokenize: Callable[[str], list[int]],
        matched: Callable[[], Matched],
        marks: Marks | None,
    ) -> None:
        self._begin, self._mark, self._marks = begin, mark.encode(), marks
        self._piece, self._tokenize, self._make = piece, tokenize, matched
        self._inner: Matched | None = None
        self._held: list[int] = []  # the tokens of the answer that were read
        self._places = [_Place(is_thought=marks is not None and marks.is_open)]  # before each of them, and behind them

    def allowed(self, text: Sequence[int]) -> Ids:
        answer = text[self._begin :]
        same = common_prefix(self._held, answer)
        del self._held[same:], self._places[same + 1 :]
        for token in answer[same:]:
            self._places.append(self._behind(self._places[-1], token))
            self._held.append(token)
        return self._follow(self._places[-1])

    def _behind(self, place: _Place, token: int) -> _Place:
        if place.call is not None:
            if not is_allowed(self._follow(place), token):
                return _Place(call=place.call, has_left=True)
            call = (*place.call, token)
            ids = self._matched.allowed(call)
            return _Place() if all(map(self._matched.is_end, ids[:MOST_ENDS].tolist())) else _Place(call=call)
        said = place.said + self._piece(token)
        end = b"" if self._marks is None else self._marks.end.encode()
        if place.is_thought:
            return _Place(is_begun=True) if end in said else _Place(said[-len(end) :], is_thought=True)
        start = b"" if self._marks is None else self._marks.start.encode()
        if start and not place.is_begun and said.lstrip()[: len(start)] == start[: len(said.lstrip())]:
            is_thought = said.lstrip().startswith(start)
            return _Place(b"" if is_thought else said, is_thought=is_thought)
        at = said.find(self._mark)
        if at < 0:
            return _Place(said[-len(self._mark) :], is_begun=True)
        rest = said[at + len(self._mark) :]
        call = tuple(self._tokenize(rest.decode("utf-8", "replace"))) if rest else ()
        return _Place(call=call) if self._matched.allowed(call).size else _Place(is_begun=True)

    def _follow(self, place: _Place) -> Ids:
        if place.call is None:
            return FREE
        return NOTHING if place.has_left else self._matched.allowed(place.call)

    @property
    def _matched(self) -> Matched:
        if self._inner is None:
            self._inner = self._make()
        return self._inner


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer stands: in text, whose last bytes are `said`, or behind the tokens of a call."""

    said: bytes = b""
    call: tuple[int, ...] | None = None
    is_thought: bool = False
    is_begun: bool = False  # text of the answer has come, so that no thought begins any more
    has_left: bool = False  # a token of the call was not allowed
