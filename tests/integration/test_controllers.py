"""The automatic controller on real models: it decides when to draft and how much, and never what the text is."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.control.prices import Average, Prices
from localspec.control.timing import ModelTimes, prices_of
from localspec.engine import events
from localspec.engine.draft import Draw
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.jobs import ForkQuestion
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.tuning import SHORT
from tests.integration.gguf_models import TINY, random_gguf
from tests.integration.pair import load_pair

N = 80
PLAIN = Speculation(method="plain")
PROMPT = "Once upon a time there was a king, and the king had a daughter. The king said to his daughter"
FREE = {1: 0.1} | dict.fromkeys((2, 4, 8, 17), 0.01)

# Seconds of the target's passes and of a draft token, as the controller believes them at the start.
BELIEFS = {
    "measured": lambda: None,
    "drafting is free": lambda: Prices(FREE, 1e-6),
    "drafting never pays": lambda: Prices({1: 1e-3, 2: 9e-3, 17: 2e-1}, 1e-2),
    "a cliff at three": lambda: Prices({1: 1e-3, 2: 1.1e-3, 3: 9e-3, 17: 1e-2}, 1e-5),
    "nothing known": lambda: Prices(),
}


@pytest.fixture(scope="module")
def session(f32_pair: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedPair]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(tmp_path_factory.mktemp("home")))
        settings = LoadSettings(
            str(f32_pair["target"]), str(f32_pair["draft"]), threads=1, kv_type="f32", flash_attn="off"
        )
        opened, _ = load_pair(settings)
        yield opened
        opened.close()


def passes(session: LoadedPair, seed: int, speculation: Speculation) -> list[events.Committed]:
    sampling = Sampling(temperature=0.8, seed=seed)
    request = Request(prompt=PROMPT, max_tokens=N, sampling=sampling, speculation=speculation, cold=True)
    return [event for event in session.answer(request) if isinstance(event, events.Committed)]


def tokens(found: list[events.Committed]) -> tuple[int, ...]:
    return tuple(piece.id for event in found for piece in event.out)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("belief", BELIEFS)
def test_a_seeded_text_does_not_depend_on_the_controller(
    session: LoadedPair, belief: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it believes of costs: the plans differ, and the text forks at most where rounding decides."""
    if belief == "drafting is free":  # and stays so beside whatever other programs do
        monkeypatch.setattr(Average, "observe", lambda own, value: None)
        monkeypatch.setattr(Prices, "observe_plain", lambda own, seconds: None)
    profile = session.controllers.profile
    usual = profile.prices
    profile.prices = BELIEFS[belief]() or usual
    found = passes(session, seed, Speculation())
    profile.prices = usual
    if belief == "drafting is free":
        assert any(event.k > event.depth > 1 for event in found), "else nothing was compared"
    plain = tokens(passes(session, seed, PLAIN))
    got = tokens(found)
    assert len(got) == len(plain) == N
    if got != plain:
        asked = Request(prompt=PROMPT, sampling=Sampling(temperature=0.8, seed=seed))
        (told,) = session.inspect(ForkQuestion(asked, plain, got, seed))
        assert isinstance(told, events.Inspected)
        assert told.content["fork"]["is_tie"], told.content


@pytest.mark.parametrize("seed", [1, 2])
def test_plain_text_does_not_depend_on_the_rows_of_its_passes(session: LoadedPair, seed: int) -> None:
    """Where four rows were measured to cost less than one, a token is evaluated as the first of four."""
    profile = session.controllers.profile
    plain = tokens(passes(session, seed, PLAIN))
    assert session.target.backend.decode_rows == 1
    usual, profile.prices = profile.prices, prices_of(ModelTimes({1: 0.062, 4: 0.057}), None)
    wider = tokens(passes(session, seed, PLAIN))
    assert session.target.backend.decode_rows == 4
    profile.prices = usual
    assert wider == plain


