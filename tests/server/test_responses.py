"""/v1/responses: bodies, events, and the `openai` package against a real server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import openai
import pytest

from localspec.engine.events import Event, Finished, Prefilled
from localspec.server.refusal import Refusal
from localspec.server.responses import Responses, responses
from localspec.settings.request import Message
from localspec.ui.stats import Stats
from tests.cli.fakes import committed
from tests.cli.harness import needs_pair
from tests.server.serving import LONG
from tests.server.test_fields import SERVED
from tests.server.test_openai_replies import EVENTS, STARTED, told
from tests.server.test_tools import CITY, HERMES

FLAT: Any = {"type": "function", "name": "weather", "parameters": CITY}
SCHEMA = {"type": "object", "properties": {"hero": {"enum": ["king", "queen"]}}, "required": ["hero"],
          "additionalProperties": False}  # fmt: skip


def test_input_becomes_messages() -> None:
    """The calls of one answer are one message, thoughts are left out, and instructions come first."""
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Q"}]},
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "message", "role": "assistant", "id": "m1", "status": "completed", "phase": "final_answer",
         "content": [{"type": "output_text", "text": "A", "annotations": [], "logprobs": []}]},
        {**call, "id": "f1", "status": "completed"},
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "id": "o1", "status": "completed", "call_id": "c2", "output": "rain"},
    ]  # fmt: skip
    system, user, answer, result = responses({"input": items, "instructions": "Be brief."}, SERVED).request.messages
    assert (system, user) == (Message("system", "Be brief."), Message("user", "Q"))
    assert [one["id"] for one in json.loads(answer.calls)] == ["c1", "c2"]
    assert (answer.content, result) == ("A", Message("tool", "rain", name="weather", call_id="c2"))
    first, calling, _ = responses({"input": [items[0], items[3], items[5]]}, SERVED).request.messages
    assert (first, calling.role, len(json.loads(calling.calls))) == (user, "assistant", 1)
    (alone,) = responses({"input": [call]}, SERVED).request.messages
    assert (alone.role, alone.content) == ("assistant", "")
    parts = {**items[5], "output": [{"type": "input_text", "text": "ra"}, {"type": "text", "text": "in"}]}
    assert responses({"input": [call, parts]}, SERVED).request.messages[1].content == "rain"
    request = responses({"input": "Hello"}, SERVED).request
    assert request.messages == (Message("user", "Hello"),)
    assert request.continues, "a model without a template goes on with the text"


def test_a_request_with_everything() -> None:
    form = {"type": "json_schema", "name": "tale", "strict": True, "schema": SCHEMA}
    asked = responses(
        {"input": "x", "max_output_tokens": 9, "temperature": 0.5, "text": {"format": form}, "stream": True,
         "reasoning": {"effort": "none"}, "tools": [FLAT], "store": True, "include": ["message.output_text.logprobs"],
         "top_logprobs": 2},
        SERVED,
    )  # fmt: skip
    request = asked.request
    assert (request.max_tokens, request.sampling.temperature, request.think) == (9, 0.5, "off")
    assert json.loads(request.schema or "") == SCHEMA
    assert json.loads(request.tools or "")[0]["function"]["name"] == "weather"
    assert (request.logprobs, asked.is_streamed) == (2, True)
    flat = responses({"input": "x", "tools": [FLAT], "tool_choice": {"type": "function", "name": "weather"}}, SERVED)
    assert json.loads(flat.request.schema or "")["properties"]["name"] == {"const": "weather"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"input": ""}, "input"),
        ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"truncation": "maybe"}, "truncation"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].function.name"),
    ],
    ids=str,
)
def test_a_refusal_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        responses({"input": "x", **fields}, SERVED)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_what_codex_sends() -> None:
    """Tools that this server does not run are left out and named; those in a namespace are functions."""
    space = {"type": "namespace", "name": "agents", "description": "d", "tools": [{**FLAT, "name": "spawn"}]}
    items = [
        {"type": "message", "id": "m", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "x"},
        {"type": "function_call", "call_id": "d", "name": "spawn", "namespace": "agents", "arguments": "{}"},
    ]
    asked = responses(
        {"input": items, "tools": [space, FLAT, {"type": "web_search"}, {"type": "custom", "name": "apply_patch"}],
         "client_metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
         "reasoning": {"summary": "auto"}, "truncation": "auto", "store": False, "tool_choice": "auto",
         "text": {"verbosity": "low"}, "parallel_tool_calls": True},
        SERVED,
    )  # fmt: skip
    assert [tool["function"]["name"] for tool in json.loads(asked.request.tools or "")] == ["spawn", "weather"]
    assert asked.request.shorten
    assert asked.notes == [
        "input[].type: an item of the type 'custom_tool_call' was left out",
        "tools[2]: the type 'web_search' is not run here, so the tool was left out",
        "tools[3]: the type 'custom' is not run here, so the tool was left out",
    ]
    reply = Responses("m", {}, {"weather": CITY}, {"weather": "agents"})
    made = stream(reply, [STARTED, committed(0, HERMES, k=0)])
    call = next(wire for wire in made if wire["type"] == "response.output_item.done")
    assert (call["item"]["name"], call["item"]["namespace"]) == ("weather", "agents")


def test_an_input_without_items_is_an_empty_answer() -> None:
    """Codex asks so whether a server is there."""
    asked = responses({"input": [], "instructions": "Be brief."}, SERVED)
    assert asked.n == 0
    made = asked.reply.whole(Stats())
    assert (made["status"], made["output"][0]["content"][0]["text"]) == ("completed", "")


def test_a_sign_of_life_is_an_event() -> None:
    assert Responses("m", {}, {}).waiting().startswith(b"event: response.in_progress\ndata: {")


def stream(reply: Responses, events: Sequence[Event]) -> list[dict[str, Any]]:
    wires = [*reply.opening(), *(wire for event in events for wire in reply.pieces(event))]
    frames = b"".join(map(reply.frame, [*wires, *reply.closing(told(events))])).decode().split("\n\n")
    assert frames.pop() == ""
    found = []
    for frame in frames:
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def built(events: list[dict[str, Any]]) -> list[Any]:
    """Return the items that the events of a stream build, as a client does, and check each against its end."""
    items: list[Any] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            items.append(event["item"])
            assert event["output_index"] == len(items) - 1
        elif kind == "content_part.added":
            items[event["output_index"]]["content"].append(event["part"])
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            items[event["output_index"]]["content"][event["content_index"]]["text"] += event["delta"]
        elif kind == "function_call_arguments.delta":
            items[event["output_index"]]["arguments"] += event["delta"]
        elif kind == "output_item.done":
            items[event["output_index"]]["status"] = "completed"
            assert {**items[event["output_index"]]} == event["item"]
    return items


def test_a_stream_builds_the_whole() -> None:
    """A thought, a text and a call, each in its place."""
    calling: list[Event] = [
        STARTED,
        Prefilled(16, 6, 10.0),
        replace(committed(0, "Hmm", k=0), text="", reasoning="Hmm"),
        committed(1, "I look. ", k=0),
        committed(2, HERMES, k=0),
        Finished("stop", "", 100.0, 20.0, 1),
    ]
    for events, kinds in ((EVENTS, ["reasoning", "message"]), (calling, ["reasoning", "message", "function_call"])):
        made = stream(Responses("m", {}, {"weather": CITY}), events)
        response = made[-1]["response"]
        assert made[-1]["type"] == "response.completed"
        assert built(made) == response["output"]
        assert [item["type"] for item in response["output"]] == kinds
        whole = Responses("m", {}, {"weather": CITY}).whole(told(events))
        assert [item["type"] for item in whole["output"]] == kinds
        assert whole["usage"] == response["usage"]
        texts = [item["content"][0]["text"].strip() for made in (whole, response) for item in made["output"][:2]]
        assert texts[:2] == texts[2:]


def test_an_answer_that_was_cut_is_incomplete() -> None:
    events = [*EVENTS[:-1], Finished("length", "", 100.0, 20.0, 0)]
    last = stream(Responses("m", {}, {}), events)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_an_answer_without_text_has_an_empty_message() -> None:
    events: list[Event] = [STARTED, Prefilled(16, 6, 10.0), committed(0, "", k=0), Finished("stop", "", 1.0, 1.0, 1)]
    made = stream(Responses("m", {}, {}), events)
    assert built(made) == made[-1]["response"]["output"]
    assert made[-1]["response"]["output"][0]["content"][0]["text"] == ""


@needs_pair
def test_openais_package(client: openai.OpenAI) -> None:
    """A whole one, a stream, a form, and a call: read by its models."""
    asked: Any = {"model": "storyteller", "input": LONG, "max_output_tokens": 16}
    made = client.responses.create(**asked)
    chat = client.chat.completions.create(
        model="storyteller", messages=[{"role": "user", "content": LONG}], max_tokens=16
    )
    assert made.output_text == chat.choices[0].message.content
    assert (made.status, made.usage and made.usage.output_tokens) == ("incomplete", 16)
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    names = [event.type for event in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] == "response.incomplete"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == made.output_text
    form: Any = {"format": {"type": "json_schema", "name": "tale", "schema": SCHEMA, "strict": True}}
    long: Any = {**asked, "max_output_tokens": 64, "temperature": 0}  # room for white space
    assert json.loads(client.responses.create(**long, text=form).output_text)["hero"] in ("king", "queen")
    called = client.responses.create(
        model="storyteller", input=LONG, tools=[FLAT], tool_choice="required", temperature=0, max_output_tokens=200
    )
    (call,) = called.output
    assert call.type == "function_call"
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    after: Any = [{"role": "user", "content": LONG}, call.model_dump(), {"type": "function_call_output",
                  "call_id": call.call_id, "output": "rain"}]  # fmt: skip
    assert client.responses.create(model="storyteller", input=after, tools=[FLAT], max_output_tokens=4).output_text
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="storyteller", input="x", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
