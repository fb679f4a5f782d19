"""Jobs of another localspec, as /v1/events reads them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import Finished, Loaded, Prefilled, Started, Warned
from localspec.server import own
from localspec.server.fields import ClientRequest, Searched
from localspec.server.refusal import Refusal
from localspec.settings.jobs import ForkQuestion, Generate
from localspec.settings.request import LoadSettings, Message, Request, Speculation
from localspec.ui.stats import Stats
from localspec.worker.codec import job_line
from tests.cli.fakes import committed, facts
from tests.server.test_fields import SERVED

assert SERVED.target is not None
LAST = SERVED.target.n_vocab - 1


def question(plain: tuple[int, ...], other: tuple[int, ...]) -> dict[str, Any]:
    return {"job": json.loads(job_line(ForkQuestion(Request(prompt="x"), plain, other, seed=1)))}


def test_a_question_about_two_answers_is_asked() -> None:
    """Each token of the model's vocabulary may be in them."""
    asked = own.events(question((0, LAST), (0, 1)), SERVED)
    assert isinstance(asked, Searched)
    assert isinstance(asked.question, ForkQuestion)
    assert (asked.question.plain, asked.question.other) == ((0, LAST), (0, 1))


@pytest.mark.parametrize("body", [{}, {"job": None}, {"job": {}}, question((LAST + 1,), (0,)), question((0,), (-1,))])
def test_what_is_no_job_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        own.events(body, SERVED)
    assert (refused.value.status, refused.value.param, refused.value.message[:5]) == (400, "job", "job: ")


def test_a_pair_that_was_never_loaded_has_no_tokens_to_ask_about() -> None:
    with pytest.raises(Refusal, match="a token is none of this model's"):
        own.events(question((0,), (1,)), replace(SERVED, loaded=None))


def test_a_pair_tells_its_load_once_there_was_one() -> None:
    assert SERVED.target is not None
    loaded = Loaded("storyteller", SERVED.target, None, 64, 1, 1.0, {})
    assert own.pair(replace(SERVED, loaded=None))["loaded"] is None
    told = own.pair(replace(SERVED, loaded=loaded))["loaded"]
    assert (told["type"], told["seq"]) == ("loaded", 0)


def test_what_is_said_of_a_job_is_short() -> None:
    with pytest.raises(Refusal) as refused:
        own.events({"job": {"command": "x" * 300}}, SERVED)
    assert refused.value.message == "job: there is no job '" + "x" * 183


def nested(levels: int) -> Any:
    return {"x": nested(levels - 1)} if levels else 1


@pytest.mark.parametrize(
    ("request_", "is_taken"),
    [
        pytest.param(Request(prompt="x", speculation=Speculation(corpus=("/etc",))), False, id="a corpus"),
        pytest.param(
            Request(prompt="x", speculation=Speculation("plain", options=(("file", "/x"),))), False, id="a file"
        ),
        pytest.param(Request(prompt="x", tools="[]"), False, id="tools"),
        pytest.param(Request(prompt="x", reads_ahead=True), False, id="reading ahead"),
        pytest.param(Request(messages=(Message("user", "x"),) * 10_001), False, id="too many messages"),
        pytest.param(Request(messages=(Message("user", "x"),) * 10_000), True, id="many messages"),
        pytest.param(Request(prompt="x", stop=("x" * 8193,)), False, id="too many stops"),
        pytest.param(Request(prompt="x", stop=("x",) * 100), True, id="many stops"),
        pytest.param(Request(prompt="x", template_args=(("messages", "x"),)), False, id="a variable of ours"),
        pytest.param(Request(prompt="x", template_args=(("x", nested(20)),)), False, id="a deep variable"),
        pytest.param(Request(prompt="x", template_args=(("x", nested(19)),)), True, id="a variable"),
        pytest.param(Request(prompt="x", schema="x" * (1 << 24)), False, id="a long form"),
        pytest.param(Request(prompt="x", speculation=Speculation(method="none such")), False, id="no method"),
        pytest.param(Request(prompt="x", grammar='root ::= "a'), False, id="no grammar"),
    ],
)
def test_a_request_of_another_machine_harms_nobody(request_: Request, is_taken: bool) -> None:
    body = {"job": json.loads(job_line(Generate(request_)))}
    if is_taken:
        assert isinstance(own.events(body, SERVED), ClientRequest)
        return
    with pytest.raises(Refusal) as refused:
        own.events(body, SERVED)
    assert (refused.value.status, refused.value.param) == (400, "job")