def test_a_change_to_auto_in_the_middle_of_a_chat_reads_nothing_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Passes are measured before the first answer, whatever its method: measuring empties the caches."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    session, _ = load_pair(LoadSettings(str(random_gguf(TINY)), ctx=256, threads=1))
    lengths = []
    time_rows = type(session.target.backend).time_rows
    monkeypatch.setattr(
        type(session.target.backend), "time_rows", lambda own, n: (lengths.append(own.length), time_rows(own, n))[1]
    )
    passes(session, 1, Speculation(method="suffix", k=4))
    assert session.controllers.profile.prices is not None
    assert set(lengths) == {0}
    n_timed, n_read = len(lengths), session.target.backend.evaluated
    request = Request(prompt=PROMPT, max_tokens=1, sampling=Sampling(seed=1))
    (told,) = (one for one in session.answer(request) if isinstance(one, events.Prefilled))
    assert session.target.backend.evaluated - n_read <= 2, told
    assert len(lengths) == n_timed
    session.close()


def test_copies_are_looked_for_however_fast_a_pass_is(session: LoadedPair) -> None:
    """A GPU takes a millisecond for a pass of a small model, and a copy of fifty tokens pays there as well."""
    controllers = session.controllers
    usual, controllers.profile.prices = controllers.profile.prices, Prices({1: 0.0005, 8: 0.0005}, 1.0)
    controllers.forget()
    repeated = Request(
        prompt="the cat sat on the mat and " * 20, max_tokens=30, sampling=Sampling(temperature=0.0), cold=True
    )
    controllers._is_measured = True  # by us
    list(session.answer(repeated))
    controllers.profile.prices = usual
    assert controllers._copier is not None


@pytest.mark.parametrize(("can_verify", "k"), [(False, None), (True, 0)], ids=["there is no way back", "-k 0"])
def test_nothing_is_copied_where_nothing_may_be_drafted(
    can_verify: bool, k: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """However slow the target is, and however repetitive the text."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    session, _ = load_pair(LoadSettings(str(random_gguf(TINY)), ctx=256, threads=1))
    session.controllers.profile.prices = Prices(dict.fromkeys((1, 2, 4, 8, 17), 2 * SHORT), 1.0)
    session.controllers._is_measured = True  # so that these prices stay
    request = Request(prompt="the cat sat on the mat and " * 5, max_tokens=24, sampling=Sampling(temperature=0.0))
    list(session.answer(request))
    assert session.controllers._copier is not None, "else nothing was forbidden"
    session.forget()
    session.controllers.can_verify = can_verify
    told = session.answer(replace(request, speculation=Speculation(k=k)))
    assert not any(event.k for event in told if isinstance(event, events.Committed))
    assert session.controllers._copier is None
    session.close()


def test_greedy_answers_teach_each_other_with_a_seed_and_without(session: LoadedPair) -> None:
    """Under either rule the likeliest token is drafted, and kept where it is the target's."""
    session.controllers.profile.acceptance.clear()
    for seed in (None, 1):
        greedy = Request(prompt=PROMPT, max_tokens=8, sampling=Sampling(temperature=0.0, seed=seed))
        list(session.answer(greedy))
    (learned,) = session.controllers.profile.acceptance.values()
    assert learned.to_wire()["draw"] == Draw.COUPLED.value


def test_copies_are_known_by_temperature(session: LoadedPair) -> None:
    """What is copied at temperature 0 says little of a text that is drawn."""
    controllers = session.controllers
    usual = controllers.profile.prices
    controllers.profile.copies.clear()
    controllers.forget()
    controllers._is_measured = True  # so that the prices below stay
    for temperature in (0.0, 0.8):
        controllers.profile.prices = Prices({1: 2 * SHORT, 8: 2 * SHORT}, 1.0)
        sampling = Sampling(temperature=temperature)
        list(session.answer(Request(prompt="the cat sat on the mat and " * 20, max_tokens=60, sampling=sampling)))
    controllers.profile.prices = usual
    assert set(controllers.profile.copies) == {"0", "0.8"}
    assert controllers._copier is not None
    assert controllers._copier.acceptance is controllers.profile.copies["0.8"]
