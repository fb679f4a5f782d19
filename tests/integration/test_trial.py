"""A draft model is tried once, on shipped text, while its pair is loaded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from localspec.backends.build import build_info
from localspec.control.prices import Prices
from localspec.control.trial import Kind, Trial, fallen
from localspec.engine import events
from localspec.engine.acceptance import BINS, Acceptance
from localspec.engine.draft import Draw
from localspec.engine.protocols import Cancelled
from localspec.engine.translation import Intersection, Translation
from localspec.models.store import bundled_head
from localspec.session import trial as session_trial
from localspec.session.loaded_model import LoadedModel
from localspec.session.loaded_pair import LoadedPair
from localspec.session.trial import COMPARED, FALLEN, LEAD, DraftTrial, texts
from localspec.settings.jobs import SurveyRequest
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.integration import pair
from tests.integration.gguf_models import MAMBA, TINY, random_gguf

SETTINGS = LoadSettings(str(pair.TARGET), str(pair.DRAFT), threads=1)
LONG = 1e4  # seconds that a trial may take here
TOLD = events.Loading("trial of the draft", 0.0)
ASKED = Request(prompt="Once upon a time", max_tokens=24, sampling=Sampling(temperature=0.0))


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home of its own, where no trial is refused however busy the machine is."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(session_trial, "MAX_SECONDS", LONG)
    return tmp_path


@pytest.fixture
def loaded(home: Path) -> Iterator[LoadedPair]:
    opened, told = pair.load_pair(SETTINGS)
    assert told.index(TOLD) < len(told) - 1, "a part of loading"
    yield opened
    opened.close()


def tried(target: LoadedModel, draft: LoadedModel | None, translation: Translation | None = None) -> Trial:
    assert draft is not None
    run = events.Returning(DraftTrial(target, draft, translation, lambda: 0.0, lambda: False).run(LONG))
    assert list(run) == [(n + 1) / len(texts()) for n in range(len(texts()))]
    return run.result


def test_a_model_agrees_with_itself() -> None:
    other, _ = pair.load_pair(replace(SETTINGS, draft=str(pair.TARGET)))
    assert other.draft is not None
    total = tried(other.target, other.draft).total
    assert 0.95 * len(texts()) * COMPARED <= total.n <= len(texts()) * COMPARED  # a text may be a little short
    assert total.likeliest / total.n > 0.98
    assert total.drawn / total.n > 0.98
    spelled = tried(other.target, other.draft, Intersection(other.target.lexicon(), other.draft.lexicon())).total
    assert spelled.n > 0.8 * total.n
    assert spelled.likeliest / spelled.n > 0.9
    other.close()


def test_rows_are_those_of_the_same_place(loaded: LoadedPair) -> None:
    """By the bundled pair: a row off by one place would agree by chance alone."""
    trial = loaded.controllers.profile.trial
    assert trial is not None
    assert set(trial.kinds) == set(texts())
    assert trial.total.likeliest / trial.total.n > 0.3
    assert trial.total.n == tried(loaded.target, loaded.draft).total.n
    assert trial.spelled == 1.0


def test_once_a_pair(loaded: LoadedPair) -> None:
    """Also with other settings: the rows of two files do not depend on threads."""
    trial = loaded.controllers.profile.trial
    for settings in (SETTINGS, replace(SETTINGS, threads=2), replace(SETTINGS, reproducible=True)):
        again, told = pair.load_pair(settings)
        assert TOLD not in told
        assert again.controllers.profile.trial == trial
        again.close()


def test_none_where_no_model_drafts() -> None:
    for draft in (None, str(bundled_head("storyteller", "eagle3"))):
        alone, told = pair.load_pair(replace(SETTINGS, draft=draft))
        assert TOLD not in told
        assert alone.controllers.profile.trial is None
        alone.close()


def test_nothing_of_it_stays(loaded: LoadedPair, home: Path) -> None:
    """Neither in a cache, nor in a text."""
    assert loaded.draft is not None
    for model in (loaded.target, loaded.draft):
        model.backend.check()
        assert model.backend.length == 0
    for speculation in (Speculation("draft-model", k=3), Speculation("plain"), Speculation()):
        asked = replace(ASKED, speculation=speculation, cold=True)
        assert answered(loaded, asked) == answered_untried(asked, SETTINGS)


@pytest.mark.parametrize(("target", "draft"), [(MAMBA, TINY), (TINY, MAMBA)], ids=["for a state", "by a state"])
def test_a_state_is_tried_too(home: Path, target: object, draft: object) -> None:
    """Whatever rows a pass may have; the text after it is that without it."""
    files = [str(random_gguf(shape)) for shape in (target, draft)]
    settings = LoadSettings(*files, ctx=512, threads=1)
    opened, told = pair.load_pair(settings)
    assert (opened.controllers.profile.trial is not None) == (TOLD in told)
    assert opened.target.backend.length == 0
    asked = replace(ASKED, speculation=Speculation("plain"))
    text = answered(opened, asked)
    opened.close()
    assert text == answered_untried(asked, settings)


def test_the_first_plan_of_an_answer_knows_it(loaded: LoadedPair) -> None:
    """A draft that is never right on the shipped texts is expected to be right seldom."""
    loaded.controllers.profile.trial = bad = Trial()
    for _ in range(100):
        bad.likeliest_is("code", 0.95, False)
    list(loaded.answer(replace(ASKED, max_tokens=1)))
    (learned,) = loaded.controllers.profile.acceptance.values()
    assert learned.mean < 0.1


def test_a_slow_target_is_not_tried_for_long(loaded: LoadedPair) -> None:
    """What the first tokens take says what all would."""
    assert loaded.draft is not None
    seconds = iter(range(0, 10**6, int(LONG)))
    trial = DraftTrial(loaded.target, loaded.draft, None, lambda: next(seconds), lambda: False)
    run = events.Returning(trial.run(LONG))
    assert list(run) == []
    assert run.result.kinds == {}
    assert loaded.target.backend.length == loaded.draft.backend.length == 0


@pytest.mark.parametrize(
    ("seconds", "plain", "is_again"),
    [(0.3 * LONG, 0.01, True), (0.3 * LONG, LONG, False), (0.3 * LONG, None, False), (0.1, 0.01, False)],
    ids=["was busy", "is slow", "not measured", "failed"],
)
def test_one_that_a_busy_machine_refused_is_made_later(
    loaded: LoadedPair, seconds: float, plain: float | None, is_again: bool
) -> None:
    """Once prices say that it would be in time. Of drafts of which nothing is known by then, it tells first."""
    profile = loaded.controllers.profile
    profile.prices = None if plain is None else Prices({1: plain, 2: plain, 64: plain}, plain, plain / 10)
    profile.learn_trial(Trial(seconds=seconds, build=build_info().llama_cpp))
    bad, unknown = Acceptance.expecting(Draw.IID, [40.0] * BINS, [0.0] * BINS), Acceptance(Draw.IID)
    profile.acceptance = {"bad": bad, "unknown": unknown}
    assert profile.save()
    again, told = pair.load_pair(SETTINGS)
    found = again.controllers.profile
    again.close()
    assert (TOLD in told) == is_again
    assert set(found.acceptance) == ({"bad"} if is_again else {"bad", "unknown"})
    assert found.trial is not None
    assert bool(found.trial.kinds) == is_again


def test_one_that_somebody_asks_for_takes_the_time_it_needs(
    loaded: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A survey that is kept makes a trial that found nothing again, and one that found something stays."""
    monkeypatch.setattr(session_trial, "MAX_SECONDS", 0.0)
    profile, survey = loaded.controllers.profile, SurveyRequest(0.1, is_kept=True)
    found = trial_of(loaded)
    profile.trial = Trial(seconds=LONG, build=found.build)
    assert TOLD not in list(loaded.survey(replace_struct(survey, is_kept=False)))
    assert TOLD in list(loaded.survey(survey))
    assert trial_of(loaded).kinds == found.kinds
    assert TOLD not in list(loaded.survey(survey))
    loaded.target.backend.check()
    again, _ = pair.load_pair(SETTINGS)
    assert trial_of(again).kinds == found.kinds, "kept"
    again.close()