def test_nothing_of_a_request_of_another_machine_is_kept_or_taken_for_tokens() -> None:
    asked = Request(messages=(Message("user", "x", ids=(1, 2)),), keeps=True)
    found = own.events({"model": "storyteller", "job": json.loads(job_line(Generate(asked)))}, SERVED)
    assert isinstance(found, ClientRequest)
    assert found.is_streamed
    assert found.request == Request(messages=(Message("user", "x"),))
    with pytest.raises(Refusal) as refused:
        own.events({"model": "other", "job": {}}, SERVED)
    assert refused.value.status == 404
    more = own.events({"job": json.loads(job_line(Generate(asked))), "more": 1}, SERVED)
    assert isinstance(more, ClientRequest)
    assert more.notes == ["more: this server knows no such field, and passed it over"]


def test_no_event_tells_where_a_file_is() -> None:
    pair = LoadSettings("/m/t.gguf", "/m/d.gguf", name="tiny")
    made = own.Events(pair)
    (warned,) = made.pieces(Warned("state", "/m/t.gguf and /m/d.gguf are old"))
    assert warned == {"seq": 0, "type": "warned", "code": "state", "message": "tiny and d.gguf are old"}
    for draft in (None, facts("/m/d.gguf")):
        (loaded,) = made.pieces(Loaded("tiny", facts("/m/t.gguf"), draft, 64, 1, 1.0, {}))
        assert loaded["target"]["path"] == "t.gguf"
        assert (loaded["draft"] and loaded["draft"]["path"]) == (draft and "d.gguf")
    (other,) = made.pieces(Prefilled(9, 1, 2.0))
    assert (other["seq"], other["type"], other["prompt_n"]) == (0, "prefilled", 9)
    assert made.closing() == []
    failed = made.failure(Refusal(429, "full", code="queue_full"))
    assert (failed["type"], failed["status"], failed["error"]["code"]) == ("refused", 429, "queue_full")
    assert made.frame({"a": "\u00fc"}) == b'{"a":"\\u00fc"}\n'
    assert own.pair(replace(SERVED, settings=pair))["has_draft"]
    assert not own.pair(SERVED)["has_draft"]


def test_the_page_has_the_running_answer_and_the_last_five() -> None:
    """The latest first, each with the end of its text; one that never began is none."""
    board = own.Board()
    assert board.summary() == {"running": None, "last": []}
    for number in range(7):
        stats = Stats()
        board.begin(stats)
        passes = [committed(i, f"{number}-{i} ", k=i % 2) for i in range(500 if number == 6 else 1)]
        for event in (Started("plain", "chain", "fixed", 0, "match", 7, True, 16), *passes):
            stats.observe(event)
            board.observe(stats, event)
        running = board.summary()["running"]
        assert (running["method"], running["reason"], running["speedup"]) == ("plain", "", None)
        stats.observe(Finished("stop", "end", 100.0, 20.0, 0))
        board.observe(stats, Finished("stop", "end", 100.0, 20.0, 0))
        board.end(stats)
    unbegun = Stats()
    board.begin(unbegun)
    board.end(unbegun)
    told = board.summary()
    assert (told["running"], len(told["last"])) == (None, 5)
    assert [each["spans"][-1]["text"][-3:] for each in told["last"]] == ["end"] * 5
    assert [each["spans"][0]["text"][:2] for each in told["last"][1:]] == ["5-", "4-", "3-", "2-"]
    latest = told["last"][0]
    assert (latest["reason"], latest["emitted"], len(latest["spans"])) == ("stop", stats.emitted, 400)
    assert latest["speedup"] == stats.speedup
