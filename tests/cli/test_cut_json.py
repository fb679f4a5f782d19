"""Answers of JSON that are cut, or have no character, say so."""

from __future__ import annotations

import json

import pytest

from localspec.chat.answer_writer import empty_form, unfinished_form
from localspec.engine.events import Finished
from localspec.settings.request import Request
from localspec.ui.stats import Stats
from tests.cli.harness import needs_pair, run_engine

ONE = {"properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
SCHEMA = json.dumps({"type": "object", **ONE})


@needs_pair
@pytest.mark.parametrize("more", [(), ("--json",), ("--stop", "name")])
def test_an_answer_that_is_cut_inside_an_object_says_so(more: tuple[str, ...]) -> None:
    """It is shown as far as it came, and names what has no end."""
    length = () if "--stop" in more else ("-n", "4")
    done = run_engine(
        "run", "storyteller", "--schema", "name, tags[]", "--schema-compact", *more, "--temp", "0", *length, "Once"
    )
    assert done.returncode == 12
    assert done.stdout.lstrip().startswith(b"{")
    assert b"cut before its form was complete" in done.stderr
    if "--stop" in more:
        assert b"a stop text ended it" in done.stderr
        return
    assert b"a greater -n lets it end" in done.stderr
    assert b"/properties/name (maxLength), /properties/tags (maxItems)" in done.stderr
    if "--json" in more:
        found = json.loads(done.stdout)
        assert found["finish_reason"] == "length"
        assert found["text"].startswith('{"na')


@needs_pair
def test_a_whole_answer_that_fills_its_length_is_whole() -> None:
    """What counts is the text, not what ended it."""
    done = run_engine("run", "storyteller", "--choices", "a,b", "-n", "1", "Once")
    assert (done.returncode, done.stdout.strip() in (b"a", b"b")) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("reason", "told"),
    [("interrupted", "was stopped before"), ("timeout", "was stopped before"), ("context", "a greater --ctx lets")],
)
def test_what_ended_an_unfinished_answer_decides_what_is_told(reason: str, told: str) -> None:
    """A greater length does not help where a person stopped it."""
    said = unfinished_form(Stats(finished=Finished(reason, "", 1.0, 1.0, 0, is_whole=False)))
    assert told in said
    assert "-n" not in said


@pytest.mark.parametrize(("reason", "is_told"), [("stop", True), ("interrupted", False), ("timeout", False)])
def test_an_answer_that_was_stopped_before_its_first_token_says_nothing_of_its_form(reason: str, is_told: bool) -> None:
    stats = Stats()
    stats.observe(Finished(reason, "", 1.0, 1.0, 0))
    assert bool(empty_form(stats, Request(choices=("yes", "no")))) is is_told


def test_an_empty_answer_that_its_form_allows_is_told() -> None:
    done = run_engine("run", "-m", "storyteller", "-n", "4", "--grammar", "root ::= ", "hi")
    assert done.returncode == 0
    assert b"warning: the answer has no text, which --grammar allows" in done.stderr
