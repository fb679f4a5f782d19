"""/v1/responses: bodies, events, and the `openai` package against a real server."""

import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from localspec.engine.events import Event
from localspec.server.responses import Responses, responses
from localspec.ui.stats import Stats
from tests.cli.fakes import committed
from tests.cli.harness import needs_pair
from tests.server.serving import LONG
from tests.server.test_fields import SERVED
from tests.server.test_openai_replies import STARTED, told
from tests.server.test_tools import CITY, HERMES

FLAT: Any = {"type": "function", "name": "weather", "parameters": CITY}
SCHEMA = {"type": "object", "properties": {"hero": {"enum": ["king", "queen"]}}, "required": ["hero"],
          "additionalProperties": False}  # fmt: skip


def test_a_call_of_a_tool_in_a_namespace_names_that() -> None:
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
