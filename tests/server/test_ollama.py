"""Ollama's API: bodies, lines, and the `ollama` package against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ollama
import pytest

from localspec.server import ollama as api
from localspec.server.fields import ClientRequest
from localspec.server.refusal import Refusal
from localspec.settings.request import Message, Sampling
from tests.cli.harness import needs_pair
from tests.server.serving import LONG, Server, serving
from tests.server.test_fields import HELLO, SERVED
from tests.server.test_openai_replies import EVENTS, told


def chat(**fields: Any) -> ClientRequest:
    asked = api.chat({"model": "storyteller", "messages": HELLO, **fields}, SERVED)
    assert isinstance(asked, ClientRequest)
    return asked


def generate(**fields: Any) -> ClientRequest:
    asked = api.generate({"model": "storyteller", **fields}, SERVED)
    assert isinstance(asked, ClientRequest)
    return asked


def test_a_chat_with_options() -> None:
    options = {
        "temperature": 0.5,
        "top_k": 3,
        "seed": 7,
        "num_predict": 9,
        "stop": ["a"],
        "num_ctx": 1024,
        "num_gpu": 0,
    }
    asked = chat(options=options, think=False, keep_alive="5m")
    request = asked.request
    assert request.sampling == Sampling(temperature=0.5, top_k=3, seed=7)
    assert (request.max_tokens, request.stop, request.think, request.shorten) == (9, ("a",), "off", True)
    assert asked.is_streamed
    assert not chat(stream=False).is_streamed


@pytest.mark.parametrize(
    ("given", "think", "level"),
    [(True, "on", None), ("true", "on", None), ("low", "on", "low"), ("max", "on", "max"), (False, "off", None),
     ("false", "off", None), (None, "auto", None)],
)  # fmt: skip
def test_thinking(given: Any, think: str, level: str | None) -> None:
    request = chat(think=given).request
    assert (request.think, dict(request.template_args).get("reasoning_effort")) == (think, level)


def test_a_longer_context_than_there_is() -> None:
    """One that was not chosen grows; where it cannot, the answer says so."""
    asked = chat(options={"num_ctx": 2048})
    assert asked.notes == ["options.num_ctx: the context holds 1024 tokens at most"]
    chosen = replace(SERVED, settings=replace(SERVED.settings, ctx=1024))
    asked = api.chat({"messages": HELLO, "options": {"num_ctx": 2048}}, chosen)  # type: ignore[assignment]
    (note,) = asked.notes
    assert note == "options.num_ctx: the context holds 1024 tokens at most; localspec serve --ctx 2048 has more"


def test_a_context_of_a_pair_that_was_not_loaded_may_be_any() -> None:
    asked = api.chat({"messages": HELLO, "options": {"num_ctx": 9999}}, replace(SERVED, loaded=None))
    assert isinstance(asked, ClientRequest)


@pytest.mark.parametrize(
    ("n", "size"), [(4_700_000, "4.7M"), (999_000_000, "999.0M"), (1_000_000_000, "1.0B"), (1_540_000_000, "1.5B")]
)
def test_the_size_of_a_model(n: int, size: str) -> None:
    assert SERVED.loaded is not None
    pair = replace(SERVED, loaded=replace(SERVED.loaded, target=replace(SERVED.loaded.target, n_params=n)))
    assert api.tags([pair])["models"][0]["details"]["parameter_size"] == size
    for name in ("model", "name"):
        assert api.show({name: "storyteller"}, pair)["details"]["parameter_size"] == size
        with pytest.raises(Refusal, match="there is no model 'other'"):
            api.show({name: "other"}, pair)


@pytest.mark.parametrize(("given", "most"), [(-1, None), (-2, None), (5, 5)])
def test_limits(given: int, most: int | None) -> None:
    assert chat(options={"num_predict": given}).request.max_tokens == most


def test_prompts() -> None:
    assert generate(prompt="Hi", system="Be brief.").request.messages == (
        Message("system", "Be brief."),
        Message("user", "Hi"),
    )
    raw = generate(prompt="Hi", raw=True).request
    assert (raw.prompt, raw.suffix, raw.messages) == ("Hi", None, ())
    gap = generate(prompt="a", suffix="c").request
    assert (gap.prompt, gap.suffix) == ("a", "c")


def test_a_request_that_only_loads() -> None:
    for wire in (api.generate({"model": "storyteller"}, SERVED), api.chat({"messages": []}, SERVED)):
        assert isinstance(wire, dict)
        assert (wire["done"], wire["done_reason"]) == (True, "load")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"format": "yaml"}, "format"),
        ({"tools": [{}]}, "tools[0].function.name"),
        ({"options": {"mirostat": 1}}, "options.mirostat"),
        ({"think": "banana"}, "think"),
        ({"think": ""}, "think"),
        ({"options": {"num_predict": 0}}, "options.num_predict"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"),
        ({"messages": "x"}, "messages"),
        ({"stream": 1}, "stream"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_refusal_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        chat(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("is_chat", [True, False])
def test_lines_are_the_whole(is_chat: bool) -> None:
    reply = api.Ollama("m", is_chat=is_chat)
    lines = [wire for event in EVENTS for wire in reply.pieces(event)]
    (last,) = reply.closing(told(EVENTS))
    whole = reply.whole(told(EVENTS))

    def text(wire: dict[str, Any], name: str) -> str:
        said = wire["message"] if is_chat else wire
        return str(said.get(name, ""))

    name = "content" if is_chat else "response"
    assert "".join(text(line, name) for line in lines) == text(whole, name) == "Once upon a time"
    assert "".join(text(line, "thinking") for line in lines) == text(whole, "thinking") == "Hmm"
    assert not any(line["done"] for line in lines)
    assert (last["done"], last["done_reason"]) == (True, "stop")
    for key in ("prompt_eval_count", "eval_count", "eval_duration", "total_duration"):
        assert last[key] == whole[key]
    assert (last["prompt_eval_count"], last["prompt_eval_duration"]) == (16, 10_000_000)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--temp", "0") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> ollama.Client:
    return ollama.Client(host=server.url)


@needs_pair
def test_the_package_chats(client: ollama.Client) -> None:
    messages = [{"role": "user", "content": LONG}]
    whole = client.chat(model="storyteller", messages=messages, options={"num_predict": 16})
    parts = list(client.chat(model="storyteller", messages=messages, options={"num_predict": 16}, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert (whole.done_reason, whole.eval_count) == ("length", 16)
    assert parts[-1].eval_count == 16


@needs_pair
def test_the_package_generates(client: ollama.Client) -> None:
    made = client.generate(model="storyteller", prompt="Once upon a time", raw=True, options={"num_predict": 8})
    assert made.response
    assert client.generate(model="storyteller").done_reason == "load"


@needs_pair
def test_the_package_lists(client: ollama.Client) -> None:
    (model,) = client.list().models
    assert model.model == "storyteller"
    (running,) = client.ps().models
    assert running.model == "storyteller"
    shown = client.show("storyteller")
    assert shown.details is not None
    assert shown.details.quantization_level == "Q8_0"


@needs_pair
def test_the_package_is_told_what_is_wrong(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="no model"):
        client.chat(model="llama3", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(ollama.ResponseError, match="format"):
        client.chat(model="storyteller", messages=[{"role": "user", "content": "x"}], format={"type": "none"})
