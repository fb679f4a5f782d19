"""Ollama's API: bodies, lines, and the `ollama` package against a real server."""

from dataclasses import replace
from typing import Any

import ollama
import pytest

from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.server import ollama as api
from localspec.server.fields import ClientRequest
from localspec.server.refusal import Refusal
from tests.cli.harness import PAIR, needs_pair
from tests.server.serving import LONG, Server
from tests.server.test_fields import HELLO, SERVED


def chat(**fields: Any) -> ClientRequest:
    asked = api.chat({"model": "storyteller", "messages": HELLO, **fields}, SERVED)
    assert isinstance(asked, ClientRequest)
    return asked


def generate(**fields: Any) -> ClientRequest:
    asked = api.generate({"model": "storyteller", **fields}, SERVED)
    assert isinstance(asked, ClientRequest)
    return asked


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
def test_the_size_of_a_model(monkeypatch: pytest.MonkeyPatch, n: int, size: str) -> None:
    file = replace(model_info(read_model(PAIR / "draft-q8_0.gguf")), n_params=n)
    monkeypatch.setattr(api, "file_of", lambda _: file)
    assert api.tags([SERVED])["models"][0]["details"]["parameter_size"] == size
    for name in ("model", "name"):
        assert api.show({name: "storyteller"}, SERVED)["details"]["parameter_size"] == size
        with pytest.raises(Refusal, match="there is no model 'other'"):
            api.show({name: "other"}, SERVED)


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
