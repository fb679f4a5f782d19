"""OpenAI's /v1/responses without a memory: nothing is stored, so each request brings the whole conversation. Pure."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from localspec.engine.events import Committed, Event, Finished
from localspec.prompt.call_forms import Tools
from localspec.server.call_pieces import CallPiece
from localspec.server.fields import ClientRequest, Fields, Reasons, ServedPair
from localspec.server.messages import Objects, chat_messages, offered
from localspec.server.openai import formatted, thinking, usage
from localspec.server.refusal import Refusal, Wire
from localspec.server.reply import Reply, encoded, is_cut, released, speculation, timings, told_logprobs
from localspec.server.tool_calls import Call, CallReader, Part, ReadAnswer
from localspec.settings.request import Message, Request
from localspec.ui.stats import Stats

# Fields of the request that the response repeats, each with what it is where the request has none.
REPEATED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "temperature": None,
    "top_p": None,
    "tools": [],
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}},
    "metadata": {},
    "reasoning": {"effort": None, "summary": None},
}
NO_MEMORY = "nothing is stored here: send the whole conversation as input"
REFUSED: Reasons = {
    "previous_response_id": (NO_MEMORY, ("",)),
    "conversation": (NO_MEMORY, ()),
    "prompt": ("this server keeps no prompts", ()),
    "background": ("an answer is waited for", (False,)),
}
LEFT: Reasons = {"max_tool_calls": ("tools are called by the client", ())}


def responses(body: object, served: ServedPair) -> ClientRequest:
    fields = Fields(body)
    served.require(fields.take("model", str) or served.name)
    instructions = fields.take("instructions", str, "")
    head = (Message("system", instructions),) if instructions else ()
    given = _messages(fields)
    request = served.asked((*head, *(chat_messages(fields, given, "input") if given else ())))
    shorten = fields.take("truncation", Literal["auto", "disabled"], "disabled") == "auto"
    request = fields.drawn(replace(request, shorten=shorten), "max_output_tokens")
    reasoning = fields.within("reasoning")
    request = thinking(reasoning, "effort", request)
    reasoning.finish("summary", "generate_summary")
    text = fields.within("text")
    request = formatted(text.within("format"), request, is_flat=True)
    text.finish("verbosity")
    tools, namespaces = _functions(fields)
    request, names = offered(fields, request, tools)
    request = _logprobs(fields, request)
    is_streamed = fields.take("stream", bool, False)
    fields.within("stream_options").finish()
    fields.finish(refused=REFUSED, left=LEFT)
    reply = Responses(served.name, body if isinstance(body, dict) else {}, names, namespaces)
    return ClientRequest(request, reply, is_streamed, 1 if given else 0, fields.notes)


def _logprobs(fields: Fields, request: Request) -> Request:
    include, n = fields.take("include", list[str], []), fields.take("top_logprobs", int, 0)
    is_told = "message.output_text.logprobs" in include
    return fields.logprobs(request, "top_logprobs", n if is_told or n else None)


def _functions(fields: Fields) -> tuple[Objects, dict[str, str]]:
    """Return the functions among the tools, as a chat has them, and the namespaces of those that have one.

    Tools of other types are left out: this server runs none.
    """
    functions: Objects = []
    namespaces: dict[str, str] = {}
    for i, tool in enumerate(fields.take("tools", Objects, [])):
        kind = tool.get("type")
        if kind == "namespace":
            own = fields.object(tool, f"tools[{i}]")
            space, inner = own.take("name", str, ""), own.take("tools", Objects, [])
            own.finish("type", "description")
            namespaces |= {str(each.get("name")): space for each in inner}
            functions += map(_nested, inner)
        elif kind == "function":
            functions.append(_nested(tool))
        else:
            fields.note(f"tools[{i}]", f"the type {str(kind)[:40]!r} is not run here, so the tool was left out")
    return functions, namespaces


def _nested(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool as a chat has it: here its function's fields stand beside its type."""
    return {"type": tool.get("type"), "function": {name: value for name, value in tool.items() if name != "type"}}


