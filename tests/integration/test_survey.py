"""Surveys of real models: every width is timed, and nothing of it stays in a cache or in the text that follows."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend
from localspec.control import timing
from localspec.control.profile import Profile
from localspec.control.timing import SHALLOWEST, first_prices, prices_of
from localspec.engine import events
from localspec.engine.protocols import Cancelled
from localspec.models.store import bundled_head
from localspec.session.loaded_pair import LoadedPair
from localspec.session.survey import survey_pair
from localspec.settings.jobs import SurveyRequest
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.tuning import SIZES
from tests.integration import pair
from tests.integration.gguf_models import MAMBA, random_gguf

PROMPT = Request(prompt="Once upon a time", max_tokens=24, sampling=Sampling(temperature=0.0))
ALL = SurveyRequest(seconds=60.0, is_kept=True)  # more than enough beside other programs: it ends after its rounds


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Profiles of these tests are nobody else's, and two rounds are enough: nothing here is a measurement."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(timing, "ROUNDS", 2)
    return tmp_path


@pytest.fixture
def storyteller(home: Path) -> Iterator[LoadedPair]:
    session, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT)))
    yield session
    session.close()


def text(session: LoadedPair) -> str:
    return "".join(event.text for event in session.answer(PROMPT) if isinstance(event, events.Committed))


def test_a_first_measurement_leaves_both_caches_empty(target: LlamaBackend, draft: LlamaBackend) -> None:
    """And what was evaluated for it is nobody's answer."""
    for backend in (target, draft):
        backend.truncate(0)
    before = target.evaluated, draft.evaluated
    found = first_prices(target, draft, time.perf_counter, lambda: False, budget=0.2)
    assert found.plain > 0.0
    assert found.draft.value > 0.0
    assert (target.length, draft.length) == (0, 0)
    assert (target.evaluated, draft.evaluated) == before
    for backend in (target, draft):
        backend.check()


def test_a_measurement_in_the_midst_of_a_text_leaves_it(target: LlamaBackend, draft: LlamaBackend) -> None:
    """Another text would follow from a cache that kept the rows that were timed."""
    target.prefill(range(7, 27), lambda: False)
    draft.prefill(range(7, 20), lambda: False)
    fresh = target.extend([40], [-1]).logits(0).copy()
    target.keep(())
    first_prices(target, draft, time.perf_counter, lambda: False, budget=0.1)
    assert (target.length, draft.length) == (20, 13)
    for backend in (target, draft):
        backend.check()
    assert np.array_equal(target.extend([40], [-1]).logits(0), fresh)
    target.truncate(0)
    draft.truncate(0)


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_a_survey_of_a_head(kind: str, home: Path) -> None:
    """Without the target's states it is timed in an empty context alone; answers go on as before."""
    session, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(bundled_head("storyteller", kind)), threads=1))
    with closing(session):
        before = text(session)
        *_, told = session.survey(ALL)
        assert isinstance(told, events.Inspected)
        assert len(told.content["target"]["deep_ms"]) > 3
        assert (told.content["draft"]["deep_ms"], told.content["draft"]["why_not_deep"]) == (
            [], "a head reads the states of its target",
        )  # fmt: skip
        assert len(told.content["draft"]["ms"]) > 1
        assert text(session) == before


@pytest.mark.parametrize(
    ("method", "is_measured", "has_account"),
    [("plain", True, False), ("draft-model", True, False), ("auto", True, True)],
)
def test_every_method_is_measured_before_its_first_answer(
    storyteller: LoadedPair, home: Path, method: str, is_measured: bool, has_account: bool
) -> None:
    """A method that was named keeps no account, but a chat may change to `auto` later, and its text is read then."""
    asked = replace(PROMPT, max_tokens=4, speculation=Speculation(method=method))
    told = list(storyteller.answer(asked))
    assert (events.Loading("first measurement", 0.0) in told) == is_measured
    assert (told[-1].overdrawn_ms is not None) == has_account


def test_a_first_measurement_is_left_between_passes(home: Path) -> None:
    """A large model takes seconds for each; what was not finished is measured at the next answer."""
    stops: list[bool] = []
    session, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT)), lambda: bool(stops))
    measuring = events.Loading("first measurement", 0.0)
    telling = session.answer(PROMPT)
    assert next(telling) == measuring
    stops.append(True)
    with pytest.raises(Cancelled):
        next(telling)
    stops.clear()
    assert measuring in list(session.answer(PROMPT))
    session.close()


def test_all_widths_are_timed_and_kept(storyteller: LoadedPair, home: Path) -> None:
    before = text(storyteller)
    *told, last = storyteller.survey(ALL)
    assert all(isinstance(event, events.Loading) for event in told)
    assert isinstance(last, events.Inspected)
    target, draft = last.content["target"], last.content["draft"]
    assert [rows for rows, _ in target["ms"]] == list(SIZES)
    assert target["position"] >= SHALLOWEST
    assert target["deep_ms"]
    assert draft["ms"][0][0] == 1
    assert all(ms > 0 for one in (target, draft) for key in ("ms", "deep_ms") for _, ms in one[key])
    profile = last.content["profile"]
    assert profile["is_kept"]
    assert Path(profile["file"]).parent == home / "cache" / "profiles"
    kept = Profile(Path(profile["file"]))
    assert dict(profile["ms"]) == pytest.approx(dict(target["ms"]))
    assert [int(rows) for rows in json.loads(kept.file.read_text())["prices"]["rows"]] == list(SIZES)
    assert text(storyteller) == before, "what is in the caches afterwards is the text's own"


def test_what_is_not_to_be_kept_is_not(storyteller: LoadedPair) -> None:
    *_, first = storyteller.survey(SurveyRequest(seconds=0.1, is_deep=False))
    *_, asked = storyteller.survey(SurveyRequest(sizes=(), is_deep=False))
    assert isinstance(first, events.Inspected)
    assert isinstance(asked, events.Inspected)
    assert not first.content["profile"]["is_kept"]
    assert asked.content["target"]["ms"] == []
    assert asked.content["profile"]["ms"] == first.content["profile"]["ms"]


def test_a_cancelled_survey_is_left_between_passes(target: LlamaBackend, draft: LlamaBackend) -> None:
    for backend in (target, draft):
        backend.truncate(0)
    asked = []

    def cancel() -> bool:
        asked.append(target.length)
        return target.length > 0 and len(asked) > 60

    with pytest.raises(Cancelled):
        list(survey_pair(ALL, target, draft, time.perf_counter, cancel))
    assert target.length == 0
    target.check()


def test_a_state_is_timed_as_any_cache() -> None:
    """But for plain passes of more rows than one, which a state cannot take back."""
    with pair.backend(random_gguf(MAMBA)) as backend:
        survey = survey_pair(ALL, backend, None, time.perf_counter, lambda: False)
        while True:
            try:
                next(survey)
            except StopIteration as done:
                found = done.value
                break
        target, draft = found
        assert target.deep
        assert not target.pads
        assert draft is None
        assert prices_of(target, draft).is_known
