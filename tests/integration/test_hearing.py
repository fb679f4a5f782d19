"""After an answer that a draft model did not draft, it reads that, and what it would have been worth is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from localspec.control.candidates import Chains
from localspec.control.prices import Prices
from localspec.control.profile import Profile
from localspec.control.trial import CHAT, Kind
from localspec.engine.draft import Draw
from localspec.engine.events import Committed, Finished
from localspec.engine.protocols import Cancelled, Capabilities, Shape
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Intersection
from localspec.session import hearing
from localspec.session.hearing import CHUNK, Heard, hear
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.integration import pair
from tests.integration.gguf_models import never

SETTINGS = LoadSettings(str(pair.TARGET), str(pair.DRAFT), threads=1, kv_type="f32", flash_attn="off")
GREEDY = Request(prompt="Once upon a time", max_tokens=70, sampling=Sampling(temperature=0.0), learns=True)
DRAWN = replace(GREEDY, sampling=Sampling())


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedPair]:
    """A pair whose draft costs as much as its target, so that it drafts nothing."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path_factory.mktemp("home")))
    opened, _ = pair.load_pair(SETTINGS)
    opened.controllers.profile.prices = Prices({n: 1.0 + 0.1 * n for n in (1, 2, 3, 4, 8, 16)}, 1.5, 0.1)
    opened.controllers._is_measured = True
    yield opened
    opened.close()


def answered(loaded: LoadedPair, request: Request) -> tuple[list[int], list[int], str]:
    """Return the tokens of the prompt and of the answer, and why nothing was drafted."""
    told = list(loaded.answer(request))
    assert not any(each.k for each in told if isinstance(each, Committed) and each.drafter == "draft-model")
    (end,) = (each for each in told if isinstance(each, Finished))
    tokens = [piece.id for each in told if isinstance(each, Committed) for piece in each.out]
    return list(loaded.tokenised(request).tokens), tokens, end.verdict


def learned(loaded: LoadedPair) -> Kind:
    trial = loaded.controllers.profile.trial
    assert trial is not None
    return trial.kinds.get(CHAT, Kind())


def rows(loaded: LoadedPair, prompt: list[int], answer: list[int], *, of_target: bool = False) -> list[np.ndarray]:
    """Return the rows before each token of an answer, read one by one."""
    model = loaded.target if of_target else loaded.draft
    assert model is not None
    return [np.array(model.backend.prefill([*prompt, *answer[:n]], never).logits(0)) for n in range(len(answer))]


def test_at_temperature_0_its_likeliest_token_is_right_or_not(loaded: LoadedPair) -> None:
    prompt, answer, _ = answered(loaded, GREEDY)
    assert learned(loaded) == Kind()
    loaded.idle(never)
    found = learned(loaded)
    right = sum(int(row.argmax()) == token for row, token in zip(rows(loaded, prompt, answer), answer, strict=True))
    assert found.n == len(answer) == 70
    assert found.likeliest == pytest.approx(right, abs=1), "but for a near tie"
    assert found.n_drawn == 0.0
    loaded.idle(never)
    assert learned(loaded) == found, "each answer once"


def test_what_was_drawn_tells_how_often_a_draw_would_be_accepted(loaded: LoadedPair) -> None:
    """By the chance that the target gave each of its tokens, and that of the draft, both read again."""
    prompt, answer, _ = answered(loaded, DRAWN)
    loaded.idle(never)
    found, sampler, wanted = learned(loaded), Sampler(DRAWN.sampling), 0.0
    small, wide = rows(loaded, prompt, answer), rows(loaded, prompt, answer, of_target=True)
    for p, q, token in zip(wide, small, answer, strict=True):
        wanted += min(1.0, sampler.dist(q).prob(token) / sampler.dist(p).prob(token))
    assert found.n_drawn == len(answer)
    assert found.drawn == pytest.approx(wanted, rel=0.02)
    assert found.n == 0.0


def test_the_next_answer_knows_it_and_is_the_same(loaded: LoadedPair) -> None:
    """The line that says why nothing was drafted quotes it; the draft has read what it would have to read."""
    first = answered(loaded, GREEDY)
    (acceptance,) = loaded.controllers.profile.acceptance.values()
    shipped = acceptance.measured
    loaded.idle(never)
    assert acceptance.measured is not None
    assert acceptance.measured != shipped
    chains = Chains("draft-model", Prices({1: 0.1, 2: 0.1, 16: 0.1}, 0.09), acceptance, Shape(8, 8, 1), Draw.COUPLED)
    assert f" are right; {100 * acceptance.measured:.0f} % were; " in chains.why_not()
    assert loaded.draft is not None
    assert loaded.draft.backend.length >= len(first[0]) + len(first[1]) - 2
    again = answered(loaded, GREEDY)
    assert again[:2] == first[:2]
    assert "drafted nothing" in again[2] or again[2].startswith("nothing was drafted")
    assert list(loaded.controllers.profile.acceptance.values()) == [acceptance]
    kept = Profile.of(loaded.controllers.profile.file.parent, [], [])
    kept.file = loaded.controllers.profile.file
    kept._read()
    assert kept.trial is not None
    assert kept.trial.kinds[CHAT] == learned(loaded)