def test_it_is_left_between_texts(loaded: LoadedPair) -> None:
    assert loaded.draft is not None
    asked: list[int] = []
    run = DraftTrial(loaded.target, loaded.draft, None, lambda: 0.0, lambda: bool(asked)).run(LONG)
    next(run)
    asked.append(1)
    with pytest.raises(Cancelled):
        next(run)
    assert loaded.target.backend.length == loaded.draft.backend.length == 0


def test_the_texts_are_long_enough(loaded: LoadedPair) -> None:
    for text in texts().values():
        assert len(loaded.target.model.tokenize(text.encode())) >= LEAD + 2


def answered(opened: LoadedPair, request: Request) -> str:
    return "".join(event.text for event in opened.answer(request) if isinstance(event, events.Committed))


def answered_untried(request: Request, settings: LoadSettings) -> str:
    """Return the text of a pair whose profile has a trial, so that none is made."""
    opened, told = pair.load_pair(settings)
    assert TOLD not in told
    text = answered(opened, request)
    opened.close()
    return text


def test_another_build_is_tried_anew_and_a_fall_is_told_once(
    loaded: LoadedPair, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile's name holds the build, so an upgrade finds no profile of its own, and the one before beside it."""
    now = trial_of(loaded)
    assert now.build == build_info().llama_cpp
    better = {name: replace_struct(kind, likeliest=kind.n) for name, kind in now.kinds.items()}  # every token was right
    loaded.controllers.profile.trial = replace_struct(now, kinds=better, build="b1")
    assert loaded.controllers.profile.save()
    upgraded = replace(SETTINGS, threads=2)  # another profile, as of another build
    again, told = pair.load_pair(upgraded)
    (warned,) = (event for event in told if isinstance(event, events.Warned) and event.code == FALLEN)
    share = 100 * now.total.likeliest / now.total.n
    assert warned.message.startswith(f"{share:.0f} % of the draft's tokens are right on sample texts with llama.cpp ")
    assert "and 100 % were with llama.cpp b1" in warned.message
    assert trial_of(again).kinds == now.kinds
    again.close()
    again, told = pair.load_pair(upgraded)
    assert TOLD not in told
    assert not [event for event in told if isinstance(event, events.Warned)]
    again.close()


def test_a_fall_under_another_cache_is_not_put_down_to_llama_cpp(loaded: LoadedPair) -> None:
    now = trial_of(loaded)
    better = {name: replace_struct(kind, likeliest=kind.n) for name, kind in now.kinds.items()}
    loaded.controllers.profile.trial = replace_struct(now, kinds=better, build="b1")
    assert loaded.controllers.profile.save()
    again, told = pair.load_pair(replace(SETTINGS, kv_type="f32"))
    assert TOLD in told
    assert not [event for event in told if isinstance(event, events.Warned)]
    assert trial_of(again).under != now.under
    again.close()


def trial_of(loaded: LoadedPair) -> Trial:
    assert loaded.controllers.profile.trial is not None
    return loaded.controllers.profile.trial


@pytest.mark.parametrize(("before", "now", "told"), [(0.8, 0.4, True), (0.8, 0.75, False), (0.4, 0.8, False)])
def test_a_fall_beyond_chance(before: float, now: float, told: bool) -> None:
    one, other = (Trial({"text": Kind(128.0, 128.0 * share, 100.0)}) for share in (before, now))
    assert fallen(one, other) == ((before, now) if told else None)
    assert fallen(Trial(), other) is None
