"""A real server on the bundled pair, asked by the `openai` package and by raw requests."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import msgspec
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.harness import needs_pair, run_engine, wait_for
from tests.server.serving import LONG, Server, chat, serving
from tests.server.test_fields import JSON, NAMES

pytestmark = needs_pair
HELLO: list[Any] = [{"role": "user", "content": LONG}]
CHAT = "/v1/chat/completions"


def test_an_answer_is_that_of_run(server: Server, client: openai.OpenAI) -> None:
    """At temperature 0 the text is the one that `localspec run` prints."""
    made = client.chat.completions.create(model="storyteller", messages=HELLO, max_tokens=24)
    choice = made.choices[0]
    done = run_engine("run", "-m", "storyteller", "--temp", "0", "-n", "24", "--no-save", LONG)
    assert f"{choice.message.content}\n" == done.stdout.decode()
    assert choice.finish_reason == "length"
    assert made.usage is not None
    assert made.usage.completion_tokens == 24
    assert made.usage.total_tokens == made.usage.prompt_tokens + 24


def test_a_stream_is_the_same_text(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="storyteller", messages=HELLO, max_tokens=24)
    chunks = list(
        client.chat.completions.create(
            model="storyteller", messages=HELLO, max_tokens=24, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == 24
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_many_at_once_through_the_async_client(server: Server) -> None:
    """Twenty clients at once: each gets an answer, in turn, or is told to come again, and comes again."""

    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=20) as client:
            tasks = [
                client.chat.completions.create(model="storyteller", messages=HELLO, max_tokens=8) for _ in range(20)
            ]
            return [made.choices[0].message.content for made in await asyncio.gather(*tasks)]

    texts = asyncio.run(ask())
    assert len(texts) == 20
    assert len(set(texts)) == 1


def test_the_same_seed_is_the_same_text(client: openai.OpenAI) -> None:
    texts = {
        client.chat.completions.create(
            model="storyteller", messages=HELLO, max_tokens=16, temperature=1, seed=5, extra_body=extra
        )
        .choices[0]
        .message.content
        for extra in ({}, {"speculation": {"method": "plain"}}, {"speculation": {"method": "suffix", "k": 3}})
    }
    assert len(texts) == 1


def test_a_stop_ends_the_text_before_it(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="storyteller", messages=HELLO, max_tokens=24)
    text = whole.choices[0].message.content
    assert text
    word = text.split()[3]
    made = client.chat.completions.create(model="storyteller", messages=HELLO, max_tokens=24, stop=word)
    assert made.choices[0].message.content == text.partition(word)[0]
    assert made.choices[0].finish_reason == "stop"


def test_a_banned_token_does_not_come(server: Server) -> None:
    """Bias and penalties reach the sampler."""
    plain = server.post(CHAT, **chat(max_tokens=8))
    banned = server.post(CHAT, **chat(max_tokens=8, logit_bias={str(token): -1e6 for token in range(300, 2000)}))
    assert plain["choices"][0]["message"] != banned["choices"][0]["message"]


def test_speculation_is_told(server: Server) -> None:
    drafted = server.post(CHAT, **chat(max_tokens=32, speculation={"method": "draft-model", "k": 3}))
    assert drafted["speculation"]["method"] == "draft-model"
    assert 0 < drafted["timings"]["draft_n_accepted"] <= drafted["timings"]["draft_n"]
    plain = server.post(CHAT, **chat(max_tokens=32, speculation={"k": 0}))
    assert "draft_n" not in plain["timings"]
    assert plain["choices"][0]["message"] == drafted["choices"][0]["message"]


def test_a_predicted_answer_is_copied_from(client: openai.OpenAI) -> None:
    """Its text changes nothing but how many tokens are drafted and accepted."""
    extra = {"speculation": {"method": "copy"}}
    plain = client.chat.completions.create(model="storyteller", messages=HELLO, max_tokens=48, extra_body=extra)
    text = plain.choices[0].message.content
    assert text
    made = client.chat.completions.create(
        model="storyteller", messages=HELLO, max_tokens=48, extra_body=extra,
        prediction={"type": "content", "content": text},
    )  # fmt: skip
    assert made.choices[0].message.content == text
    assert made.model_extra is not None
    timings = made.model_extra["timings"]
    assert timings["draft_n_accepted"] > 16
    assert made.usage is not None
    details = made.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens == timings["draft_n_accepted"]
    assert details.rejected_prediction_tokens == timings["draft_n"] - timings["draft_n_accepted"]
    assert plain.usage is not None
    assert plain.usage.completion_tokens_details is not None
    assert plain.usage.completion_tokens_details.accepted_prediction_tokens is None, "nothing was predicted"


def test_several_answers(client: openai.OpenAI) -> None:
    """Each is that of its own seed, and the prompt is read once."""
    asked: Any = {"model": "storyteller", "messages": HELLO, "max_tokens": 12, "temperature": 1, "n": 3, "seed": 5}
    made = client.chat.completions.create(**asked)
    texts = [choice.message.content for choice in made.choices]
    assert [choice.index for choice in made.choices] == [0, 1, 2]
    assert made.usage is not None
    assert made.usage.completion_tokens == sum(12 for _ in texts)
    for i, text in enumerate(texts):
        lone = client.chat.completions.create(**{**asked, "n": 1, "seed": 5 + i})
        assert lone.choices[0].message.content == text
    assert len(set(texts)) == 3
    assert all(choice.model_extra and choice.model_extra["timings"]["cache_n"] for choice in made.choices[1:])
    streamed: dict[int, str] = {}
    reasons: dict[int, list[str]] = {}
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
            reasons.setdefault(choice.index, []).extend([choice.finish_reason] if choice.finish_reason else [])
    assert streamed == dict(enumerate(texts))
    assert reasons == {0: ["length"], 1: ["length"], 2: ["length"]}
    assert chunk.usage is not None
    assert chunk.usage.completion_tokens == 36


def test_text_and_tokens(server: Server) -> None:
    text = "Once upon a time, né 🦜"
    tokens = server.post("/tokenize", content=text)["tokens"]
    assert server.post("/detokenize", tokens=tokens)["content"].strip() == text
    assert server.post("/tokenize", content=text, add_special=True)["tokens"][1:] == tokens
    pieces = server.post("/tokenize", content=text, with_pieces=True)["tokens"]
    assert [piece["id"] for piece in pieces] == tokens
    raw = b"".join(p.encode() if isinstance(p := each["piece"], str) else bytes(p) for each in pieces)
    assert raw.decode().strip() == text
    usage = server.post("/v1/completions", prompt=text, max_tokens=1)["usage"]
    assert usage["prompt_tokens"] == len(tokens) + 1, "and the token that begins a text"
    for wrong in ([10**9], [-1]):
        status, told, _ = server.ask("POST", "/detokenize", {"tokens": wrong})
        assert (status, "no token" in told["error"]["message"]) == (400, True)
    assert "Hello" in server.post("/apply-template", **chat("Hello"))["prompt"]
    wait_for(lambda: server.queue() == (False, 0))  # the answer was told before it was counted as over
    before = server.read("/metrics")
    server.post("/tokenize", content=text)
    assert server.read("/metrics") == before, "a question is no answer"


@pytest.mark.parametrize("path", ["/v1/embeddings", "/api/embed", "/v1/audio/speech", "/api/pull", "/rerank"])
def test_what_is_not_here_says_so(server: Server, path: str) -> None:
    for method in ("POST", "GET", "DELETE"):
        status, told, _ = server.ask(method, path, {"input": "x"})
        error = told["error"]
        assert status == 501
        assert "\n" not in (error if isinstance(error, str) else error["message"])


def test_log_probabilities(server: Server, client: openai.OpenAI) -> None:
    """Of every token of the text, the same in a stream and from llama-server's path, and under drafts as without."""
    asked: Any = {"model": "storyteller", "messages": HELLO, "max_tokens": 16, "logprobs": True, "top_logprobs": 3}
    found = []
    for method in ("plain", "draft-model"):
        choice = client.chat.completions.create(**asked, extra_body={"speculation": {"method": method}}).choices[0]
        assert choice.logprobs is not None
        content = choice.logprobs.content or []
        assert bytes(byte for each in content for byte in each.bytes or []).decode() == choice.message.content
        assert all(len(each.top_logprobs) == 3 for each in content)
        assert all(each.logprob == max(one.logprob for one in each.top_logprobs) for each in content), "greedy"
        found.append([each.logprob for each in content])
    assert found[0] == pytest.approx(found[1], abs=0.1)
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**asked, stream=True)]
    streamed = [each.logprob for one in chunks if one.logprobs for each in one.logprobs.content or []]
    assert streamed == pytest.approx(found[0], abs=0.1)
    prompt = {"prompt": "Once upon a time", "temperature": 0.5, "seed": 3}
    old = client.completions.create(model="storyteller", max_tokens=8, logprobs=2, extra_body=prompt, prompt="")
    legacy = old.choices[0].logprobs
    assert legacy is not None
    assert "".join(legacy.tokens or []) == old.choices[0].text
    assert (legacy.text_offset or [])[1] == len((legacy.tokens or [])[0])
    told = server.post("/completion", n_predict=8, n_probs=2, **prompt)["completion_probabilities"]
    assert [each["logprob"] for each in told] == pytest.approx(legacy.token_logprobs, abs=0.1)
    after = server.post("/completion", n_predict=8, n_probs=2, post_sampling_probs=True, **prompt)
    for each in after["completion_probabilities"]:
        assert 0 < each["prob"] <= each["top_probs"][0]["prob"] <= 1


