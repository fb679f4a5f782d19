"""Anthropic's /v1/messages and /v1/messages/count_tokens. Pure: JSON in, a request and the form of its answer out."""

import secrets
from dataclasses import replace
from typing import Any, ClassVar, Literal

from localspec.engine.events import Committed, Event, Finished
from localspec.prompt.call_forms import Tools
from localspec.server.call_pieces import CallPiece
from localspec.server.fields import NO_IMAGES, ClientRequest, Fields, Searched, ServedPair
from localspec.server.messages import MOST_MESSAGES, Objects, chat_messages, offered, resumed
from localspec.server.openai import formatted, with_effort
from localspec.server.refusal import Refusal, Wire
from localspec.server.reply import Reply, encoded, is_cut, released, speculation, timings
from localspec.server.tool_calls import Call, CallReader, Part, ReadAnswer
from localspec.settings.jobs import TextQuestion
from localspec.settings.request import Request
from localspec.ui.stats import Stats

ID = "toolu_"  # before the id of a call, as Anthropic has it; no template gets it
CHOICES = {"auto": "auto", "none": "none", "any": "required"}
HARMLESS = ("context_management", "container", "betas", "speed", "inference_geo", "anthropic_version")


def messages(body: object, served: ServedPair) -> ClientRequest:
    fields = Fields(body)
    request, tools = _conversation(fields, served)
    request = fields.drawn(replace(request, stop=fields.stop("stop_sequences") or request.stop), "max_tokens")
    is_streamed = fields.take("stream", bool, False)
    fields.finish(*HARMLESS)
    return ClientRequest(request, Messages(served.name, tools), is_streamed, notes=fields.notes)


def count_tokens(body: object, served: ServedPair) -> Searched:
    """Read the body of /v1/messages/count_tokens, which is that of a message without its limits."""
    request, _ = _conversation(Fields(body), served)
    return Searched(TextQuestion(request, "prompt"), lambda content: {"input_tokens": content["n"]})


def _conversation(fields: Fields, served: ServedPair) -> tuple[Request, Tools]:
    served.require(fields.take("model", str) or served.name)
    system: str | Objects = fields.take("system", str | Objects, "")
    parts = [{"type": "text", "text": system}] if isinstance(system, str) else system
    text = "\n\n".join(filter(None, (_text(fields.object(part, f"system[{i}]")) for i, part in enumerate(parts))))
    given: Objects = [{"role": "system", "content": text}] if text else []
    items = fields.take("messages", Objects)
    if not items:
        raise fields.refusal("messages", f"1 to {MOST_MESSAGES} messages are needed")
    for i, item in enumerate(items):
        given += _turn(fields.object(item, f"messages[{i}]"))
    request = resumed(fields, served.asked(chat_messages(fields, given, "messages")))
    thinking = fields.within("thinking")
    kind = thinking.take("type", Literal["enabled", "disabled", "adaptive"])
    thinking.finish("budget_tokens", "display")
    config = fields.within("output_config")
    effort = config.take("effort", Literal["low", "medium", "high", "xhigh", "max"])
    request = formatted(config.within("format"), request, is_flat=True)
    config.finish()
    if effort is not None and kind != "disabled":
        request = with_effort(request, effort)
    if kind is not None and kind != "adaptive":
        request = replace(request, think="on" if kind == "enabled" else "off")
    functions, choice = _functions(fields), fields.within("tool_choice")
    chosen = choice.take("type", Literal["auto", "none", "any", "tool"], "auto")
    name = choice.take("name", str, "")
    choice.finish("disable_parallel_tool_use")
    wanted = CHOICES.get(chosen) or {"type": "function", "function": {"name": name}}
    return offered(Fields({"tool_choice": wanted}, notes=fields.notes), request, functions)


def _functions(fields: Fields) -> Objects:
    """Return the tools as a chat has them, without those that Anthropic's own servers run."""
    functions: Objects = []
    for i, given in enumerate(fields.take("tools", Objects, [])):
        tool = fields.object(given, f"tools[{i}]")
        kind = tool.take("type", str, "custom")
        if kind != "custom":
            fields.note(f"tools[{i}]", f"the type {kind[:40]!r} is not run here, so the tool was left out")
            continue
        function = {"name": tool.take("name", str, ""), "description": tool.take("description", str, "")}
        function["parameters"] = tool.take("input_schema", dict[str, Any], {})
        tool.finish("eager_input_streaming", "defer_loading", "input_examples", "allowed_callers")
        functions.append({"type": "function", "function": function})
    return functions


def _turn(fields: Fields) -> Objects:
    """Return a message as those of a chat: results of tools are messages of their own, before what follows them."""
    role = fields.take("role", str, "")
    content: str | Objects = fields.take("content", str | Objects, "")
    fields.finish()
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    results: Objects = []
    said: dict[str, Any] = {"role": role, "content": []}
    for i, each in enumerate(content):
        part = fields.object(each, f"content[{i}]")
        kind = part.take("type", str, "")
        match kind:
            case "text":
                said["content"].append({"type": "text", "text": part.take("text", str, "")})
            case "thinking":
                said["reasoning_content"] = said.get("reasoning_content", "") + part.take("thinking", str, "")
            case "tool_use":
                function = {"name": part.take("name", str, ""), "arguments": part.take("input", dict[str, Any], {})}
                call = {"id": part.take("id", str, "").removeprefix(ID), "type": "function", "function": function}
                said.setdefault("tool_calls", []).append(call)
            case "tool_result":
                results.append(_result(part))
            case "image" | "document":
                raise part.refusal("type", NO_IMAGES)
            case "redacted_thinking":
                continue
            case _:
                part.note("type", f"a part of the type {kind[:40]!r} was left out")
                continue
        part.finish("signature", "citations", "caller")
    is_said = said["content"] or "tool_calls" in said or not results
    return [*results, *([said] if is_said else [])]


