"""Answers of JSON that are cut, or have no character, say so."""

import pytest

from localspec.chat.answer_writer import empty_form, unfinished_form
from localspec.engine.events import Finished
from localspec.settings.request import Request
from localspec.ui.stats import Stats


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
