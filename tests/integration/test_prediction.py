"""A predicted answer on real models: fewer passes where it is right, the same text whatever it says."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from localspec.engine import events
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.integration import pair

ASKED = Request(prompt="Once upon a time there was a king", max_tokens=80, sampling=Sampling(temperature=0.0))


@pytest.fixture(scope="module")
def session() -> Iterator[LoadedPair]:
    found, _ = pair.load_pair(LoadSettings(str(pair.TARGET), kv_type="f32", flash_attn="off", threads=1))
    yield found
    found.close()


def answered(session: LoadedPair, method: str, prediction: str | None = None) -> tuple[str, int, list[str]]:
    asked = replace(ASKED, speculation=Speculation(method=method), prediction=prediction, cold=True)
    told = list(session.answer(asked))
    passes = [event for event in told if isinstance(event, events.Committed)]
    finished = next(event for event in told if isinstance(event, events.Finished))
    warnings = [event.message for event in told if isinstance(event, events.Warned)]
    return "".join(one.text for one in passes) + finished.tail, len(passes), warnings


@pytest.mark.parametrize("method", ["copy", "suffix", "auto"])
def test_a_right_prediction_saves_passes_and_a_wrong_one_changes_nothing(session: LoadedPair, method: str) -> None:
    text, n_plain, _ = answered(session, "plain")
    found, n_passes, warnings = answered(session, method, text)
    assert (found, warnings) == (text, [])
    if method != "auto":  # which drafts by what a pass costs on this machine
        assert n_passes < n_plain / 2
    assert answered(session, method, "A dragon slept on gold. " * 9)[0] == text
    assert answered(session, method)[0] == text, "the next answer knows nothing of the prediction"


def test_a_prediction_that_nothing_copies_from_is_told(session: LoadedPair) -> None:
    text, _, warnings = answered(session, "plain", "Once")
    assert warnings == ["the prediction has no effect: --method plain does not copy from a text"]
    assert text == answered(session, "plain")[0]
