"""A predicted answer is copied from as if it had been said before, whatever method reads the text."""

import pytest

from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.methods._lookup import LookupDrafter
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.trees.static import Chain
from tests.methods.lookups import drafted

END = 99
PREDICTION = [*range(100, 140)]
PROMPT = [*range(1000, 1020)]


def fresh(name: str, prediction: list[int]) -> LookupDrafter:
    parts = DrafterContext(
        None,
        Sampler(Sampling()),
        Chain(),
        lambda: False,
        4096,
        is_eog=lambda token: token == END,
        prediction=(*prediction, END) if prediction else (),
    )
    drafter = registered("method")[name].build(parts)
    assert isinstance(drafter, LookupDrafter)
    return drafter


@pytest.mark.parametrize("name", ["copy", "suffix", "prompt-lookup"])
def test_what_was_predicted_is_drafted(name: str) -> None:
    """The prompt holds none of it; ten tokens into the answer the next ones are drafted."""
    text = [*PROMPT, *PREDICTION[:10]]
    found = drafted(fresh(name, PREDICTION), text, 4)
    assert found == PREDICTION[10 : 10 + len(found)]
    assert found
    assert drafted(fresh(name, []), text, 4) == []


@pytest.mark.parametrize("name", ["copy", "suffix", "prompt-lookup"])
def test_a_text_that_goes_on_is_read_once(name: str) -> None:
    """Token by token the drafts are those of a drafter that is new to the text."""
    drafter = fresh(name, PREDICTION)
    for n in range(1, 20):
        text = [*PROMPT, *PREDICTION[:n]]
        assert drafted(drafter, text, 3) == drafted(fresh(name, PREDICTION), text, 3)


def test_the_answer_begins_where_the_prediction_begins() -> None:
    """Its first token stands in the prompt too, where something else follows."""
    prompt = [*PROMPT, PREDICTION[0], 7, 8, 9]
    assert drafted(fresh("copy", PREDICTION), [*prompt, PREDICTION[0]], 3) == PREDICTION[1:4]


def test_after_an_edit_the_rest_of_the_prediction_is_copied() -> None:
    text = [*PROMPT, *PREDICTION[:20], 500, *PREDICTION[21:23]]
    assert drafted(fresh("copy", PREDICTION), text, 4) == PREDICTION[23:27]


def test_where_the_prediction_ends_the_end_is_drafted_and_nothing_of_the_prompt() -> None:
    assert drafted(fresh("copy", PREDICTION), [*PROMPT, *PREDICTION[:38]], 8) == [*PREDICTION[38:], END]


@pytest.mark.parametrize("name", ["copy", "suffix", "prompt-lookup"])
def test_another_text_is_met_with_the_same_prediction(name: str) -> None:
    """A second answer, of another prompt, is drafted as if it were the first."""
    drafter = fresh(name, PREDICTION)
    drafted(drafter, [*PROMPT, *PREDICTION[:30]])
    other = [*range(2000, 2010), *PREDICTION[:12]]
    assert drafted(drafter, other, 4) == drafted(fresh(name, PREDICTION), other, 4)
