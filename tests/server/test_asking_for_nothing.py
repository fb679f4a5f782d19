"""Fields that cannot be obeyed: with a value that asks for nothing they pass, with another they are refused."""

from collections.abc import Callable
from typing import Any

import pytest

from localspec.server import llama_server, ollama, openai, responses
from localspec.server.fields import HARMLESS
from localspec.server.refusal import Refusal
from localspec.settings.jobs import TextQuestion
from tests.server.test_fields import HELLO, SERVED

Read = Callable[..., Any]
BODIES: dict[str, tuple[Read, dict[str, Any]]] = {
    "chat": (openai.chat, {"messages": HELLO}),
    "completion": (openai.completion, {"prompt": "x"}),
    "responses": (responses.responses, {"input": "x"}),
    "ollama": (ollama.chat, {"messages": HELLO}),
    "llama-server": (llama_server.completion, {"prompt": "x"}),
}
# API, field, values that ask for nothing, values that ask for something.
FIELDS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("chat", "best_of", [1], [2]),
    ("chat", "functions", [[]], [[{}]]),
    ("chat", "function_call", ["none", "auto"], ["x"]),
    ("chat", "modalities", [["text"]], [["text", "audio"], []]),
    ("chat", "audio", [], [{}]),
    ("chat", "web_search_options", [{}], []),
    ("chat", "verbosity", ["medium", "low"], []),
    ("chat", "timings_per_token", [False, True], []),
    ("completion", "echo", [False], ["x"]),
    ("chat", "n", [1, 4], [0, 5]),
    ("responses", "previous_response_id", [""], ["resp_1"]),
    ("responses", "conversation", [], [""]),
    ("responses", "prompt", [], [{}]),
    ("responses", "background", [False], [True]),
    ("responses", "max_tool_calls", [1], []),
    ("responses", "truncation", ["disabled"], ["x"]),
    ("ollama", "images", [[]], [["x"]]),
    ("ollama", "template", [""], ["x"]),
    ("ollama", "context", [[]], [[1]]),
    ("llama-server", "n", [1], [2, 0]),
    ("llama-server", "n_cmpl", [1], [2]),
    ("llama-server", "timings_per_token", [False, True], []),
    ("llama-server", "return_progress", [False, True], []),
    ("llama-server", "return_tokens", [False, True], []),
    ("llama-server", "response_fields", [[], ["content"]], ["content"]),
    ("llama-server", "t_max_predict_ms", [0, -1, 1], []),
    ("llama-server", "ignore_eos", [False], [True]),
    ("llama-server", "mirostat", [0], [1]),
    ("llama-server", "top_n_sigma", [0, -1], [1]),
    ("llama-server", "dynatemp_range", [0], [1]),
    ("llama-server", "n_keep", [0, -1, 1], []),
    ("llama-server", "n_indent", [0, 1], []),
    ("llama-server", "n_discard", [0, 1], []),
    ("llama-server", "samplers", [list(llama_server.SAMPLERS), "edskypmxt"], [1]),
    *((api, each, ["x"], []) for api in BODIES for each in sorted(HARMLESS - {"model"})),
]
OPTIONS: list[tuple[str, list[Any], list[Any]]] = [
    ("mirostat", [0], [1]),
    ("tfs_z", [1], [0.5]),
    ("penalize_newline", [False], [True]),
    ("num_ctx", [0, 1024, 10**6], ["x"]),
    ("num_predict", [-2, -1, 1], [0]),
    *((each, ["x"], []) for each in ollama.HARMLESS_OPTIONS),
]


def name(value: object) -> str:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("api", "field", "nothing", "something"), FIELDS, ids=name)
def test_a_field(api: str, field: str, nothing: list[Any], something: list[Any]) -> None:
    read, body = BODIES[api]
    usual = read(body, SERVED).request
    for value in nothing:
        assert read({**body, field: value}, SERVED).request == usual
    for value in something:
        with pytest.raises(Refusal) as caught:
            read({**body, field: value}, SERVED)
        assert (caught.value.status, caught.value.param) == (400, field)


@pytest.mark.parametrize(("option", "nothing", "something"), OPTIONS, ids=name)
def test_an_option_of_ollamas(option: str, nothing: list[Any], something: list[Any]) -> None:
    for value in nothing:
        assert ollama.chat({"messages": HELLO, "options": {option: value}}, SERVED)
    for value in something:
        with pytest.raises(Refusal) as caught:
            ollama.chat({"messages": HELLO, "options": {option: value}}, SERVED)
        assert caught.value.param == f"options.{option}"


def test_what_is_not_asked_for() -> None:
    """The defaults of each API: whether it streams, thinks, shortens, tells probabilities, repeats a gap."""
    for api, is_streamed in (("chat", False), ("completion", False), ("responses", False), ("ollama", True),
                             ("llama-server", False)):  # fmt: skip
        read, body = BODIES[api]
        asked = read(body, SERVED)
        assert (asked.is_streamed, asked.n) == (is_streamed, 1)
        request = asked.request
        assert (request.logprobs, request.tools, request.schema, request.suffix) == (None, None, None, None)
        assert (request.think, request.max_tokens, request.is_after_sampler) == ("auto", 200, False)
        assert request.shorten == (api == "ollama")
        assert request.continues == (api in ("chat", "responses", "ollama"))
    made = ollama.generate({"prompt": "x"}, SERVED)
    assert not made.request.shorten  # type: ignore[union-attr]
    gap = llama_server.infill({"input_prefix": "a", "input_suffix": "b"}, SERVED).request
    assert (gap.prompt, gap.suffix) == ("a", "b")
    question = llama_server.tokenize({}, SERVED).question
    assert isinstance(question, TextQuestion)
    assert question == TextQuestion(SERVED.request, "tokens", "", (), False, True)
    given = {"content": "a", "add_special": True, "parse_special": False, "model": "any"}
    assert llama_server.tokenize(given, SERVED).question == TextQuestion(SERVED.request, "tokens", "a", (), True, False)


@pytest.mark.parametrize(
    ("api", "given", "n"),
    [
        ("chat", {"logprobs": True}, 0),
        ("chat", {"logprobs": True, "top_logprobs": 3}, 3),
        ("chat", {"logprobs": False}, None),
        ("completion", {"logprobs": True}, 0),
        ("completion", {"logprobs": False}, None),
        ("completion", {"logprobs": 0}, 0),
        ("completion", {"logprobs": 1}, 1),
        ("responses", {"include": ["message.output_text.logprobs"]}, 0),
        ("responses", {"include": ["x"]}, None),
        ("responses", {"top_logprobs": 2}, 2),
        ("llama-server", {"n_probs": 0}, None),
        ("llama-server", {"n_probs": 1}, 1),
        ("ollama", {"logprobs": True, "top_logprobs": 2}, 2),
    ],
)
def test_log_probabilities(api: str, given: dict[str, Any], n: int | None) -> None:
    read, body = BODIES[api]
    assert read({**body, **given}, SERVED).request.logprobs == n
