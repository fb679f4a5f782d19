"""Requests of programs as they were seen on the wire: each is taken, and the notes name what is not obeyed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from localspec.server import model_facts, openai
from localspec.server.fields import ServedPair
from localspec.settings.request import LoadSettings
from tests.server.test_fields import HELLO, SERVED


def test_compact_json_may_be_the_servers_own() -> None:
    usual = replace(SERVED, request=replace(SERVED.request, schema_compact=True))
    assert openai.chat({"messages": HELLO, "schema_compact": False}, usual).request.schema_compact is False
    assert openai.chat({"messages": HELLO}, usual).request.schema_compact is True


@pytest.mark.parametrize(
    ("template", "tokens", "able"),
    [
        (None, None, []),
        ("{{ messages }}", [b"a"], []),
        ("{% if tools %}{{ tools }}{% endif %}", [b"a", b"<|fim_prefix|>"], ["tools", "insert"]),
        ("{{ enable_thinking }}", [b"[PREFIX]"], ["insert", "thinking"]),
        ("{{ reasoning_effort }}", [], ["thinking"]),
        ("<think>", ["<｜fim▁begin｜>".encode()], ["insert", "thinking"]),
    ],
)
def test_what_a_pair_can_do(
    template: str | None, tokens: list[bytes] | None, able: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs offer tools and completions only to a model that says so."""
    file = None
    if tokens is not None:
        vocab = SimpleNamespace(text=lambda i: tokens[i])
        file = SimpleNamespace(vocab=vocab, n_vocab=len(tokens), chat_template=template, n_ctx_train=9000)
    monkeypatch.setattr(model_facts, "file_of", lambda listed: file)
    pair: ServedPair = replace(SERVED, settings=LoadSettings("t.gguf"))
    assert model_facts.capabilities(pair) == ["completion", *able]
    assert model_facts.longest_context(pair) == (9000 if tokens is not None else 1024)
    chosen = replace(pair, settings=LoadSettings("t.gguf", ctx=1024))
    assert model_facts.longest_context(chosen) == 1024
