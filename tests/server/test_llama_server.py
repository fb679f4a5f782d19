"""llama-server's own paths, and the figures for Prometheus."""

import re
from collections.abc import Iterator

import pytest

from localspec.server import llama_server as api
from localspec.server.engine import Totals
from tests.cli.harness import needs_pair, wait_for
from tests.server.serving import Server, serving
from tests.server.test_fields import SERVED
from tests.server.test_openai_replies import EVENTS, told


def test_a_gap_with_text_of_other_files() -> None:
    """As llama.vim sends it: what is not kept is named."""
    body = {
        "input_prefix": "def f():\n", "input_suffix": "\n", "prompt": "    ret", "n_predict": 128,
        "input_extra": [{"text": "x = 1\n", "filename": "a.py", "time": 5}], "top_k": 40, "top_p": 0.9, "stream": False,
        "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
        "t_max_predict_ms": 1000, "n_indent": 4, "response_fields": ["content", "timings/prompt_n", "truncated", "x"],
    }  # fmt: skip
    asked = api.infill(body, SERVED)
    assert [note.partition(":")[0] for note in asked.notes] == ["samplers", "t_max_predict_ms", "n_indent"]
    assert asked.reply.whole(told(EVENTS)) == {"content": "Once upon a time", "prompt_n": 10, "truncated": False}
    request = asked.request
    assert (request.sampling.top_k, request.sampling.top_p) == (40, 0.9)
    assert (request.sampling.min_p, request.sampling.temperature) == (0.0, 1.0)  # not among the samplers
    assert request.prompt == f"{api.SNIPPET}x = 1\n{api.SNIPPET}def f():\n    ret"
    assert request.suffix == "\n"


def test_totals_add_up() -> None:
    totals = Totals()
    assert totals.rates() == {"tok_per_s": None, "seconds": None, "first_token_s": None}
    for seconds in (1.0, 2.0, 6.0):
        totals.add(told(EVENTS), seconds)
    totals.add(told([]), 5.0)  # a request that failed
    totals.busy_seconds = 6.0
    assert totals.rates()["seconds"] == 3.0, "of the answers alone"
    assert totals.rates()["tok_per_s"] == totals.predicted_tokens / 6.0
    values = dict(re.findall(r"^(localspec_\w+) (\S+)$", totals.text(waiting=2, answering=1), flags=re.MULTILINE))
    assert values["localspec_answers_total"] == "3"
    assert values["localspec_failures_total"] == "1"
    assert values["localspec_prompt_tokens_total"] == "48"
    assert values["localspec_cached_tokens_total"] == "18"
    assert values["localspec_drafted_tokens_total"] == "12"
    assert values["localspec_accepted_tokens_total"] == "6"
    assert values["localspec_requests_waiting"] == "2"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--temp", "0", "--parallel", "2") as server:
        yield server


@needs_pair
def test_paths_of_a_real_server(server: Server) -> None:
    made = server.post("/completion", prompt="Once upon a time", n_predict=8)
    assert (made["tokens_predicted"], made["stop_type"]) == (8, "limit")
    status, told_, _ = server.ask("POST", "/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert status == 400
    assert "filling in the middle" in told_["error"]["message"]
    assert made["stopping_word"] == ""
    word = made["content"].split()[1]
    stopped = server.post("/completion", prompt="Once upon a time", n_predict=8, stop=["nowhere", word])
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)
    assert stopped["content"] == made["content"].partition(word)[0]
    _, props, _ = server.ask("GET", "/props")
    assert (props["default_generation_settings"]["n_ctx"], props["total_slots"]) == (1024, 2)
    wait_for(lambda: server.queue() == (False, 0))
    raw = server.read("/metrics").decode()
    assert "\nlocalspec_answers_total 2\n" in raw
    assert "# TYPE localspec_answers_total counter" in raw
