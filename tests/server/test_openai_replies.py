"""Events become OpenAI's chunks and objects."""

from __future__ import annotations

import json
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
from localspec.server.responses import Responses
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


def stream(reply: OpenAI, events: Sequence[Event]) -> list[dict[str, Any]]:
    wires = [
        *reply.opening(),
        *(wire for event in events for wire in reply.pieces(event)),
        *reply.closing(told(events)),
    ]
    lines = b"".join(map(reply.frame, wires)).decode().split("\n\n")
    assert lines.pop() == ""
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_stream_is_the_whole() -> None:
    """The pieces of a stream join to the text of the whole, and its end has the whole's figures."""
    reply = OpenAI("storyteller", is_chat=True, has_usage=True)
    *chunks, last = stream(reply, EVENTS)
    whole = reply.whole(told(EVENTS))
    message = whole["choices"][0]["message"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"] == "Once upon a time"
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"] == "Hmm"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, "stop"]
    assert last["choices"] == []
    for name in ("usage", "timings", "speculation", "id", "model", "created"):
        assert last[name] == whole[name]


def test_usage_counts_tokens_and_timings_have_llama_servers_names() -> None:
    whole = OpenAI("m", is_chat=True, has_usage=False).whole(told(EVENTS))
    assert whole["usage"] == {
        "prompt_tokens": 16,
        "completion_tokens": 4,
        "total_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 6},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    timings = whole["timings"]
    assert (timings["cache_n"], timings["prompt_n"], timings["prompt_per_token_ms"]) == (6, 10, 1.0)
    assert (timings["draft_n"], timings["draft_n_accepted"], timings["draft_rounds"]) == (4, 2, 1)
    assert whole["speculation"]["method"] == "draft-model"


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


def test_nothing_drafted_is_told_by_absence() -> None:
    plain = [STARTED, Prefilled(16, 0, 10.0), committed(0, "Once", k=0), Finished("length", "", 100.0, 20.0, 0)]
    whole = OpenAI("m", is_chat=True, has_usage=False).whole(told(plain))
    assert "draft_n" not in whole["timings"]
    assert whole["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("reason", ["length", "context"])
def test_a_limit_is_a_length(reason: str) -> None:
    events = [*EVENTS[:-1], Finished(reason, "", 100.0, 20.0, 0)]
    (last,) = OpenAI("m", is_chat=True, has_usage=False).closing(told(events))
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["timings"]["predicted_n"] == 4


def test_a_completion_has_text() -> None:
    reply = OpenAI("m", is_chat=False, has_usage=False)
    events = [event if i != 2 else committed(0, "Well: ", k=0) for i, event in enumerate(EVENTS)]
    chunks = stream(reply, events)
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == reply.whole(told(events))["choices"][0]["text"] == "Well: Once upon a time"
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


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


def test_log_probabilities_of_a_chat() -> None:
    """Those of a stream join to those of the whole; tokens without text have none; impossible is OpenAI's -9999."""
    reply = OpenAI("m", is_chat=True, has_usage=False)
    (choice,) = reply.whole(told(JUDGED))["choices"]
    found = choice["logprobs"]["content"]
    assert [(each["token"], each["logprob"]) for each in found] == [("Once", -0.5), (" upon", -9999.0)]
    assert [each["logprob"] for each in found[0]["top_logprobs"]] == [-0.5, -1.5]
    assert bytes(found[1]["bytes"]) == b" upon"
    chunks = [chunk["choices"][0]["logprobs"] for chunk in stream(reply, JUDGED)]
    assert [each for chunk in chunks if chunk for each in chunk["content"]] == found
    assert OpenAI("m", is_chat=True, has_usage=False).whole(told(EVENTS))["choices"][0]["logprobs"] is None


def test_log_probabilities_of_a_completion() -> None:
    """In lists, with the place of each token in the text."""
    reply = OpenAI("m", is_chat=False, has_usage=False)
    found = reply.whole(told(JUDGED))["choices"][0]["logprobs"]
    assert found["tokens"] == ["Once", " upon"]
    assert found["token_logprobs"] == [-0.5, -9999.0]
    assert found["text_offset"] == [0, 4]
    assert found["top_logprobs"] == [{"Once": -0.5, "": -1.5}, {}]


def test_several_answers_have_their_figures_and_their_places() -> None:
    """The prompt is one; a place is one in the answer's own text."""
    whole = OpenAI("m", is_chat=False, has_usage=False, n=2).whole(told(JUDGED), told(JUDGED))
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert [choice["logprobs"]["text_offset"] for choice in whole["choices"]] == [[0, 4]] * 2
    assert all({"timings", "speculation"} <= choice.keys() for choice in whole["choices"])
    assert not {"timings", "speculation"} & whole.keys()
    tokens = told(JUDGED).emitted
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (16, 2 * tokens)


def test_parts_of_a_character_have_names_of_their_own() -> None:
    """As OpenAI and llama-server spell them in a completion; a place counts whole characters before the token."""
    parts = (b"a", b"\xe9\x80", b"\x82", b"\xe9", b"b")
    likely = tuple(Logprob(i, tuple(raw), -1.0) for i, raw in enumerate(parts))
    event = replace(committed(0, "", k=0), logprobs=(replace(likely[0], top=likely), *likely[1:]))
    found = OpenAI("m", is_chat=False, has_usage=False).whole(told([STARTED, event, Finished("stop", "", 1.0, 1.0, 1)]))
    lists = found["choices"][0]["logprobs"]
    spelled = ["a", r"bytes:\xe9\x80", r"bytes:\x82", r"bytes:\xe9", "b"]
    assert lists["tokens"] == spelled
    assert list(lists["top_logprobs"][0]) == spelled
    assert lists["text_offset"] == [0, 1, 1, 2, 2]


def test_tokens_of_a_thought_are_counted_apart() -> None:
    """A pass may hold the end of the thought and the beginning of the answer; one that never ends is all thought."""
    thought = replace(committed(0, "Hmm", k=0), text="", reasoning="Hmm")
    both = replace(committed(1, "so Once", k=1), text=" Once", reasoning="so")
    events = [STARTED, Prefilled(16, 6, 10.0), thought, both, committed(2, " upon", k=0)]
    n = sum(len(event.out) for event in (thought, both)) - 1
    stats = told([*events, Finished("stop", "", 1.0, 1.0, 0)])
    whole = OpenAI("m", is_chat=True, has_usage=False).whole(stats)
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": n}
    assert Responses("m", {}, {}).whole(stats)["usage"]["output_tokens_details"] == {"reasoning_tokens": n}
    endless = told([*events[:3], Finished("length", "", 1.0, 1.0, 0, reasoning="m")])
    assert endless.reasoning_tokens == endless.emitted


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
