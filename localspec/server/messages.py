"""Reads the messages of a chat: texts, calls of tools and their results.

It also reads the tools that a request offers, and the calls and results that its messages hold.
"""

import json
import re
from dataclasses import replace
from typing import Any, Literal

import msgspec

from localspec.prompt.call_forms import NO_TOOLS, Tools, call_schema
from localspec.server.fields import NO_IMAGES, Fields, Reasons
from localspec.server.refusal import Refusal
from localspec.settings.request import FORMS, Message, Request

MOST_TOOLS = 128
DEEPEST = 40  # levels of a tool's parameters
ANYTHING = {"type": "object", "properties": {}}
CHOICES = "none, auto, required, or a function by its name"
Objects = list[dict[str, Any]]
OLD_TOOLS = "tools have taken its place"
MOST_MESSAGES = 10_000
REFUSED: Reasons = {"function_call": (OLD_TOOLS, ()), "images": (NO_IMAGES, ([],)), "audio": (NO_IMAGES, ())}
REASONING = ("reasoning_content", "reasoning", "thinking")  # of llama-server, vLLM, Ollama
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def messages_of(fields: Fields) -> tuple[Message, ...]:
    """Return the field `messages`; raises Refusal for what is no text."""
    given = fields.take("messages", Objects)
    if not given:
        raise fields.refusal("messages", f"1 to {MOST_MESSAGES} messages are needed")
    return chat_messages(fields, given, "messages")


def resumed(fields: Fields, request: Request) -> Request:
    """Return the request of a chat, which goes on with a last message of the assistant unless it says otherwise."""
    opens, wants = fields.take("add_generation_prompt", bool), fields.take("continue_final_message", bool)
    last = request.messages[-1]
    can = last.role == "assistant" and not last.calls and bool(last.content or last.reasoning)
    if wants and not can:
        raise fields.refusal("continue_final_message", "the last message is no text of the assistant's")
    return replace(request, resumes=can and (not opens if wants is None else wants), opens_turn=opens is not False)


def chat_messages(fields: Fields, given: Objects, place: str) -> tuple[Message, ...]:
    """Return the messages of a chat; results get the names of the tools that were called, where they lack them."""
    if len(given) > MOST_MESSAGES:
        raise Refusal(400, f"{place}: at most {MOST_MESSAGES} messages", param=place)
    messages = [_message(fields.object(each, f"{place}[{i}]")) for i, each in enumerate(given)]
    names: dict[str, str] = {}
    for i, message in enumerate(messages):
        names |= {call["id"]: call["function"]["name"] for call in json.loads(message.calls or "[]")}
        if message.role == "tool" and not message.name:
            messages[i] = replace(message, name=names.get(message.call_id, ""))
    return tuple(messages)


def _message(fields: Fields) -> Message:
    role = fields.take("role", str, "")
    if role not in ROLES:
        raise fields.refusal("role", OLD_TOOLS if role == "function" else f"one of {', '.join(ROLES)}")
    content = fields.content()
    reasoning = next(filter(None, [fields.take(name, str, "") for name in REASONING]), "")
    given = fields.take("tool_calls", Objects, [])
    calls = [_call(fields.object(each, f"tool_calls[{i}]")) for i, each in enumerate(given)]
    if role == "tool":
        name = fields.take("tool_name", str, "") or fields.take("name", str, "")
        call_id = fields.take("tool_call_id", str, "")
        fields.finish(refused=REFUSED)
        return Message("tool", content, name=name, call_id=call_id)
    fields.finish(refused=REFUSED)
    if role != "assistant":
        return Message(ROLES[role], content)
    return Message(role, content, reasoning, calls=json.dumps(calls) if calls else "")


