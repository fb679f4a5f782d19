"""Anthropic's /v1/messages: bodies, events, and a real server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import Event, Finished
from localspec.server import anthropic as api
from localspec.server.refusal import Refusal
from localspec.settings.jobs import TextQuestion
from localspec.settings.request import Message
from tests.cli.fakes import committed
from tests.cli.harness import needs_pair
from tests.server.serving import LONG, serving
from tests.server.test_fields import HELLO, SERVED
from tests.server.test_openai_replies import EVENTS, STARTED, told
from tests.server.test_tools import CITY, HERMES

TOOL = {"name": "weather", "description": "Tell it.", "input_schema": CITY, "cache_control": {"type": "ephemeral"}}


def read(**fields: Any) -> Any:
    return api.messages({"messages": HELLO, **fields}, SERVED)


def test_what_claude_code_sends() -> None:
    """The last turns of an agent, with all that its client puts beside them."""
    cached = {"cache_control": {"type": "ephemeral"}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?", **cached}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "I ask.", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "One moment."},
            {"type": "tool_use", "id": "toolu_abc", "name": "weather", "input": {"city": "Oslo"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_abc", **cached,
             "content": [{"type": "text", "text": "rain"}]},
            {"type": "text", "text": "And now?"},
        ]},
        {"role": "system", "content": "Remember."},
    ]  # fmt: skip
    asked = api.messages(
        {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": turns, "stream": True, "metadata": {"user_id": "u"},
         "system": [{"type": "text", "text": "Be brief.", **cached}, {"type": "text", "text": "Be kind."}],
         "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}], "thinking": {"type": "adaptive"},
         "context_management": {"edits": []}, "output_config": {"effort": "high"}, "stop_sequences": ["END"],
         "temperature": 1, "top_k": 5, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "odd": 1},
        SERVED,
    )  # fmt: skip
    request = asked.request
    system, user, answer, result, again, last = request.messages
    assert (system, user, again) == (
        Message("system", "Be brief.\n\nBe kind."), Message("user", "Weather?"), Message("user", "And now?")
    )  # fmt: skip
    assert (answer.content, answer.reasoning) == ("One moment.", "I ask.")
    assert json.loads(answer.calls)[0]["function"] == {"name": "weather", "arguments": {"city": "Oslo"}}
    assert (result, last) == (Message("tool", "rain", name="weather", call_id="abc"), Message("system", "Remember."))
    assert (request.max_tokens, request.stop, request.sampling.top_k, asked.is_streamed) == (9, ("END",), 5, True)
    assert dict(request.template_args) == {"reasoning_effort": "high"}
    assert json.loads(request.tools or "")[0]["function"]["parameters"] == CITY
    assert asked.notes == [
        "tools[1]: the type 'web_search_20250305' is not run here, so the tool was left out",
        "odd: this server knows no such field, and passed it over",
    ]


@pytest.mark.parametrize(("kind", "think"), [("enabled", "on"), ("disabled", "off"), ("adaptive", "auto")])
def test_thinking(kind: str, think: str) -> None:
    assert read(thinking={"type": kind}, output_config={"effort": "low"}).request.think == think


def test_choices_of_tools_and_forms() -> None:
    assert read(tools=[TOOL], tool_choice={"type": "none"}).request.tools is None
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        schema = json.loads(read(tools=[TOOL], tool_choice=choice).request.schema or "")
        assert schema["properties"]["name"] == {"const": "weather"}
    form = {"type": "json_schema", "schema": CITY}
    assert json.loads(read(output_config={"format": form}).request.schema or "") == CITY


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"thinking": {"type": "much"}}, "thinking.type"),
        ({"tool_choice": {"type": "tool", "name": "none"}}, "tool_choice"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].function.name"),
    ],
    ids=str,
)
def test_a_refusal_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.to_anthropic()["error"]["type"] == "invalid_request_error"


def built(reply: api.Messages, events: Sequence[Event]) -> tuple[list[Any], dict[str, Any]]:
    """Return the blocks and the ending that a client makes of a stream."""
    wires = [
        *reply.opening(),
        *(wire for event in events for wire in reply.pieces(event)),
        *reply.closing(told(events)),
    ]
    blocks: list[Any] = []
    n_stopped = 0
    assert wires[0]["type"] == "message_start"
    for wire in wires:
        match wire["type"]:
            case "content_block_start":
                assert wire["index"] == len(blocks) == n_stopped, "a block ends before the next one begins"
                blocks.append({**wire["content_block"], "json": ""})
            case "content_block_delta":
                kind = wire["delta"]["type"].removesuffix("_delta")
                if kind == "input_json":
                    blocks[-1]["json"] += wire["delta"]["partial_json"]
                else:
                    blocks[-1][kind] += wire["delta"][kind]
            case "content_block_stop":
                assert wire["index"] == n_stopped == len(blocks) - 1
                n_stopped += 1
    for block in blocks:
        raw = block.pop("json")
        if raw:
            block["input"] = json.loads(raw)
    assert (n_stopped, wires[-1]) == (len(blocks), {"type": "message_stop"})
    return blocks, wires[-2]


@pytest.mark.parametrize("events", [
    EVENTS,
    [STARTED, replace(committed(0, "", k=0), reasoning="Hm."), *EVENTS[1:]],
    [STARTED, committed(0, "Well. ", k=0), committed(1, HERMES, k=0), EVENTS[-1]],
    [STARTED, EVENTS[-1]],
], ids=["text", "thought", "call", "nothing"])  # fmt: skip
def test_a_stream_builds_the_whole(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.server.call_pieces.secrets.token_hex", lambda n: "abcabcabc")
    blocks, delta = built(api.Messages("m", {"weather": CITY}), events)
    whole = api.Messages("m", {"weather": CITY}).whole(told(events))
    assert blocks == whole["content"]
    assert delta["delta"] == {name: whole[name] for name in ("stop_reason", "stop_sequence")}
    assert delta["usage"] == whole["usage"]


def test_why_an_answer_ended() -> None:
    ends = {
        "max_tokens": Finished("length", "", 1.0, 1.0, 0),
        "end_turn": Finished("stop", "", 1.0, 1.0, 0),
        "stop_sequence": Finished("stop", "", 1.0, 1.0, 0, stopping_word="END"),
    }
    for reason, end in ends.items():
        whole = api.Messages("m", {}).whole(told([STARTED, committed(0, "Once", k=0), end]))
        assert (whole["stop_reason"], whole["stop_sequence"]) == (reason, end.stopping_word or None)
    usage = api.Messages("m", {}).whole(told(EVENTS))["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (10, 6)


def test_tokens_are_counted_of_the_prompt() -> None:
    searched = api.count_tokens({"messages": HELLO, "system": "Be brief.", "tools": [TOOL]}, SERVED)
    assert isinstance(searched.question, TextQuestion)
    assert searched.question.wants == "prompt"
    assert searched.told({"text": "x", "n": 7}) == {"input_tokens": 7}


@needs_pair
def test_a_real_server() -> None:
    with serving("--temp", "0", "--api-key", "key") as server:
        key = {"x-api-key": "key", "anthropic-version": "2023-06-01"}
        body = {"model": "claude-opus-4", "max_tokens": 8, "messages": [{"role": "user", "content": LONG}]}
        status, whole, _ = server.ask("POST", "/v1/messages?beta=true", body, key)
        assert (status, whole["stop_reason"], whole["model"]) == (200, "max_tokens", "storyteller")
        _, raw, headers = server.ask("POST", "/v1/messages", {**body, "stream": True}, key)
        assert headers["content-type"].startswith("text/event-stream")
        wires = [json.loads(part.partition("data: ")[2]) for part in raw.decode().split("\n\n") if part]
        text = "".join(wire["delta"]["text"] for wire in wires if wire["type"] == "content_block_delta")
        assert text == whole["content"][0]["text"]
        _, count, _ = server.ask("POST", "/v1/messages/count_tokens", body, key)
        used = whole["usage"]
        assert count == {"input_tokens": used["input_tokens"] + used["cache_read_input_tokens"]}
        status, error, _ = server.ask("POST", "/v1/messages", {**body, "max_tokens": 0}, key)
        assert (status, error["type"], error["error"]["type"]) == (400, "error", "invalid_request_error")
        status, error, _ = server.ask("POST", "/v1/messages", body, {"x-api-key": "wrong"})
        assert (status, error["error"]["type"]) == (401, "authentication_error")