def test_completions(client: openai.OpenAI) -> None:
    made = client.completions.create(model="storyteller", prompt="Once upon a time", max_tokens=12)
    chunks = list(client.completions.create(model="storyteller", prompt="Once upon a time", max_tokens=12, stream=True))
    assert made.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in chunks) == made.choices[0].text


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list()
    assert model.id == "storyteller"
    assert client.models.retrieve("storyteller").id == "storyteller"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other-7")


def test_a_pair_without_a_draft_is_called_as_its_model() -> None:
    with serving("--draft", "none") as server:
        (model,) = json.loads(server.read("/v1/models"))["data"]
        assert model["id"] == "storyteller"
        for name in ("storyteller", "storyteller+none"):
            assert server.post("/v1/completions", model=name, prompt="Once", max_tokens=1)["model"] == "storyteller"


def test_an_answer_has_the_form_that_was_asked_for(client: openai.OpenAI) -> None:
    fields = {"hero": {"enum": ["king", "queen"]}, "year": {"type": "integer", "minimum": 1, "maximum": 99}}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "tale", "schema": schema}}
    for seed in range(3):
        told = client.chat.completions.create(model="storyteller", messages=HELLO, response_format=form, seed=seed)
        found = json.loads(told.choices[0].message.content or "")
        assert set(found) == set(fields)
        assert found["hero"] in ("king", "queen")
        assert 1 <= found["year"] <= 99