def test_it_ends_within_a_chunk(loaded: LoadedPair) -> None:
    prompt, _, _ = answered(loaded, GREEDY)
    loaded.idle(lambda: True)
    assert learned(loaded) == Kind(), "not begun, and kept for later"
    loaded.idle(lambda: loaded.draft is not None and loaded.draft.backend.length > len(prompt))
    assert learned(loaded).n == CHUNK


def test_a_stop_within_a_chunk_loses_nothing_before_it(loaded: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow pass of the draft model is left by the stop of an answer: what was compared by then is kept."""
    answered(loaded, GREEDY)
    assert loaded.draft is not None
    backend, passes = loaded.draft.backend, []
    extend = backend.extend

    def stopped(*args: object) -> object:
        passes.append(args)
        if len(passes) == 2:
            raise Cancelled
        return extend(*args)

    monkeypatch.setattr(backend, "extend", stopped)
    loaded.idle(never)
    assert learned(loaded).n == CHUNK


@pytest.mark.parametrize(("temperature", "is_trial"), [(Sampling().temperature, True), (1.4, False)])
def test_other_temperatures_are_no_part_of_the_trial(loaded: LoadedPair, temperature: float, is_trial: bool) -> None:
    """It tells of the usual one; what is learned of a temperature is kept by that."""
    answered(loaded, replace(GREEDY, sampling=Sampling(temperature=temperature)))
    (acceptance,) = loaded.controllers.profile.acceptance.values()
    before = acceptance.to_wire()
    loaded.idle(never)
    assert acceptance.to_wire() != before
    assert bool(learned(loaded).n_drawn) == is_trial


@pytest.mark.parametrize(
    "request_", [replace(GREEDY, learns=False), replace(GREEDY, speculation=Speculation("plain"))], ids=["off", "plain"]
)
def test_only_where_it_was_asked_for_and_the_draft_may_draft(loaded: LoadedPair, request_: Request) -> None:
    assert loaded.draft is not None
    answered(loaded, GREEDY)
    answered(loaded, request_)
    loaded.idle(never)
    assert learned(loaded) == Kind()
    assert loaded.draft.backend.length == 0


def test_what_drafts_learns_from_its_drafts(loaded: LoadedPair) -> None:
    list(loaded.answer(replace(GREEDY, speculation=Speculation("draft-model", k=3))))
    loaded.idle(never)
    assert learned(loaded) == Kind()


def test_other_tokens_are_compared_where_both_texts_have_the_end_of_one(loaded: LoadedPair) -> None:
    """A translation between equal vocabularies finds what equal tokens find, but where words are cut otherwise."""
    prompt, answer, _ = answered(loaded, GREEDY)
    assert loaded.draft is not None
    heard = Heard(Sampler(GREEDY.sampling), Draw.COUPLED, next(iter(loaded.controllers.profile.acceptance.values())),
                  (), [*prompt, *answer], len(prompt))  # fmt: skip
    other = Intersection(loaded.target.lexicon(), loaded.draft.lexicon())
    same, spelled = (hear(heard, loaded.target, loaded.draft, each, never).total for each in (None, other))
    assert spelled.n >= 0.9 * same.n
    assert spelled.likeliest == pytest.approx(same.likeliest, abs=6)


@pytest.mark.parametrize(("kind", "changes", "is_read"), [
    ("model", {}, True), ("model", {"max_rows": 1}, False), ("model", {"can_rollback": False}, False),
    ("eagle3", {}, False),
])  # fmt: skip
def test_what_can_read_an_answer(kind: str, changes: dict[str, Any], is_read: bool) -> None:
    """A draft that has one row a pass would take a pass for each token, as long as drafting them."""
    can = Capabilities(**{"can_rollback": True, "max_leaves": 1, "max_rows": 2, "n_ctx": 64, "n_vocab": 8} | changes)
    draft = SimpleNamespace(kind=kind, backend=SimpleNamespace(capabilities=can))
    assert hearing._can_read(draft) == is_read
    assert not hearing._can_read(None)