def _call(fields: Fields) -> dict[str, Any]:
    """Return a call of a tool: its arguments are an object, or the JSON of one."""
    call_id, kind = fields.take("id", str, ""), fields.take("type", str, "function")
    function = fields.within("function")
    fields.finish()
    name, arguments = function.take("name", str, ""), function.take("arguments", str | dict[str, Any], {})
    function.finish()
    if kind != "function" or not name:
        raise fields.refusal("function", "a function with a name is needed")
    try:
        given = msgspec.json.decode(arguments or "{}") if isinstance(arguments, str) else arguments
        msgspec.convert(given, dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise function.refusal("arguments", "the JSON of an object is needed") from None
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": given}}


def offered(fields: Fields, request: Request, given: list[dict[str, Any]] | None = None) -> tuple[Request, Tools]:
    """Return the request with the tools that it offers, and their parameters; none where `tool_choice` is none.

    A choice that requires a call gives the answer the form of one. `given` are tools that were taken already.
    """
    if given is None:
        given = fields.take("tools", list[dict[str, Any]], [])
    if len(given) > MOST_TOOLS:
        raise fields.refusal("tools", f"at most {MOST_TOOLS}")
    tools = [_tool(fields.object(each, f"tools[{i}]")) for i, each in enumerate(given)]
    choice = fields.take("tool_choice", str | dict[str, Any], "auto")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        tools, choice = _allowed(fields.object(choice, "tool_choice"), tools)
    by_name = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    wanted = _chosen(fields, choice, list(by_name))
    if choice == "none" or not tools:
        return request, NO_TOOLS
    request = replace(request, tools=json.dumps(tools))
    if wanted:
        if any(getattr(request, name) is not None for name in FORMS):
            raise fields.refusal("tool_choice", "the answer has another form already")
        calls = [call_schema(name, by_name[name]) for name in wanted]
        request = fields.formed(request, "tool_choice", calls[0] if len(calls) == 1 else {"anyOf": calls})
        request = replace(request, must_call=True)
    return request, by_name


def _allowed(own: Fields, tools: Objects) -> tuple[Objects, str]:
    """Return the tools that a choice of the type allowed_tools names, and its mode; /v1/responses has it flat."""
    inner = own.within("allowed_tools") if own.has_content("allowed_tools") else own
    mode: str = inner.take("mode", Literal["auto", "required"], "auto")
    functions = [each.get("function", each) for each in inner.take("tools", Objects, [])]
    names = [each.get("name") for each in functions if isinstance(each, dict)]
    return [tool for tool in tools if tool["function"]["name"] in names], mode


def _tool(own: Fields) -> dict[str, Any]:
    if own.take("type", str, "function") != "function":
        raise own.refusal("type", "function is the only kind")
    function = own.within("function")
    own.finish()
    name = function.take("name", str, "")
    if not re.fullmatch(r"[\w.-]{1,128}", name):
        raise function.refusal("name", "1 to 128 letters, digits, dots, dashes and underscores")
    parameters = function.take("parameters", dict[str, Any]) or ANYTHING
    if not is_shallow(parameters, DEEPEST):
        raise function.refusal("parameters", f"at most {DEEPEST} levels")
    spec = {"name": name, "description": function.take("description", str, ""), "parameters": parameters}
    function.finish()
    return {"type": "function", "function": spec}


def _chosen(fields: Fields, choice: str | dict[str, Any], names: list[str]) -> list[str]:
    """Return the names of the functions one of which must be called, none where that is left to the model."""
    if choice in ("none", "auto"):
        return []
    if choice == "required":
        if not names:
            raise fields.refusal("tool_choice", "there are no tools to choose from")
        return names
    if not isinstance(choice, dict):
        raise fields.refusal("tool_choice", CHOICES)
    own = fields.object(choice, "tool_choice")
    kind, function = own.take("type", str, "function"), own.within("function")
    name = function.take("name", str, "") or own.take("name", str, "")
    function.finish()
    own.finish()
    if kind != "function" or name not in names:
        raise fields.refusal("tool_choice", CHOICES)
    return [name]


def is_shallow(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(is_shallow(each, levels - 1) for each in inner)
