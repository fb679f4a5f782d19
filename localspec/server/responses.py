"""OpenAI's /v1/responses without a memory: nothing is stored, so each request brings the whole conversation. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from localspec.server.fields import Asked, Fields, Served
from localspec.server.messages import chat_messages
from localspec.server.openai import formatted, thinking
from localspec.server.responses_reply import Responses
from localspec.server.tools import offered
from localspec.settings.request import Message, Request

HARMLESS = ("store", "metadata", "user", "parallel_tool_calls", "service_tier", "safety_identifier", "prompt_cache_key",
            "prompt_cache_retention")  # fmt: skip
NO_MEMORY = "nothing is stored here: send the whole conversation as input"
REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "previous_response_id": (NO_MEMORY, ("",)),
    "conversation": (NO_MEMORY, ()),
    "prompt": ("this server keeps no prompts", ()),
    "background": ("an answer is waited for", (False,)),
    "max_tool_calls": ("tools are called by the client", ()),
    "truncation": ("a conversation beyond the context is refused", ("disabled",)),
}


def responses(body: object, served: Served) -> Asked:
    """Read the body of /v1/responses; raises Refusal."""
    fields = Fields(body)
    served.require(fields.take("model", str) or served.name)
    instructions = fields.take("instructions", str, "")
    head = (Message("system", instructions),) if instructions else ()
    request = replace(served.request, messages=(*head, *chat_messages(_messages(fields))), continues=True)
    request = fields.drawn(request, "max_output_tokens")
    reasoning = fields.within("reasoning")
    request = replace(request, think=thinking(reasoning, "effort", request.think))
    reasoning.finish(("summary", "generate_summary"))
    text = fields.within("text")
    request = formatted(text.within("format"), request, is_flat=True)
    text.finish(("verbosity",))
    tools = fields.take("tools", list[dict[str, Any]], [])
    request, names = offered(fields, request, [_nested(tool) for tool in tools])
    request = _logprobs(fields, request)
    is_streamed = fields.take("stream", bool, False)
    fields.within("stream_options").finish(("include_obfuscation",))
    fields.refuse(REFUSED)
    fields.finish(HARMLESS)
    return Asked(request, Responses(served.name, body if isinstance(body, dict) else {}, names), is_streamed)


def _logprobs(fields: Fields, request: Request) -> Request:
    """Return the request with log-probabilities, which `include` asks for."""
    include, n = fields.take("include", list[str], []), fields.take("top_logprobs", int, 0)
    is_told = "message.output_text.logprobs" in include
    return fields.logprobs(request, "top_logprobs", n if is_told or n else None)


def _nested(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool as a chat has it: here its function's fields stand beside its type."""
    return {"type": tool.get("type"), "function": {name: value for name, value in tool.items() if name != "type"}}


def _messages(fields: Fields) -> list[dict[str, Any]]:
    """Return the input as the messages of a chat, the calls of one answer in one message."""
    given = fields.take("input", str | list[dict[str, Any]])
    if not given:
        raise fields.refusal("input", "a text, or a list of messages")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    said: list[dict[str, Any]] = []
    for i, item in enumerate(items):
        message = _message(Fields(item, f"input[{i}]."))
        if message is None:
            continue
        if "tool_calls" in message and said and said[-1]["role"] == "assistant":
            said[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
        else:
            said.append(message)
    return said


def _message(item: Fields) -> dict[str, Any] | None:
    """Return an item of the input as a message; None for a thought, which no template needs."""
    kind = item.take("type", str, "message")
    if kind == "message":
        role, content = item.take("role", str, ""), item.take("content", str | list[dict[str, Any]], "")
        item.finish(("id", "status", "phase"))
        return {"role": role, "content": content if isinstance(content, str) else [_part(part) for part in content]}
    if kind == "function_call":
        function = {"name": item.take("name", str, ""), "arguments": item.take("arguments", str, "")}
        call = {"id": item.take("call_id", str, ""), "type": "function", "function": function}
        item.finish(("id", "status"))
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        output = item.take("output", str | list[dict[str, Any]], "")
        content = output if isinstance(output, str) else [_part(part) for part in output]
        message = {"role": "tool", "tool_call_id": item.take("call_id", str, ""), "content": content}
        item.finish(("id", "status"))
        return message
    if kind == "reasoning":
        return None
    raise item.refusal("type", "message, function_call, function_call_output or reasoning")


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a content as a chat has it."""
    kind = part.get("type")
    is_text = kind in ("input_text", "output_text", "text")
    return {"type": "text", "text": part.get("text", "")} if is_text else {"type": kind}