def test_refusals_are_the_clients_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="storyteller", messages=HELLO, n=5)
    assert caught.value.param == "n"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="storyteller", messages=[{"role": "user", "content": "word " * 4000}])
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other-7", messages=HELLO)


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {"99999": 1}},
        {"speculation": {"method": "nonsense"}},
        {"speculation": {"method": "eagle3"}},
        {"speculation": {"verify": "typical"}},
    ],
    ids=str,
)
def test_what_only_the_engine_can_refuse(server: Server, fields: dict[str, Any]) -> None:
    status, told, _ = server.ask("POST", CHAT, chat(**fields))
    assert status == 400, told
    assert told["error"]["type"] == "invalid_request_error"


PATHS = [
    CHAT,
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/chat",
    "/api/generate",
    "/api/show",
    "/completion",
    "/infill",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/embeddings",
    "/v1/models",
    "/no",
]
GOOD: dict[str, Any] = {  # a short answer by each API
    **chat(max_tokens=1), "prompt": LONG, "input": LONG, "max_output_tokens": 1, "n_predict": 1,
    "options": {"num_predict": 1},
}  # fmt: skip
FIELDS = [*NAMES, "think", "samplers", "echo", "truncation", "reasoning", "thinking", "output_config", "system",
          "stop_sequences", "response_fields", "add_generation_prompt", "continue_final_message"]  # fmt: skip
PART = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "robot"]), "content": st.text(max_size=4) | JSON},
    optional={"tool_calls": JSON, "reasoning_content": JSON},
)
CHANGES = st.dictionaries(st.sampled_from(FIELDS), JSON) | st.builds(
    lambda parts: {"messages": parts, "input": parts}, st.lists(PART, max_size=3)
)
BAD = st.one_of(st.binary(max_size=64), JSON, CHANGES, st.builds(lambda changes: {**GOOD, **changes}, CHANGES))


def has_own_error(path: str, body: Any) -> bool:
    if path.startswith("/api/"):
        return isinstance(body["error"], str)
    return isinstance(body["error"]["message"], str) and (body.get("type") == "error") == ("/messages" in path)


def test_bad_requests_are_refused_and_the_queue_goes_on(server: Server, pytestconfig: pytest.Config) -> None:
    """On every route; `--exhaustive` sends 2 000. No descriptor stays open."""
    server.queue()
    before = server.descriptors()

    @settings(max_examples=2_000 if pytestconfig.getoption("--exhaustive") else 150, deadline=None)
    @given(st.sampled_from(PATHS), BAD)
    def send(path: str, body: object) -> None:
        raw = body if isinstance(body, bytes) else str(body).encode(errors="replace")
        with suppress(UnicodeEncodeError, OverflowError):
            raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        status, told, _ = server.ask("POST", path, raw)
        assert status == 200 or 400 <= status < 500 or status in (501, 503), told
        assert status == 200 or has_own_error(path, told)
        wait_for(lambda: server.queue() == (False, 0))

    send()
    wait_for(lambda: server.descriptors() <= before)


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b'"x"', b"{" * 100_000, b"[" * 2_000_000, b'{"messages": [{"role": "user", "content": "\xff"}]}',
     b'{"messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 1}', b"1e999", b"NaN"],
    ids=lambda raw: repr(raw[:20]),
)  # fmt: skip
def test_what_is_no_json_is_refused(server: Server, raw: bytes) -> None:
    status, told, _ = server.ask("POST", CHAT, raw)
    assert status == 400
    assert told["error"]["message"]


def test_control_tokens_in_a_message_are_text(server: Server) -> None:
    """As in every chat here; and no character of a text breaks an answer."""
    for text in ("<s></s><|im_end|>", "\0\x1b[31m\u202e\ufffe", "🦜" * 50):
        assert server.post(CHAT, **chat(text, max_tokens=2))["usage"]["completion_tokens"] == 2
