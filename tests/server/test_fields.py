"""Bodies of requests become settings of the engine, and what cannot be obeyed is refused by its name."""

import asyncio
import json
import math
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request as Sent

from localspec.engine.events import Loaded
from localspec.errors import (
    IncompatibleError,
    InternalError,
    NetworkError,
    NotFoundError,
    PromptTooLongError,
    UsageError,
    WorkerDiedError,
)
from localspec.server import anthropic, llama_server, ollama, openai, responses
from localspec.server.answering import _numbered
from localspec.server.app import Routes
from localspec.server.fields import HARMLESS, LONGEST_STOPS, UNKNOWN, ClientRequest, OfferedPair, ServedPair
from localspec.server.refusal import Refusal, Wire, called, refused, without_folders
from localspec.server.served_pairs import Pairs
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.settings.structure import LONGEST_FORM
from localspec.ui.stats import Stats
from tests.cli.fakes import facts
from tests.cli.harness import TIMEOUT


def served(name: str, aliases: tuple[str, ...] = (), request: Request | None = None) -> ServedPair:
    """Return a pair that was loaded with 1024 tokens of context."""
    target = facts("m.gguf")
    loaded = Loaded(name, target, None, n_ctx=1024, threads=1, load_ms=1.0, versions={})
    settings = LoadSettings("m.gguf", name=name)
    return ServedPair(name, aliases, 1_700_000_000, target.bytes, target.quant, loaded, settings, request or Request())


SERVED = served("storyteller", ("target-q8_0",), Request(max_tokens=200))
HELLO = [{"role": "user", "content": "Hello"}]


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels else []


def read(**fields: Any) -> ClientRequest:
    return openai.chat({"messages": HELLO, **fields}, SERVED)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": "x" * 10_000}, "stop"),
        ({"grammar": f'root ::= "{"a" * LONGEST_FORM["grammar"]}"'}, "grammar"),
        ({"json_schema": {"description": "a" * LONGEST_FORM["schema"]}}, "json_schema"),
        ({"logit_bias": {str(token): 0 for token in range(10_001)}}, "logit_bias"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_too_long_is_refused_by_the_name_of_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(**fields)
    assert caught.value.status == 400
    assert caught.value.param == param
    assert param.rpartition(".")[2] in caught.value.message


def test_fields_that_are_not_known_are_passed_over_and_named() -> None:
    """Each once, wherever it stands, in the warnings of the reply."""
    tool = {"type": "function", "function": {"name": "f", "x": 1}, "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": "Hello", "id": "m1", "extra": 1}] * 2
    parts = [{"type": "text", "text": "", "cache_control": {}, "odd": 1}]
    body = {
        "temprature": 1, "stream_options": {"include_usages": True}, "speculation": {"methods": "plain"},
        "user": "u", "client_metadata": {}, "tools": [tool], "x" * 81: 1,
    }  # fmt: skip
    asked = read(**{**body, "messages": [*messages, {"role": "user", "content": parts}]})
    names = [
        "messages[].extra", "messages[].content[].odd", "speculation.methods", "tools[].function.x",
        "stream_options.include_usages", "temprature", "x" * 80,
    ]  # fmt: skip
    assert asked.notes == [f"{name}: {UNKNOWN}" for name in names]
    assert asked.reply.whole(Stats())["speculation"]["warnings"] == asked.notes
    assert replace(asked.request, messages=(), tools=None) == replace(read().request, messages=())
    many = read(**{f"field{i}": i for i in range(100)})
    assert len(many.notes) == 20


def test_the_most_messages_that_there_may_be() -> None:
    assert len(read(messages=HELLO * 10_000).request.messages) == 10_000
    for reader, name in ((openai.chat, "messages"), (responses.responses, "input")):
        with pytest.raises(Refusal, match=f"{name}: at most 10000 messages") as caught:
            reader({name: HELLO * 10_001}, SERVED)
        assert (caught.value.status, caught.value.param) == (400, name)


@pytest.mark.parametrize(
    ("usual", "effort", "think"),
    [
        ("off", None, "off"),
        ("auto", None, "auto"),
        ("on", "none", "off"),
        ("off", "low", "auto"),
        ("on", "max", "auto"),
    ],
)
def test_how_much_is_thought(usual: str, effort: str | None, think: str) -> None:
    pair = served("thinking", request=Request(think=usual))
    asked = [
        openai.chat({"messages": HELLO, "reasoning_effort": effort}, pair),
        responses.responses({"input": "x", "reasoning": {"effort": effort}}, pair),
    ]
    assert [each.request.think for each in asked] == [think] * 2
    level = () if effort in (None, "none") else (("reasoning_effort", effort),)
    assert [each.request.template_args for each in asked] == [level] * 2
    with pytest.raises(Refusal, match="reasoning_effort"):
        openai.chat({"messages": HELLO, "reasoning_effort": "banana"}, pair)


