"""The form in which a template takes a message: its content as a string or as typed parts, and its reasoning.

Nothing is assumed of a family: a template names the fields that it reads, and rendering shows which form comes through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from localspec.prompt.tools import calls_of
from localspec.settings.request import Message

FIELDS = ("reasoning_content", "reasoning", "thinking")  # the names of a thought beside the content, by use
_READ = "|".join(FIELDS)
_FIELD = re.compile(rf"""(?:\.|\[\s*["']|get\(\s*["'])({_READ})\b|["']({_READ})["']\s+in\b""")
_THINKING_PART = re.compile(r"""["']thinking["']\s*(?:\]|\)|%\}|and\b|or\b)""")


@dataclass(frozen=True, slots=True)
class ContentForm:
    """The `roles` whose contents are typed parts, and the `fields` in which the template looks for a thought.

    With `has_thoughts` a thought is a part of its own, as Magistral has it. With `has_text_arguments` those of a call
    are JSON text, not an object.
    """

    roles: frozenset[str] = frozenset()
    fields: tuple[str, ...] = ()
    has_thoughts: bool = False
    has_text_arguments: bool = False

    def given(self, message: Message) -> dict[str, Any]:
        """Return a message as the template gets it."""
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
