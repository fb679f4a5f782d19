"""Anthropic's /v1/messages: bodies, events, and a real server."""

import json

from localspec.server import anthropic as api
from localspec.settings.jobs import TextQuestion
from tests.cli.harness import needs_pair
from tests.server.serving import LONG, serving
from tests.server.test_fields import HELLO, SERVED
from tests.server.test_tools import CITY

TOOL = {"name": "weather", "description": "Tell it.", "input_schema": CITY, "cache_control": {"type": "ephemeral"}}


def test_tokens_are_counted_of_the_prompt() -> None:
    searched = api.count_tokens({"messages": HELLO, "system": "Be brief.", "tools": [TOOL]}, SERVED)
    assert isinstance(searched.question, TextQuestion)
    assert searched.question.wants == "prompt"
    assert searched.wire({"text": "x", "n": 7}) == {"input_tokens": 7}


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
