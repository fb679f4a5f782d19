"""Early exit under `auto`: taken where it was tuned and pays and no model drafts, and done without where it fails.

That the text stays plain decoding's, near ties told apart, is in test_early_exit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.control.prices import Prices
from localspec.engine import events
from localspec.models.exit_files import Exits, Tuned
from localspec.models.gguf.header import read_header
from localspec.session.exit_drafts import NO_ROOM
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.speculation.resolve import resolve_axes
from tests.integration import pair
from tests.integration.pair import GREEDY

PROMPT = "Once upon a time there was a king, and the king had a daughter. The king said"
SEEDED = Sampling(temperature=0.8, seed=3)


@pytest.fixture
def exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exits:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return Exits(read_header(pair.TARGET), tmp_path / "cache" / "early-exit")


def tune(exits: Exits, ratio: float, drop: int = 1) -> Path:
    """Keep all layers but the last ones as the tuned choice, as `early-exit tune` does; return its file."""
    layers = tuple(range(exits.n_layers - drop))
    exits.store(Tuned(layers, ratio))
    return exits.file(layers)


@contextmanager
def session(draft: Path | None = None) -> Iterator[tuple[LoadedPair, list[str]]]:
    """Open the storyteller's target, with the draft or without one; its warnings come along."""
    settings = LoadSettings(str(pair.TARGET), None if draft is None else str(draft), ctx=512, threads=1)
    opened, told = pair.load_pair(settings)
    try:
        yield opened, [event.message for event in told if isinstance(event, events.Warned)]
    finally:
        opened.close()


def answer(
    opened: LoadedPair, speculation: Speculation | None = None, sampling: Sampling = GREEDY, n: int = 60
) -> list[events.Event]:
    request = Request(prompt=PROMPT, max_tokens=n, sampling=sampling, speculation=speculation or Speculation())
    return list(opened.answer(request))


def method(told: list[events.Event]) -> str:
    (started,) = (event for event in told if isinstance(event, events.Started))
    return started.method


def test_one_that_pays_is_taken(exits: Exits) -> None:
    """What it costs is measured with it, in a profile of its own."""
    file = tune(exits, 1.3)
    with session() as (opened, warnings):
        told = answer(opened)
        assert warnings == []
        assert method(told) == "early-exit"
        (started,) = (event for event in told if isinstance(event, events.Started))
        assert started.derived is not None
        assert started.derived.path == str(file)
        assert any(isinstance(event, events.Loading) and event.what == "early exit" for event in told)
        own, with_exit = opened.controllers, opened.early_exit.loaded
        assert with_exit is not None
        assert own.profile.file != with_exit.controllers.profile.file
        assert with_exit.controllers.profile.file.is_file()
        prices = with_exit.controllers.profile.prices
        assert prices is not None
        assert prices.draft.value > 0.0
        again = answer(opened)
        assert not any(isinstance(event, events.Loading) for event in again), "it stays loaded, and measured"
        finished = again[-1]
        assert isinstance(finished, events.Finished)
        assert finished.verdict
        assert finished.overdrawn_ms is not None


def test_it_drafts(exits: Exits) -> None:
    """At no cost, all layers but one draft, and in most passes a token of theirs is accepted."""
    tune(exits, 1.3)
    with session() as (opened, _):
        answer(opened, n=1)  # measures
        assert opened.early_exit.loaded is not None
        prices = Prices({1: 0.1} | dict.fromkeys((2, 4, 8, 17), 0.01), draft=1e-6, read=1e-7)
        opened.early_exit.loaded.controllers.profile.prices = prices
        told = answer(opened, sampling=SEEDED)
        drafted = [e for e in told if isinstance(e, events.Committed) and e.k and e.drafter == "early-exit"]
        assert drafted
        assert sum(event.n_accepted > 0 for event in drafted) > len(drafted) / 2


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("nothing tuned", "plain"),
        ("none pays", "plain"),
        ("its file is gone", "plain"),
        ("a draft model is there", "draft-model"),
    ],
)
def test_where_it_is_not_taken(exits: Exits, case: str, expected: str) -> None:
    """Nothing is written or loaded that nobody asked for."""
    if case != "nothing tuned":
        file = tune(exits, 0.99 if case == "none pays" else 1.3)
        if case == "its file is gone":
            file.unlink()
    with session(pair.DRAFT if case.startswith("a draft") else None) as (opened, warnings):
        assert method(answer(opened, n=2)) == expected
        assert warnings == []
        assert opened.early_exit.loaded is None
    assert exits.folder.is_dir() == (case != "nothing tuned")
    assert len(list(exits.folder.glob("*.gguf"))) == (case not in ("nothing tuned", "its file is gone"))


def test_without_memory_for_it(exits: Exits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found out before anything is loaded, and said."""
    tune(exits, 1.3)
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: pair.TARGET.stat().st_size)
    with session() as (opened, warnings):
        assert NO_ROOM in warnings
        assert method(answer(opened, n=2)) == "plain"


def test_one_that_is_damaged(exits: Exits) -> None:
    """A header that says nothing of layers any more: the answer comes without it."""
    file = tune(exits, 1.3)
    file.write_bytes(file.read_bytes().replace(b"general.architecture", b"general.architectur_", 1))
    with session() as (opened, warnings):
        assert any("runs without the early exit" in warning for warning in warnings)
        assert method(answer(opened, n=2)) == "plain"


def test_one_that_goes_while_nobody_looks(exits: Exits) -> None:
    """Its file and the folder vanish before the first answer, which comes without it."""
    tune(exits, 1.3)
    with session() as (opened, warnings):
        assert warnings == []
        exits.folder.rename(exits.folder.with_name("elsewhere"))
        exits.folder.write_text("in the way")
        told = answer(opened, n=2)
        assert method(told) == "plain"
        (warned,) = (event.message for event in told if isinstance(event, events.Warned))
        assert "cannot be kept" in warned
        assert "runs without the early exit" in warned
        assert not any(isinstance(event, events.Warned) for event in answer(opened, n=2)), "said once"


@pytest.mark.parametrize(
    ("spoken", "is_seeded", "expected"),
    [
        (Speculation(), False, "early-exit"),
        (Speculation(), True, "early-exit"),
        (Speculation(verify="coupled"), True, "early-exit"),
        (Speculation(tree="static:2,1"), False, "early-exit"),
        (Speculation(k=0), False, "plain"),
        (Speculation(verify="block"), True, "plain"),
        (Speculation("plain"), False, "plain"),
    ],
)
def test_where_the_axes_take_it(spoken: Speculation, is_seeded: bool, expected: str) -> None:
    """Where it may be parked: a seed with a rule whose text depends on who drafts must not depend on what was tuned."""
    assert resolve_axes(spoken, has_draft=False, is_seeded=is_seeded, has_exit=True).method == expected
    assert resolve_axes(Speculation(), has_draft=True, is_seeded=is_seeded, has_exit=True).method == "draft-model"


def test_an_early_exit_that_was_asked_for_is_compared_with_the_pairs_plain_passes(exits: Exits) -> None:
    """What plain decoding takes does not depend on who drafts: an earlier answer's measurement holds."""
    tune(exits, 1.5)
    with session() as (opened, _):
        answer(opened, Speculation(method="prompt-lookup"))
        told = answer(opened, Speculation(method="early-exit"))
    assert any(isinstance(event, events.Probed) for event in told)
