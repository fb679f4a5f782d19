"""Reads the messages of a chat: texts, calls of tools and their results."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec

from localspec.server.fields import NO_IMAGES, Fields
from localspec.server.refusal import Refusal
from localspec.settings.request import Message

Objects = list[dict[str, Any]]
OLD_TOOLS = "tools have taken its place"
MOST_MESSAGES = 10_000
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def messages_of(fields: Fields) -> tuple[Message, ...]:
    """Return the field `messages`; raises Refusal for what is no text."""
    given = fields.take("messages", Objects)
    if not given:
        raise fields.refusal("messages", f"1 to {MOST_MESSAGES} messages are needed")
    return chat_messages(given, "messages")


def chat_messages(given: Objects, place: str = "input") -> tuple[Message, ...]:
    """Return the messages of a chat; results get the names of the tools that were called, where they lack them."""
    if len(given) > MOST_MESSAGES:
        raise Refusal(400, f"{place}: at most {MOST_MESSAGES} messages", param=place)
    messages = [_message(each, f"{place}[{i}].") for i, each in enumerate(given)]
    names: dict[str, str] = {}
    for i, message in enumerate(messages):
        names |= {call["id"]: call["function"]["name"] for call in json.loads(message.calls or "[]")}
        if message.role == "tool" and not message.name:
            messages[i] = replace(message, name=names.get(message.call_id, ""))
    return tuple(messages)


def _message(given: dict[str, Any], place: str) -> Message:
    """Return one message: its text, or its parts if all are text."""
    fields = Fields(given, place)
    role = fields.take("role", str, "")
    if role not in ROLES:
        raise fields.refusal("role", OLD_TOOLS if role == "function" else f"one of {', '.join(ROLES)}")
    content = fields.content()
    reasoning = fields.take("reasoning_content", str, "") or fields.take("thinking", str, "")
    fields.refuse({"function_call": (OLD_TOOLS, ()), "images": (NO_IMAGES, ([],)), "audio": (NO_IMAGES, ())})
    calls = [_call(each, f"{place}tool_calls[{i}].") for i, each in enumerate(fields.take("tool_calls", Objects, []))]
    if role == "tool":
        name = fields.take("tool_name", str, "") or fields.take("name", str, "")
        call_id = fields.take("tool_call_id", str, "")
        fields.finish(())
        return Message("tool", content, name=name, call_id=call_id)
    fields.finish(("name", "refusal", "annotations"))
    if role != "assistant":
        return Message(ROLES[role], content)
    return Message(role, content, reasoning, calls=json.dumps(calls) if calls else "")


def _call(given: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a call of a tool: its arguments are an object, or the JSON of one."""
    fields = Fields(given, place)
    call_id, kind = fields.take("id", str, ""), fields.take("type", str, "function")
    function = fields.within("function")
    fields.finish(("index",))
    name, arguments = function.take("name", str, ""), function.take("arguments", str | dict[str, Any], {})
    function.finish(("index",))
    if kind != "function" or not name:
        raise fields.refusal("function", "a function with a name is needed")
    try:
        found = msgspec.json.decode(arguments or "{}") if isinstance(arguments, str) else arguments
        msgspec.convert(found, dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise function.refusal("arguments", "the JSON of an object is needed") from None
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": found}}
