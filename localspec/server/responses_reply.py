"""An answer of /v1/responses: an object with items, and a stream of events that builds it. Pure."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from typing import Any, ClassVar

from localspec.engine.events import Committed, Event, Finished
from localspec.server.openai_reply import usage
from localspec.server.refusal import Refusal, Wire
from localspec.server.reply import Reply, encoded, is_cut, released, speculation, timings, told_logprobs
from localspec.server.tool_calls import Call, CallReader, Read
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


class Responses(Reply):
    """One response: perhaps a thought, a message, and calls of tools."""

    end: ClassVar[bytes] = b""

    def __init__(self, model: str, body: Wire, tools: Collection[str]) -> None:
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
        self._calls = CallReader(tools) if tools else None
        self._ids = {kind: _drawn(prefix) for kind, prefix in (("reasoning", "rs"), ("message", "msg"))}
        self._texts: dict[str, str] = {}  # of the items that have begun, in order
        self._logprobs: list[Wire] = []
        self._number = 0

    def frame(self, wire: Wire) -> bytes:
        """Return an event with its name and its number."""
        numbered = {**wire, "sequence_number": self._number}
        self._number += 1
        return f"event: {wire['type']}\ndata: ".encode() + encoded(numbered) + b"\n\n"

    def opening(self) -> list[Wire]:
        """Return the events that begin a response."""
        response = {**self._head, "status": "in_progress", "output": [], "usage": None}
        return [{"type": f"response.{name}", "response": response} for name in ("created", "in_progress")]

    def pieces(self, event: Event) -> list[Wire]:
        """Return the events of what was released: a thought, then text."""
        if not isinstance(event, Committed | Finished):
            return []
        text, logprobs = released(event)
        if self._calls is not None:
            text = self._calls.feed(text)
        thought = self._added("reasoning", event.reasoning) if event.reasoning else []
        if not text:
            self._logprobs += logprobs
            return thought
        return [*thought, *self._added("message", text, logprobs)]

    def closing(self, *answers: Stats) -> list[Wire]:
        """Return the events that end the items and the response."""
        (stats,) = answers
        read = Read() if self._calls is None else self._calls.finish()
        wires = self._added("message", read.text) if read.text else []
        if not self._texts and not read.calls:
            wires += self._added("message", "")
        for index, kind in enumerate(self._texts):
            wires += self._ended(index, kind)
        for index, call in enumerate(read.calls, start=len(self._texts)):
            wires += _called(index, call)
        output = [*(self._item(kind) for kind in self._texts), *map(_call_item, read.calls)]
        response = self._response(stats, output, read)
        return [*wires, {"type": f"response.{response['status']}", "response": response}]

    def whole(self, *answers: Stats) -> Wire:
        """Return the response."""
        (stats,) = answers
        read = Read(stats.text) if self._calls is None else self._calls.read(stats.text)
        if stats.reasoning:
            self._texts["reasoning"] = stats.reasoning
        if read.text or not read.calls:
            self._texts["message"] = read.text
        self._logprobs = told_logprobs(stats.logprobs)
        output = [*(self._item(kind) for kind in self._texts), *map(_call_item, read.calls)]
        return self._response(stats, output, read)

    def failure(self, refusal: Refusal) -> Wire:
        """Return the event of an error."""
        return {"type": "error", "code": refusal.code, "message": refusal.message, "param": refusal.param}

    def _response(self, stats: Stats, output: list[Wire], read: Read) -> Wire:
        counts, n_cached = usage(stats), stats.prefilled.cache_n if stats.prefilled else 0
        told = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": n_cached},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        }
        figures = {"timings": timings(stats), "speculation": speculation(stats, read.warning)}
        made = {**self._head, "status": "completed", "output": output, "usage": told, **figures}
        if is_cut(stats):
            made |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return made

    def _part(self, kind: str) -> Wire:
        text = self._texts[kind]
        if kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs}

    def _item(self, kind: str, status: str = "completed") -> Wire:
        content = [self._part(kind)] if status == "completed" else []
        item = {"id": self._ids[kind], "type": kind, "status": status, "content": content}
        return {**item, "role": "assistant"} if kind == "message" else {**item, "summary": []}

    def _added(self, kind: str, text: str, logprobs: list[Wire] | None = None) -> list[Wire]:
        """Return the events that add text to an item, and begin it before."""
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
        self._logprobs += logprobs or []
        where = {"output_index": list(self._texts).index(kind), "item_id": self._ids[kind], "content_index": 0}
        beside = {"logprobs": logprobs or []} if kind == "message" else {}
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


def _drawn(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def _call_item(call: Call, status: str = "completed") -> Wire:
    arguments = call.to_openai()["function"]["arguments"] if status == "completed" else ""
    told = {"call_id": call.id, "name": call.name, "arguments": arguments, "status": status}
    return {"id": f"fc_{call.id}", "type": "function_call", **told}


def _called(index: int, call: Call) -> list[Wire]:
    """Return the events of a call, which comes whole."""
    where, item = {"output_index": index, "item_id": f"fc_{call.id}"}, _call_item(call)
    arguments = item["arguments"]
    added = {"type": "response.output_item.added", "output_index": index, "item": _call_item(call, "in_progress")}
    done = {"type": "response.function_call_arguments.done", **where, "name": call.name, "arguments": arguments}
    return [
        added,
        {"type": "response.function_call_arguments.delta", **where, "delta": arguments},
        done,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]
