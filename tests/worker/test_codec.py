"""What crosses a process: every event and job arrives as it was sent, and anything else is one clear line."""

import json
import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from localspec.engine.events import Event, Inspected, Warned
from localspec.settings.jobs import (
    DistributionQuestion,
    ForkQuestion,
    Generate,
    Load,
    PairJob,
    RankQuestion,
    SurveyRequest,
    TextQuestion,
    VerifyRound,
)
from localspec.settings.lone_jobs import (
    BuildFacts,
    CopyOptions,
    LendDevices,
    LoneJob,
    MachineFacts,
    MeasureBandwidths,
    TrainOptions,
)
from localspec.settings.request import LoadSettings, Message, Request, Sampling
from localspec.worker import main
from localspec.worker.codec import CodecError, event_line, event_of, job_line, job_of
from tests.engine.test_events import COMMITTED, EVENTS
from tests.recorded import recorded_expressions
from tests.worker.wire import crossed

REQUEST = Request(
    messages=(Message("user", "Once"),), sampling=Sampling(logit_bias=((7, -math.inf),)), template_args=(("a", (1, 2)),)
)
JOBS = [
    Load(LoadSettings("/m/\udcff.gguf", "d", lora=(("a.gguf", 0.5),), expected=("t", "mark"))),
    Generate(REQUEST),
    ForkQuestion(REQUEST, (1, 2), (1, 3), 2**64 - 1),
    DistributionQuestion(REQUEST, ((1,), ()), 100, 1e-12, 7),
    TextQuestion(REQUEST, "tokens", "Once", (1, 2), parses_special=False),
    RankQuestion(REQUEST, "items.txt", 5, is_whole=True),
    VerifyRound("name", b"\x00\xff", (b"", b"a"), b"\x80"),
    SurveyRequest(2.5, (1, 4), is_kept=True),
    BuildFacts(),
    MachineFacts(("gpu-box:50052",)),
    MeasureBandwidths(),
    LendDevices("127.0.0.1:50052", ("CUDA0",), 4),
    CopyOptions("t", "f", "mixed", "Q2_K", (3, 4), raw=("Once\n",), tokens=512),
    TrainOptions("t", "", "f", raw=("Once\n",), minutes=0.5),
]


def test_no_kind_is_left_out() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    assert {type(job) for job in JOBS} == set(get_args(PairJob | LoneJob))


def test_a_pass_is_one_line_whatever_its_text_and_numbers() -> None:
    pass_ = replace(COMMITTED, text='ü\n"\u2028', why="\x7f", expected_ms=np.float64(0.1))
    line = event_line(pass_, 7)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert "ü".encode() in line, "it is written by the quick one"
    assert json.loads(line)["seq"] == 7
    assert event_of(json.loads(line)) == pass_


@pytest.mark.parametrize("kind", [*get_args(Event), *get_args(PairJob | LoneJob)])
def test_no_field_has_the_name_of_what_surrounds_it(kind: type[Any]) -> None:
    assert not {"seq", "type", "command"} & {*kind.__match_args__}


@pytest.mark.parametrize("value", [*EVENTS, *JOBS], ids=lambda value: type(value).__name__)
def test_it_arrives_as_it_was_sent(value: Any) -> None:
    """Infinities, 64-bit seeds, tuples and the names of files that are no UTF-8 included."""
    assert crossed(value) == value
    assert hash(crossed(value)) == hash(value) if type(value) in (Generate, ForkQuestion) else True


def test_numbers_of_numpy_are_numbers() -> None:
    assert crossed(Inspected({"ms": np.float64(1.5)})) == Inspected({"ms": 1.5})
    with pytest.raises(TypeError, match="ndarray is nothing that crosses a process"):
        event_line(Inspected({"rows": np.zeros(2)}), 1)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_newer_writer_may_say_more_and_an_older_one_less(event: Event) -> None:
    assert event_of({**json.loads(event_line(event, 1)), "news": [1]}) == event
    assert event_of({"seq": 1, "type": "sung"}) is None
    wire = json.loads(event_line(COMMITTED, 1))
    del wire["drafted"]
    told = event_of(wire)
    assert told is not None
    assert not told.drafted


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"command": "sing"}, "there is no job 'sing'"),
        ({"command": None}, "there is no job 'None'"),
        ({"command": "buildfacts"}, "there is no job 'buildfacts'"),  # it has a process of its own
        ({"request": {"max_tokens": "many"}}, r"generate: .*max_tokens"),
        ({"request": 5}, r"generate: Expected `object`, got `int` - at `\$\.request`"),
    ],
)
def test_a_job_of_another_form_names_the_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CodecError, match=said):
        job_of({**json.loads(job_line(Generate(Request(prompt="Once")))), **change}, main.JOBS)


def test_the_wire_stays_readable() -> None:
    assert event_line(Warned("pair", "ü"), 4) == b'{"seq":4,"type":"warned","code":"pair","message":"\\u00fc"}\n'
    assert json.loads(job_line(MachineFacts(("a:1",)))) == {"seq": 0, "command": "machinefacts", "servers": ["a:1"]}


test_what_is_recorded = recorded_expressions(__file__, event_of)