def _result(part: Fields) -> dict[str, Any]:
    output: str | Objects = part.take("content", str | Objects, "")
    parts = [] if isinstance(output, str) else [part.object(each, f"content[{i}]") for i, each in enumerate(output)]
    text = output if isinstance(output, str) else "\n".join(map(_text, parts))
    call_id = part.take("tool_use_id", str, "").removeprefix(ID)
    part.take("is_error", bool)
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _text(part: Fields) -> str:
    if part.take("type", str, "") != "text":
        raise part.refusal("type", NO_IMAGES)
    text: str = part.take("text", str, "")
    part.finish("citations")
    return text


class Messages(Reply):
    """One message: perhaps a thought, then text, then calls of tools; each is a block of its content."""

    end: ClassVar[bytes] = b""

    def __init__(self, model: str, tools: Tools) -> None:
        self._head = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "model": model}
        self._calls = CallReader(tools, in_pieces=True)
        self._index = -1  # of the last block that has begun
        self._kind = ""  # of the block at hand, "" for none

    def frame(self, wire: Wire) -> bytes:
        return f"event: {wire['type']}\ndata: ".encode() + encoded(wire) + b"\n\n"

    def waiting(self) -> bytes:
        return self.frame({"type": "ping"})

    def opening(self) -> list[Wire]:
        """Return the event that begins a message; its usage is known at the end alone."""
        usage = {"input_tokens": 0, "output_tokens": 0}
        message: Wire = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return [{"type": "message_start", "message": message}]

    def pieces(self, event: Event) -> list[Wire]:
        if not isinstance(event, Committed | Finished):
            return []
        wires = self._added("thinking", event.reasoning) if event.reasoning else []
        for part in self._calls.feed(released(event)[0]):
            wires += self._written(part)
        return wires

    def closing(self, *answers: Stats) -> list[Wire]:
        (stats,) = answers
        read = self._calls.finish()
        wires = [wire for part in read.parts for wire in self._written(part)] + self._stopped()
        ending = self._ending(stats, read)
        delta = {name: ending.pop(name) for name in ("stop_reason", "stop_sequence")}
        return [*wires, {"type": "message_delta", "delta": delta, **ending}, {"type": "message_stop"}]

    def _written(self, part: Part) -> list[Wire]:
        if isinstance(part, str):
            return self._added("text", part)
        assert isinstance(part, CallPiece)
        if part.is_first:
            return self._begun(_block(Call(part.name, {}, part.id)))
        if part.is_last:
            return self._stopped()
        delta = {"type": "input_json_delta", "partial_json": part.text}
        return [{"type": "content_block_delta", "index": self._index, "delta": delta}]

    def whole(self, *answers: Stats) -> Wire:
        (stats,) = answers
        read = self._calls.read(stats.text)
        thought: Wire = {"type": "thinking", "thinking": stats.reasoning, "signature": ""}
        said = [_block(part) if isinstance(part, Call) else {"type": "text", "text": part} for part in read.parts]
        return {**self._head, "content": [thought, *said] if stats.reasoning else said, **self._ending(stats, read)}

    def failure(self, refusal: Refusal) -> Wire:
        return refusal.to_anthropic()

    def _ending(self, stats: Stats, read: ReadAnswer) -> Wire:
        prefilled, word = stats.prefilled, stats.finished.stopping_word if stats.finished else ""
        cached = prefilled.cache_n if prefilled else 0
        reason = "max_tokens" if is_cut(stats) else "stop_sequence" if word else "end_turn"
        usage = {
            "input_tokens": (prefilled.prompt_n if prefilled else 0) - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": stats.emitted,
        }
        return {
            "stop_reason": "tool_use" if read.has_called else reason,
            "stop_sequence": word or None,
            "usage": usage,
            "timings": timings(stats),
            "speculation": speculation(stats, *self.notes, read.warning),
        }

    def _added(self, kind: str, text: str) -> list[Wire]:
        block = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
        wires = [] if self._kind == kind else self._begun(block)
        delta = {"type": f"{kind}_delta", kind: text}
        return [*wires, {"type": "content_block_delta", "index": self._index, "delta": delta}]

    def _begun(self, block: Wire) -> list[Wire]:
        stopped = self._stopped()
        self._index, self._kind = self._index + 1, block["type"]
        return [*stopped, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _stopped(self) -> list[Wire]:
        is_open, self._kind = bool(self._kind), ""
        return [{"type": "content_block_stop", "index": self._index}] if is_open else []


def _block(call: Call) -> Wire:
    return {"type": "tool_use", "id": f"{ID}{call.id}", "name": call.name, "input": call.arguments}
