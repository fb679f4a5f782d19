"""Requests of programs as they were seen on the wire: each is taken, and the notes name what is not obeyed."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.server import anthropic, llama_server, model_facts, ollama, openai, responses
from localspec.server.fields import UNKNOWN, ClientRequest, ServedPair
from localspec.settings.request import LoadSettings, Message
from tests.server.test_fields import HELLO, SERVED
from tests.server.test_tools import CITY, TOOLS

FILLS = {
    "input_prefix": "def f(",
    "input_suffix": "):\n    pass",
    "prompt": "",
    "input_extra": [],
    "cache_prompt": True,
}
NOT_KEPT = [
    "samplers: 'infill' is not here",
    "t_max_predict_ms: an answer has no limit of time here",
    "n_indent: indentation has no limit here",
]
SENT: dict[str, tuple[Any, dict[str, Any], list[str]]] = {  # by program: the reader, its body, the notes
    "llama.vim": (
        llama_server.infill,
        {**FILLS, "n_predict": 128, "stop": [], "n_indent": 4, "top_k": 40, "top_p": 0.9, "stream": False,
         "samplers": ["top_k", "top_p", "infill"], "t_max_prompt_ms": 500, "t_max_predict_ms": 1000,
         "response_fields": ["content", "timings/prompt_n", "truncated"]},
        NOT_KEPT,
    ),
    "llama.vim reads ahead": (
        llama_server.infill,
        {**FILLS, "n_predict": 0, "samplers": [], "t_max_predict_ms": 1, "response_fields": [""]},
        NOT_KEPT[1:2],
    ),
    "llama.vscode edits": (
        openai.chat,
        {"messages": HELLO, "stream": False, "temperature": 0.8, "samplers": "edkypmxt", "dynatemp_range": 0,
         "typical_p": 1, "xtc_probability": 0, "max_tokens": -1, "timings_per_token": False},
        [f"{name}: {UNKNOWN}" for name in ("samplers", "dynatemp_range")],
    ),
    "Zed": (ollama.chat, {"messages": HELLO, "stream": True, "keep_alive": "15m", "think": False,
                          "options": {"num_ctx": 1024, "stop": []}, "tools": []}, []),
    "Zed predicts": (openai.completion, {"model": "gpt-x", "prompt": "x", "max_tokens": 64, "stop": ["<|end|>"],
                                         "temperature": 0.1}, []),
    "opencode": (
        openai.chat,
        {"model": "gpt-5", "max_tokens": 32000, "messages": HELLO, "tools": TOOLS, "tool_choice": "auto",
         "stream": True, "stream_options": {"include_usage": True}},
        [],
    ),
    "pi": (openai.chat, {"messages": HELLO, "store": False, "max_completion_tokens": 9, "stream": True, "tools": TOOLS},
           []),
    "codex": (
        responses.responses,
        {"input": [{"type": "message", "role": "developer", "id": "m", "content": "x"}], "stream": True,
         "tools": [{"type": "web_search", "external_web_access": True}], "tool_choice": "auto", "store": False,
         "parallel_tool_calls": True, "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"],
         "prompt_cache_key": "k", "client_metadata": {"x": "y"}, "text": {"verbosity": "low"}},
        ["tools[0]: the type 'web_search' is not run here, so the tool was left out"],
    ),
    "vLLM's and OpenRouter's clients": (
        openai.chat,
        {"messages": [*HELLO, {"role": "assistant", "content": "A", "reasoning": "R", "reasoning_details": [],
                               "id": "x", "metadata": {}, "cache_control": {}, "prefix": False},
                      {"role": "user", "content": "B", "id": "y"}],
         "tools": [{**TOOLS[0], "cache_control": {"type": "ephemeral"}}], "id_slot": -1, "mirostat": 0},
        [f"messages[].{name}: {UNKNOWN}" for name in ("reasoning_details", "prefix")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", SENT)
def test_a_request_is_taken(program: str) -> None:
    read, body, notes = SENT[program]
    asked = read(body, SERVED)
    assert isinstance(asked, ClientRequest)
    assert asked.notes == notes


def test_a_field_of_a_message_that_is_not_known_changes_nothing() -> None:
    messages = openai.chat(SENT["vLLM's and OpenRouter's clients"][1], SERVED).request.messages
    assert messages[-2:] == (Message("assistant", "A", "R"), Message("user", "B"))


def test_a_call_or_a_form() -> None:
    """Tools beside a form: the answer is one of both, and the tools are not taken away."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": CITY}}
    asked = [
        openai.chat({"messages": HELLO, "tools": TOOLS, "response_format": form}, SERVED),
        ollama.chat({"messages": HELLO, "tools": TOOLS, "format": CITY}, SERVED),
        responses.responses(
            {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": CITY}},
             "tools": [{"type": "function", "name": "time"}]}, SERVED),
    ]  # fmt: skip
    for each in asked:
        assert isinstance(each, ClientRequest)
        assert json.loads(each.request.schema or "") == CITY
        assert each.request.tools is not None
        assert not each.request.must_call


@pytest.mark.parametrize(("given", "is_compact"), [({}, False), ({"schema_compact": True}, True)])
def test_compact_json_by_a_field_of_each_api(given: dict[str, Any], is_compact: bool) -> None:
    read = [
        openai.chat({"messages": HELLO, **given}, SERVED),
        openai.completion({"prompt": "x", **given}, SERVED),
        responses.responses({"input": "x", **given}, SERVED),
        anthropic.messages({"messages": HELLO, **given}, SERVED),
        ollama.chat({"messages": HELLO, **given}, SERVED),
        ollama.generate({"prompt": "x", **given}, SERVED),
        llama_server.completion({"prompt": "x", **given}, SERVED),
        llama_server.infill({"input_prefix": "x", **given}, SERVED),
    ]
    for asked in read:
        assert isinstance(asked, ClientRequest)
        assert (asked.request.schema_compact, asked.notes) == (is_compact, [])
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