def test_errors_of_the_engine() -> None:
    """A wrong request is the client's; a dead engine, and anything while it loads, is the server's."""
    long = refused(PromptTooLongError("the prompt has 9 tokens and the context holds 8", hint="--ctx 16"))
    assert (long.status, long.code) == (400, "context_length_exceeded")
    dead = refused(WorkerDiedError("The engine was killed"))
    assert (dead.status, dead.headers) == (503, {"Retry-After": "1"})
    for error, code in ((UsageError("no"), 400), (NotFoundError("no"), 400), (IncompatibleError("no"), 400)):
        assert (refused(error).status, refused(error).headers) == (code, {})
        assert (refused(error, is_ours=True).status, refused(error, is_ours=True).headers) == (503, dead.headers)
    assert (refused(InternalError("no")).status, refused(NetworkError("no")).status) == (500, 503)
    for kind, is_ours, told in (
        (NotFoundError, True, "no t"),
        (NotFoundError, False, "no t — try: ls"),
        (UsageError, True, "no t — try: ls"),
    ):
        assert refused(kind("no t", hint="ls"), is_ours=is_ours).message == told


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (499, "invalid_request_error"),
        (500, "server_error"),
    ],
)
def test_the_kinds_of_openais_errors(status: int, kind: str) -> None:
    wire = Refusal(status, "no", param="n", code="c").to_openai()
    assert wire == {"error": {"message": "no", "type": kind, "param": "n", "code": "c"}}


