"""Prompts of tokens, several prompts, prompts that are only read, and log-probabilities of a prompt's tokens.

These are what tools of evaluation ask for, and editors that read ahead.
"""

import json
from typing import Any

import pytest

from localspec.server import llama_server, openai
from localspec.server.refusal import Refusal
from tests.cli.harness import needs_pair
from tests.server.serving import LONG, Server
from tests.server.test_fields import SERVED

pytestmark = needs_pair
TEXTS = "/v1/completions"


@pytest.fixture(scope="module")
def tokens(server: Server) -> list[int]:
    found: list[int] = server.post("/tokenize", content=LONG, add_special=True)["tokens"]
    return found


@pytest.mark.parametrize("prompt", [None, [], [[]], ["x"] * 65, {"a": 1}, ["a", 1], 3])
def test_what_is_no_prompt(prompt: Any) -> None:
    for read in (openai.completion, llama_server.completion):
        with pytest.raises(Refusal) as caught:
            read({"prompt": prompt}, SERVED)
        assert caught.value.param == "prompt"


def test_tokens_are_a_prompt(server: Server, tokens: list[int]) -> None:
    by_text = server.post(TEXTS, prompt=LONG, max_tokens=8)["choices"][0]["text"]
    assert server.post(TEXTS, prompt=tokens, max_tokens=8)["choices"][0]["text"] == by_text
    assert server.post("/completion", prompt=tokens, n_predict=8)["content"] == by_text
    status, error, _ = server.ask("POST", TEXTS, {"prompt": [10**6]})
    assert (status, "no token 1000000" in error["error"]["message"]) == (400, True)


def test_several_prompts(server: Server, tokens: list[int]) -> None:
    other = "The king said"
    alone = [server.post(TEXTS, prompt=prompt, max_tokens=6) for prompt in (tokens, other)]
    texts = [made["choices"][0]["text"] for made in alone]
    other_tokens = server.post("/tokenize", content=other, add_special=True)["tokens"]
    made = server.post(TEXTS, prompt=[tokens, other_tokens], max_tokens=6, n=2)
    assert [choice["index"] for choice in made["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in made["choices"]] == [texts[0]] * 2 + [texts[1]] * 2
    assert made["usage"]["prompt_tokens"] == sum(each["usage"]["prompt_tokens"] for each in alone)
    listed = server.post("/completion", prompt=[LONG, other], n_predict=6)
    assert [(each["index"], each["content"]) for each in listed] == list(enumerate(texts))
    _, raw, _ = server.ask("POST", "/completion", {"prompt": [LONG, other], "n_predict": 6, "stream": True})
    said = ["", ""]
    for part in filter(None, raw.decode().split("\n\n")):
        wire = json.loads(part.removeprefix("data: "))
        said[wire["index"]] += wire["content"]
    assert said == texts


def test_a_prompt_that_is_only_read(server: Server) -> None:
    """As llama.vim warms the cache."""
    prompt = f"{LONG} And so she went on and on."
    made = server.post("/completion", prompt=prompt, n_predict=0)
    assert (made["content"], made["tokens_predicted"], made["stop"]) == ("", 0, True)
    again = server.post("/completion", prompt=prompt, n_predict=1)
    assert again["timings"]["prompt_n"] <= 1
    empty = server.post(TEXTS, prompt=prompt, max_tokens=0)
    assert (empty["choices"][0]["text"], empty["usage"]["completion_tokens"]) == ("", 0)


def test_each_token_of_a_prompt_has_its_log_probability(server: Server, tokens: list[int]) -> None:
    """It is that which the model gives the token behind those before it, also where answers are drafted."""
    asked = {"prompt": tokens, "echo": True, "logprobs": 2, "max_tokens": 1}
    made = server.post(TEXTS, **asked)["choices"][0]
    scores = made["logprobs"]
    assert len(scores["tokens"]) == len(scores["token_logprobs"]) == len(tokens) + 1
    assert (scores["token_logprobs"][0], scores["top_logprobs"][0]) == (None, None)
    assert made["text"].startswith(LONG[:10])
    assert "".join(scores["tokens"]) == made["text"]
    for i in (3, len(tokens) // 2, len(tokens) - 1):
        step = server.post(TEXTS, prompt=tokens[:i], max_tokens=1, logprobs=100)["choices"][0]["logprobs"]
        likely = step["top_logprobs"][0]
        assert scores["top_logprobs"][i] == pytest.approx(dict(list(likely.items())[:2]), abs=0.05)
        if scores["tokens"][i] in likely:
            assert scores["token_logprobs"][i] == pytest.approx(likely[scores["tokens"][i]], abs=0.05)
    plain = server.post(TEXTS, **asked, speculation={"method": "plain"})["choices"][0]["logprobs"]
    assert plain["token_logprobs"][1:] == pytest.approx(scores["token_logprobs"][1:], abs=0.05)
    _, raw, _ = server.ask("POST", TEXTS, {**asked, "stream": True})
    parts = [part.removeprefix("data: ") for part in raw.decode().split("\n\n") if part]
    wires = [wire for part in parts[:-1] for wire in json.loads(part)["choices"]]
    assert "".join(wire["text"] for wire in wires) == made["text"]


def test_the_log_probability_of_an_end_is_that_of_each_choice(server: Server) -> None:
    """As an evaluation takes it: the sum over the tokens of the end, which has more for what the model would write."""
    context = server.post("/tokenize", content=LONG, add_special=True)["tokens"]
    likely = server.post(TEXTS, prompt=context, max_tokens=4)["choices"][0]["text"]
    sums = []
    for end in (likely, " xylophone xylophone"):
        prompt = [*context, *server.post("/tokenize", content=end)["tokens"]]
        made = server.post(TEXTS, prompt=prompt, echo=True, logprobs=1, max_tokens=1)["choices"][0]["logprobs"]
        sums.append(sum(made["token_logprobs"][len(context) : -1]))
    assert sums[0] > sums[1]


def test_an_echo_without_log_probabilities(server: Server) -> None:
    made = server.post(TEXTS, prompt=LONG, echo=True, max_tokens=2)["choices"][0]
    assert made["text"].lstrip().startswith(LONG)
    assert made["logprobs"] is None
