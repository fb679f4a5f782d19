"""Events become OpenAI's chunks and objects."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import Event, Finished, Logprob, Prefilled, Reading, Started, Warned
from localspec.methods._lookup import LookupDrafter
from localspec.server import reply
from localspec.server.llama_server import LlamaServer
from localspec.server.openai import COPYING, OpenAI, predicted, usage
from localspec.server.refusal import Refusal
from localspec.settings.request import Request
from localspec.speculation import registered
from localspec.ui.stats import Stats
from tests.cli.fakes import committed

STARTED = Started("draft-model", "chain", "fixed", 4, "block", 7, False, 16)
EVENTS: list[Event] = [
    STARTED,
    Prefilled(16, 6, 10.0),
    replace(committed(0, "Hmm", k=0), text="", reasoning="Hmm"),
    committed(1, "Once upon a", k=4),
    Finished("stop", " time", 100.0, 20.0, 1 << 20),
]


def told(events: Sequence[Event]) -> Stats:
    stats = Stats()
    for event in events:
        stats.observe(event)
    return stats


@pytest.mark.parametrize(
    ("events", "timings"),
    [
        ([], {"cache_n": 0, "prompt_n": 0, "prompt_per_token_ms": None, "predicted_per_token_ms": None}),
        (EVENTS[:2], {"cache_n": 6, "prompt_n": 10, "prompt_per_token_ms": 1.0, "predicted_per_token_ms": None}),
        ([STARTED, Prefilled(16, 16, 10.0)], {"cache_n": 16, "prompt_n": 0, "prompt_per_token_ms": None}),
    ],
)
def test_what_did_not_come_has_no_time(events: list[Event], timings: dict[str, Any]) -> None:
    """An answer that was stopped early, and a prompt that was all there."""
    found = reply.timings(told(events))
    assert {name: found[name] for name in timings} == timings


def test_the_time_of_a_token_is_its_share() -> None:
    found = reply.timings(told(EVENTS))
    assert found["predicted_per_token_ms"] == found["predicted_ms"] / 4


def test_what_is_told_of_drafting() -> None:
    empty = reply.speculation(Stats())
    assert "method" not in empty
    assert (empty["passes"], empty["warnings"]) == (0, [])
    warned = told([STARTED, Warned("state", "/srv/models/x.gguf is old")])
    assert reply.speculation(warned, "hot")["warnings"] == ["x.gguf is old", "hot"]
    assert reply.speculation(warned)["verify"] == "block"


def test_a_token_without_a_chance_has_openais_number() -> None:
    likely = Logprob(5, (97,), None)
    assert reply.told_logprobs([likely, replace(likely, bytes=())]) == [
        {"id": 5, "token": "a", "bytes": [97], "logprob": -9999.0, "top_logprobs": []}
    ]


def test_what_became_of_a_prediction_is_told_of_the_methods_that_copy() -> None:
    one, other = Stats(), Stats()
    one.drafters.update({"copy": (5, 3), "draft-model": (9, 9)})
    other.drafters.update({"suffix": (2, 2)})
    assert predicted(one, other) == {"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 2}


def test_an_answer_that_never_began_used_nothing() -> None:
    assert usage(Stats()) == {
        "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip


def test_copying_methods_are_those_that_read_a_prediction() -> None:
    lookups = {name for name, method in registered("method").items() if issubclass(method, LookupDrafter)}
    assert lookups == set(COPYING)


def test_an_error_within_a_stream() -> None:
    reply = OpenAI("m", is_chat=True, has_usage=False)
    wire = reply.failure(Refusal(503, "The engine was killed", code="engine_died"))
    assert wire["error"] == {"message": "The engine was killed", "type": "server_error", "param": None,
                             "code": "engine_died"}  # fmt: skip


LIKELY = (
    Logprob(7, tuple(b"Once"), -0.5, (Logprob(7, tuple(b"Once"), -0.5), Logprob(2, (), -1.5))),
    Logprob(8, tuple(b" upon"), None, ()),
    Logprob(2, (), -0.1, ()),
)
JUDGED: list[Event] = [
    STARTED,
    Prefilled(16, 6, 10.0),
    replace(committed(0, "Once upon", k=0), logprobs=LIKELY[:2]),
    replace(committed(1, "", k=0), logprobs=LIKELY[2:]),
    Finished("stop", "", 100.0, 20.0, 1),
]


def test_several_answers_have_their_figures_and_their_places() -> None:
    """The prompt is one; a place is one in the answer's own text."""
    whole = OpenAI("m", is_chat=False, has_usage=False, n=2).whole(told(JUDGED), told(JUDGED))
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert [choice["logprobs"]["text_offset"] for choice in whole["choices"]] == [[0, 4]] * 2
    assert all({"timings", "speculation"} <= choice.keys() for choice in whole["choices"])
    assert not {"timings", "speculation"} & whole.keys()
    tokens = told(JUDGED).emitted
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (16, 2 * tokens)


def test_progress_of_a_prompt_where_it_is_asked_for() -> None:
    events = [STARTED, Reading(8), Prefilled(16, 6, 10.0)]
    replies = (
        OpenAI("m", is_chat=True, has_usage=False, has_progress=True),
        OpenAI("m", is_chat=False, has_usage=False, has_progress=True),
        LlamaServer("m", Request(prompt="x"), has_progress=True),
    )
    for each in replies:
        wires = [wire for event in events for wire in each.pieces(event)]
        facts = [(p["total"], p["cache"], p["processed"]) for p in (wire["prompt_progress"] for wire in wires)]
        assert facts == [(16, 0, 8), (16, 6, 16)]
    silent = OpenAI("m", is_chat=True, has_usage=False)
    assert [wire for event in events for wire in silent.pieces(event)] == []
