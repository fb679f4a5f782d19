"""The engine's work before the first token, in words."""

from localspec.engine.events import Loading, Prefilled, Probed, Reading, Started, Waiting
from localspec.ui.doing import Doing

STARTED = Started("plain", "chain", "fixed", 0, "block", 7, False, 1240)


def test_a_model_that_is_read_is_not_ready_yet() -> None:
    doing = Doing()
    said = []
    for fraction in (0.0, 0.5, 1.0):
        doing.observe(0.0, Loading("target", fraction))
        said.append(doing.words)
    assert said == ["loading the model 0%", "loading the model 50%", "warming up the model"]
    doing.observe(0.0, Loading("first measurement", 0.0))
    assert doing.words == "timing this machine…"


def test_a_place_in_the_queue_is_told() -> None:
    doing, said = Doing(), []
    for before in (2, 1):
        assert doing.observe(0.0, Waiting(before))
        said.append(doing.words)
    assert said == ["waiting for 2 answers", "waiting for the answer before this one"]


def test_a_prompt_is_told_with_its_rate() -> None:
    doing = Doing()
    doing.observe(0.0, STARTED)
    assert doing.words == "reading 1 240 tokens"
    doing.observe(1.0, Reading(10))
    assert doing.words == "reading 10 of 1 240 tokens"
    doing.observe(4.0, Reading(310))
    assert doing.words == "reading 310 of 1 240 tokens, 100 tok/s"
    doing.observe(5.0, Prefilled(1240, 0, 1.0))
    assert doing.words == "answering"


def test_the_rate_begins_anew_with_each_prompt() -> None:
    doing = Doing()
    for at, event in [(0.0, STARTED), (1.0, Reading(10)), (2.0, Prefilled(1240, 0, 1.0)), (50.0, STARTED)]:
        doing.observe(at, event)
    doing.observe(51.0, Reading(600))
    assert doing.words == "reading 600 of 1 240 tokens"


def test_what_is_read_before_an_answer_begins_is_no_prompt() -> None:
    """The first measurement of a pair reads tokens too."""
    doing = Doing()
    doing.observe(0.0, Loading("first measurement", 0.0))
    assert not doing.observe(1.0, Probed(1.0, 1))
    doing.observe(1.0, Reading(16))
    assert doing.words == "timing this machine…"