def _messages(fields: Fields) -> Objects:
    """Return the input as the messages of a chat, the calls of one answer in one message; [] for an empty list."""
    given = fields.take("input", str | Objects)
    if given is None or given == "":
        raise fields.refusal("input", "a text, or a list of messages")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    said: Objects = []
    for i, item in enumerate(items):
        message = _message(fields.object(item, f"input[{i}]"))
        if message is None:
            continue
        if "tool_calls" in message and said and said[-1]["role"] == "assistant":
            said[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
        else:
            said.append(message)
    if items and not said:
        raise fields.refusal("input", "a message is needed")
    return said


def _message(item: Fields) -> dict[str, Any] | None:
    """Return an item of the input as a message; None for a thought, and for what this server does not know."""
    kind = item.take("type", str, "message")
    if kind == "message":
        role, content = item.take("role", str, ""), item.take("content", str | list[dict[str, Any]], "")
        item.finish()
        return {"role": role, "content": content if isinstance(content, str) else [_part(part) for part in content]}
    if kind == "function_call":
        function = {"name": item.take("name", str, ""), "arguments": item.take("arguments", str, "")}
        call = {"id": item.take("call_id", str, ""), "type": "function", "function": function}
        item.finish("namespace")
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        output = item.take("output", str | list[dict[str, Any]], "")
        content = output if isinstance(output, str) else [_part(part) for part in output]
        message = {"role": "tool", "tool_call_id": item.take("call_id", str, ""), "content": content}
        item.finish()
        return message
    if kind != "reasoning":
        item.note("type", f"an item of the type {kind[:40]!r} was left out")
    return None


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    is_text = kind in ("input_text", "output_text", "text")
    return {"type": "text", "text": part.get("text", "")} if is_text else {"type": kind}


class Responses(Reply):
    """One response: perhaps a thought, a message, and calls of tools."""

    end: ClassVar[bytes] = b""

    def __init__(self, model: str, body: Wire, tools: Tools, namespaces: Mapping[str, str] | None = None) -> None:
        repeated = {name: default if body.get(name) is None else body[name] for name, default in REPEATED.items()}
        self._head = {
            "id": _drawn("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
            "incomplete_details": None,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            **repeated,
        }
        self._calls = CallReader(tools, in_pieces=True)
        self._namespaces = namespaces or {}
        self._ids = {kind: _drawn(prefix) for kind, prefix in (("reasoning", "rs"), ("message", "msg"))}
        self._texts: dict[str, str] = {}  # of the items that have begun, in order; of a call its arguments
        self._called: dict[str, Wire] = {}  # calls as items, by the same keys
        self._logprobs: list[Wire] = []
        self._untold: list[Wire] = []  # of tokens whose text has not come yet
        self._number = 0

    def frame(self, wire: Wire) -> bytes:
        numbered = {**wire, "sequence_number": self._number}
        self._number += 1
        return f"event: {wire['type']}\ndata: ".encode() + encoded(numbered) + b"\n\n"

    def opening(self) -> list[Wire]:
        response = {**self._head, "status": "in_progress", "output": [], "usage": None}
        return [{"type": f"response.{name}", "response": response} for name in ("created", "in_progress")]

    def waiting(self) -> bytes:
        """Return `response.in_progress` again: codex counts no comments."""
        return self.frame(self.opening()[-1])

    def pieces(self, event: Event) -> list[Wire]:
        if not isinstance(event, Committed | Finished):
            return []
        text, self._untold = released(event)[0], [*self._untold, *released(event)[1]]
        wires = self._added("reasoning", event.reasoning) if event.reasoning else []
        return [*wires, *(wire for part in self._calls.feed(text) for wire in self._written(part))]

    def closing(self, *answers: Stats) -> list[Wire]:
        (stats,) = answers
        read = self._calls.finish()
        wires = [wire for part in read.parts for wire in self._written(part)]
        if not self._texts:
            wires += self._added("message", "")
        self._logprobs += self._untold
        for index, kind in enumerate(self._texts):
            wires += self._ended(index, kind) if kind not in self._called else []
        response = self._response(stats, read)
        return [*wires, {"type": f"response.{response['status']}", "response": response}]

    def _written(self, part: Part) -> list[Wire]:
        if isinstance(part, str):
            return self._added("message", part)
        key = f"call {part.index}" if isinstance(part, CallPiece) else f"call {part.id}"
        if isinstance(part, Call):
            self._texts[key], self._called[key] = part.json, self._call_item(part.id, part.name)
            return []
        if part.is_first:
            self._texts[key], self._called[key] = "", self._call_item(part.id, part.name)
        self._texts[key] += part.text
        index = list(self._texts).index(key)
        where = {"output_index": index, "item_id": self._called[key]["id"]}
        if part.is_first:
            item = {**self._called[key], "status": "in_progress"}
            return [{"type": "response.output_item.added", "output_index": index, "item": item}]
        name = "response.function_call_arguments"
        if not part.is_last:
            return [{"type": f"{name}.delta", **where, "delta": part.text}]
        self._called[key]["status"] = "incomplete" if part.is_broken else "completed"
        done = {"type": f"{name}.done", **where, "name": part.name, "arguments": self._texts[key]}
        return [done, {"type": "response.output_item.done", "output_index": index, "item": self._item(key)}]

    def whole(self, *answers: Stats) -> Wire:
        (stats,) = answers
        read = self._calls.read(stats.text)
        self._untold = told_logprobs(stats.logprobs)
        if stats.reasoning:
            self._added("reasoning", stats.reasoning)
        for part in read.parts or ("",):
            self._written(part)
        return self._response(stats, read)

    def failure(self, refusal: Refusal) -> Wire:
        return {"type": "error", "code": refusal.code, "message": refusal.message, "param": refusal.param}

    def _response(self, stats: Stats, read: ReadAnswer) -> Wire:
        output = list(map(self._item, self._texts))
        counts, n_cached = usage(stats), stats.prefilled.cache_n if stats.prefilled else 0
        token_usage = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": n_cached},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": stats.reasoning_tokens},
            "total_tokens": counts["total_tokens"],
        }
        figures = {"timings": timings(stats), "speculation": speculation(stats, *self.notes, read.warning)}
        made = {**self._head, "status": "completed", "output": output, "usage": token_usage, **figures}
        if is_cut(stats):
            made |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return made

    def _part(self, kind: str) -> Wire:
        text = self._texts[kind]
        if kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs}

    def _item(self, kind: str, status: str = "completed") -> Wire:
        if kind in self._called:
            return {**self._called[kind], "arguments": self._texts[kind]}
        content = [self._part(kind)] if status == "completed" else []
        item = {"id": self._ids[kind], "type": kind, "status": status, "content": content}
        return {**item, "role": "assistant"} if kind == "message" else {**item, "summary": []}

    def _added(self, kind: str, text: str) -> list[Wire]:
        wires: list[Wire] = []
        if kind not in self._texts:
            self._texts[kind] = ""
            index = len(self._texts) - 1
            where = {"output_index": index, "item_id": self._ids[kind], "content_index": 0}
            wires = [
                {"type": "response.output_item.added", "output_index": index, "item": self._item(kind, "in_progress")},
                {"type": "response.content_part.added", **where, "part": {**self._part(kind), "text": ""}},
            ]
        self._texts[kind] += text
        beside: Wire = {}
        if kind == "message":
            self._logprobs += self._untold
            beside["logprobs"], self._untold = self._untold, []
        where = {"output_index": list(self._texts).index(kind), "item_id": self._ids[kind], "content_index": 0}
        name = "output_text" if kind == "message" else "reasoning_text"
        return [*wires, {"type": f"response.{name}.delta", **where, "delta": text, **beside}] if text else wires

    def _ended(self, index: int, kind: str) -> list[Wire]:
        where = {"output_index": index, "item_id": self._ids[kind], "content_index": 0}
        part, name = self._part(kind), "output_text" if kind == "message" else "reasoning_text"
        beside = {"logprobs": self._logprobs} if kind == "message" else {}
        return [
            {"type": f"response.{name}.done", **where, "text": part["text"], **beside},
            {"type": "response.content_part.done", **where, "part": part},
            {"type": "response.output_item.done", "output_index": index, "item": self._item(kind)},
        ]

    def _call_item(self, call_id: str, name: str) -> Wire:
        said = {"call_id": call_id, "name": name, "arguments": "", "status": "completed"}
        space = {"namespace": self._namespaces[name]} if name in self._namespaces else {}
        return {"id": f"fc_{call_id}", "type": "function_call", **said, **space}


def _drawn(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"
