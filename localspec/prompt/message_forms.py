"""The forms in which a chat template takes messages, and the tools of a request.

Tools stand in a prompt as the template writes them, or, where it knows none, as text in the form of Hermes.

Invariant: no text of a tool or of a call can become a control token, for one that spells it is refused.

A message's content is a string or typed parts, and its reasoning has a place of its own. Nothing is assumed of a
family: a template names the fields that it reads, and rendering shows which form comes through.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.errors import UsageError
from localspec.settings.request import Message

Tools = Sequence[dict[str, Any]]  # as OpenAI has them: {"type": "function", "function": {...}}
UNKNOWN = "the chat template knows no tools, so they are described in the system message"
_OFFER = """You may call functions. Their signatures are:
<tools>
{tools}
</tools>
For each call write a JSON object with the function's name and arguments, within tags:
<tool_call>
{{"name": NAME, "arguments": ARGUMENTS}}
</tool_call>"""


def tools_of(text: str | None) -> Tools:
    tools: Tools = json.loads(text) if text else ()
    return tools


def knows_tools(template: str | None) -> bool:
    return template is not None and re.search(r"\btools\b", template) is not None


def check_texts(messages: Sequence[Message], tools: Tools, specials: Collection[str]) -> None:
    """Raise UsageError for a tool or a call that spells a control token: it would become one."""
    texts = [*_texts(list(tools)), *(text for message in messages for text in _call_texts(message))]
    for text in texts:
        special_within = next((special for special in specials if special and special in text), None)
        if special_within is not None:
            problem = f"a tool or a call of one holds {special_within!r}, which is a control token of this model"
            raise UsageError(problem, hint="other words there")


def _call_texts(message: Message) -> Iterator[str]:
    yield from (message.name, message.call_id)
    yield from _texts(calls_of(message))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for each in pair for text in _texts(each))
    elif isinstance(value, list):
        yield from (text for each in value for text in _texts(each))


def calls_of(message: Message, *, as_text: bool = False) -> list[dict[str, Any]]:
    """Return the calls of an answer, as templates read them; `as_text`: with their arguments as JSON text."""
    calls: list[dict[str, Any]] = json.loads(message.calls) if message.calls else []
    for call in calls if as_text else ():
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return calls


def as_plain(messages: Sequence[Message], tools: Tools) -> tuple[Message, ...]:
    said = [_plain(message) for message in messages]
    if not tools:
        return tuple(said)
    offer = _OFFER.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if said and said[0].role == "system":
        return (replace(said[0], content=f"{said[0].content}\n\n{offer}"), *said[1:])
    return (Message("system", offer), *said)


def _plain(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    calls = [{name: call["function"][name] for name in ("name", "arguments")} for call in calls_of(message)]
    written = [f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls]
    content = "\n".join(filter(None, (message.content, *written)))
    return replace(message, content=content, calls="") if calls else message


FIELDS = ("reasoning_content", "reasoning", "thinking")  # the names of a thought beside the content, by use
_READ = "|".join(FIELDS)
_FIELD = re.compile(rf"""(?:\.|\[\s*["']|get\(\s*["'])({_READ})\b|["']({_READ})["']\s+in\b""")
_THINKING_PART = re.compile(r"""["']thinking["']\s*(?:\]|\)|%\}|and\b|or\b)""")


@dataclass(frozen=True, slots=True)
class ContentForm:
    """The `roles` whose contents are typed parts, and the `fields` in which the template looks for a thought. With
    `has_thoughts` a thought is a part of its own, as Magistral has it. With `has_text_arguments` those of a call are
    JSON text, not an object."""

    roles: frozenset[str] = frozenset()
    fields: tuple[str, ...] = ()
    has_thoughts: bool = False
    has_text_arguments: bool = False

    def given(self, message: Message) -> dict[str, Any]:
        content: str | list[dict[str, str]] = message.content
        if message.role in self.roles:
            thought = [{"type": "thinking", "thinking": message.reasoning}] * (
                self.has_thoughts and bool(message.reasoning)
            )
            content = [*thought, {"type": "text", "text": message.content}]
        made: dict[str, Any] = {"role": message.role, "content": content}
        if message.reasoning:
            made |= dict.fromkeys(self.fields, message.reasoning)
        if message.calls:
            made["tool_calls"] = calls_of(message, as_text=self.has_text_arguments)
        if message.role == "tool":
            made |= {"name": message.name, "tool_call_id": message.call_id}
        return made


STRINGS = ContentForm()


def forms_of(template: str, roles: set[str]) -> Iterator[ContentForm]:
    """Yield the forms to try, strings first; parts only where a template could read them."""
    has_parts = re.search(r"""\.text\b|["']text["']""", template) is not None
    read = {name for match in _FIELD.finditer(template) for name in match.groups() if name}
    base = ContentForm(fields=tuple(name for name in FIELDS if name in read))
    if has_parts and _THINKING_PART.search(template) and "thinking" in read:
        base = replace(base, has_thoughts=True, roles=frozenset({"assistant"}), fields=())
    yield base
    if has_parts:
        for some in (roles, roles - {"assistant"}, roles - {"system"}, {"user"}, roles - {"user"}):
            if frozenset(some) != base.roles:
                yield replace(base, roles=frozenset(some))
        if base.roles:
            yield ContentForm()