@pytest.mark.parametrize(
    ("stops", "is_taken"),
    [(["x"] * 17, True), ("", True), (["x", ""], True), ("ö" * (LONGEST_STOPS // 2), True),
     (["ö" * (LONGEST_STOPS // 2), "x"], False)],
    ids=lambda value: str(value)[:9],
)  # fmt: skip
def test_how_many_stops_there_may_be_and_how_long(stops: Any, is_taken: bool) -> None:
    """Together they have a limit of bytes. An empty one asks for nothing."""
    if is_taken:
        assert read(stop=stops).request.stop == tuple(filter(None, stops if isinstance(stops, list) else [stops]))
    else:
        with pytest.raises(Refusal, match=f"at most {LONGEST_STOPS} bytes together"):
            read(stop=stops)


def test_the_most_that_a_request_may_ask_for() -> None:
    assert len(read(logit_bias={str(token): 0 for token in range(10_000)}).request.sampling.logit_bias) == 10_000
    assert read(logprobs=True, top_logprobs=100).request.logprobs == 100
    assert read(n=4).n == 4
    for token in ("1" * 10, "²", "-1"):
        with pytest.raises(Refusal, match="its keys are numbers of tokens"):
            read(logit_bias={token: 1})
    assert read(logit_bias={"1" * 9: 1}).request.sampling.logit_bias == ((111_111_111, 1.0),)
    pairs = read(logit_bias=[[5, -1.5], [6, False]]).request.sampling.logit_bias
    assert pairs == ((5, -1.5), (6, -math.inf))


def test_an_empty_form_is_none_and_a_method_keeps_what_may_be_approximate() -> None:
    for empty in ({}, "", None):
        request = llama_server.completion({"prompt": "x", "json_schema": empty, "grammar": ""}, SERVED).request
        assert (request.schema, request.grammar) == (None, None)
    lossy = served("lossy", request=Request(speculation=Speculation(verify="typical", approximate=True)))
    found = openai.chat({"messages": HELLO, "speculation": {"method": "draft-model"}}, lossy).request.speculation
    assert found == Speculation(method="draft-model", approximate=True)


LLAMA_CPPS = {
    "n": 1, "n_cmpl": 1, "timings_per_token": False, "return_progress": False, "return_tokens": False,
    "response_fields": [], "t_max_predict_ms": 0, "ignore_eos": False, "mirostat": 0, "top_n_sigma": -1,
    "dynatemp_range": 0, "n_keep": 0, "n_indent": 0, "n_discard": 0, "samplers": list(llama_server.SAMPLERS),
}  # fmt: skip


def test_what_llama_cpps_clients_send_of_themselves_is_taken() -> None:
    """Each of these asks for nothing; what another value of it asks for is refused, or noted, by its name."""
    assert llama_server.completion({"prompt": "x", **LLAMA_CPPS}, SERVED).request.prompt == "x"
    other = {"t_max_predict_ms": -1, "top_n_sigma": 0, "n_keep": -1}
    assert llama_server.completion({"prompt": "x", **other}, SERVED).request.prompt == "x"
    for name in llama_server.REFUSED:
        with pytest.raises(Refusal) as caught:
            llama_server.completion({"prompt": "x", name: 2}, SERVED)
        assert caught.value.param == name
    for name, (reason, _) in llama_server.LEFT.items():
        asked = llama_server.completion({"prompt": "x", name: 2}, SERVED)
        assert asked.notes == asked.reply.whole(Stats())["speculation"]["warnings"] == [f"{name}: {reason}"]


def test_answers_to_one_request_have_seeds_behind_each_other() -> None:
    """The last one that there is goes on with 0. Without a seed each draws its own."""
    given, free = (Request(sampling=Sampling(seed=seed)) for seed in (2**64 - 2, None))
    assert [_numbered(given, i).sampling.seed for i in range(4)] == [2**64 - 2, 2**64 - 1, 0, 1]
    assert [_numbered(each, i) for each, i in ((given, 0), (free, 2))] == [given, free]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/srv/me/My Models/t.gguf does not exist", "t does not exist"),
        ("/srv/me/d.gguf: [Errno 2] '/srv/me/x'", "d.gguf: [Errno 2] 'x'"),
        ("~/models/d.gguf and …els/deep/d.gguf", "d.gguf and d.gguf"),
        ("see https://example.org/a/b or localspec/server, and/or 3/4/5", ""),
    ],
)
def test_folders_are_not_told(said: str, told: str) -> None:
    assert without_folders(said, LoadSettings("/srv/me/My Models/t.gguf")) == (told or said)
    assert without_folders("t.gguf.", LoadSettings("")) == "t.gguf."
    named = (called(LoadSettings("/m/t.gguf", name=name)) for name in ("", "tiny+none", "tiny+d"))
    assert list(named) == ["t", "tiny", "tiny+d"]


TAKEN = ["temperature", "seed", "stop", "logit_bias", "max_tokens", "model", "stream", "messages", "prompt", "suffix",
         "options", "format", "think", "raw", "n_predict", "input_prefix", "input_suffix", "input_extra", "tools",
         "tool_choice", "n", "logprobs", "top_logprobs", "n_probs", "prediction", "response_format", "input", "text",
         "instructions", "content", "tokens", "name", "type", "function", "parameters", "tool_calls"]  # fmt: skip
NAMES = [
    *TAKEN,
    *openai.REFUSED,
    *sorted(HARMLESS),
    "stream_options",
    "speculation",
    "chat_template_kwargs",
    "nonsense",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner),
    max_leaves=12,
)


@given(JSON | st.dictionaries(st.sampled_from(NAMES), JSON))
def test_no_body_is_an_error_of_ours(body: object) -> None:
    """Whatever JSON comes, it is a request or a refusal."""
    readers = (
        openai.chat,
        openai.completion,
        ollama.chat,
        ollama.generate,
        llama_server.completion,
        llama_server.infill,
        llama_server.tokenize,
        llama_server.detokenize,
        llama_server.apply_template,
        responses.responses,
        anthropic.messages,
        anthropic.count_tokens,
    )
    for reader in readers:
        with suppress(Refusal, UsageError):  # the second is as the engine would tell
            asked = reader(body, SERVED)
            if isinstance(asked, ClientRequest):
                asked.request.check()


def test_a_body_that_is_slow_to_be_read_stops_nobody_else() -> None:
    """A grammar may take seconds: meanwhile the others are answered."""
    is_answered = threading.Event()

    def read_slowly(body: object, served: ServedPair) -> Wire:
        return {"is_answered": is_answered.wait(TIMEOUT)}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def asked() -> Any:
        server = Routes(None, Pairs(SERVED))  # type: ignore[arg-type]
        answer = server._answered(read_slowly)(Sent({"type": "http", "headers": []}, receive))
        running = asyncio.ensure_future(answer)
        for _ in range(10):
            await asyncio.sleep(0)
        is_answered.set()
        return await running

    assert json.loads(asyncio.run(asked()).body) == {"is_answered": True}


def test_a_pair_that_was_not_loaded_yet_is_listed_with_less() -> None:
    waiting = OfferedPair("other", ("also", "latest"), 1_700_000_001, 5, "Q4_0", None)
    assert (waiting.n_ctx, waiting.target, waiting.draft) == (0, None, None)
    first, second = openai.models([SERVED, waiting])["data"]
    assert first["meta"] == {
        "n_ctx": 1024, "arch": "llama", "quant": "Q8_0", "n_vocab": 4096, "n_params": 4_700_000,
        "bytes": SERVED.bytes, "draft": None,
    }  # fmt: skip
    assert (first["id"], first["aliases"]) == ("storyteller", ["target-q8_0"])
    assert second == {
        "id": "other", "object": "model", "created": 1_700_000_001, "owned_by": "localspec",
        "aliases": ["also", "latest"], "meta": {"quant": "Q4_0", "bytes": 5},
    }  # fmt: skip
    assert openai.model(replace(SERVED, loaded=replace(SERVED.loaded, draft=facts("d"))))["meta"]["draft"] == {
        "arch": "llama", "n_params": 4_700_000
    }  # fmt: skip
