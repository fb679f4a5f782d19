"""Jobs of another localspec, as /v1/events reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import Loaded
from localspec.server import own
from localspec.server.fields import Searched
from localspec.server.refusal import Refusal
from localspec.settings.jobs import ForkQuestion
from localspec.settings.request import Request
from localspec.worker.codec import job_line
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
    assert own.pair(replace(SERVED, loaded=loaded))["loaded"]["type"] == "loaded"
