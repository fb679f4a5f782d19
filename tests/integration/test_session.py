"""The session on real files: what the parts cannot show alone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.backends.options import LoadOptions
from localspec.engine import events
from localspec.engine.protocols import Cancel
from localspec.errors import IntegrityError, PromptTooLongError, UsageError
from localspec.session import loading
from localspec.session.loaded_model import LoadedModel
from localspec.session.loaded_pair import LoadedPair
from localspec.session.placement import InspectedModel, PairFiles
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.integration import pair
from tests.weights.random_gguf import Shape, write_random_gguf

SMALL = {"width": 64, "layers": 1, "heads": 2, "kv_heads": 1, "ff": 64}


def opened(target: Path, draft: Path | None = None, **settings: Any) -> tuple[LoadedPair, list[events.Event]]:
    wanted = LoadSettings(str(target), None if draft is None else str(draft), **settings)
    return pair.load_pair(wanted)


@pytest.fixture(scope="module")
def storyteller() -> Iterator[LoadedPair]:
    session, _ = opened(pair.TARGET, pair.DRAFT)
    yield session
    session.close()


def committed(session: LoadedPair, request: Request) -> list[events.Committed]:
    return [event for event in session.answer(request) if isinstance(event, events.Committed)]


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_tokens_that_the_file_suppresses_are_never_sampled(tmp_path: Path, temperature: float) -> None:
    """llama.cpp's own sampler bans them; without that the greedy text below begins with one of them."""
    free = Request(
        prompt="hello", max_tokens=60, sampling=Sampling(temperature=temperature, top_k=0, top_p=1.0, seed=1)
    )
    found: list[set[int]] = []
    suppressed: tuple[int, ...] = ()
    for name in ("free", "bound"):
        target = write_random_gguf(tmp_path / f"{name}.gguf", Shape(vocab=600, suppressed=suppressed, **SMALL))
        session, _ = opened(target)
        found.append({piece.id for event in committed(session, free) for piece in event.out})
        suppressed = tuple(found[0])
        session.close()
    assert found[0]
    assert not found[0] & found[1]


def test_a_draft_without_the_targets_last_tokens(tmp_path: Path) -> None:
    """Vocabularies may differ by 128 tokens: from a token that the draft lacks on, a text is decoded plainly."""
    target = write_random_gguf(tmp_path / "t.gguf", Shape(vocab=600, **SMALL))
    draft = write_random_gguf(tmp_path / "d.gguf", Shape(vocab=500, **SMALL), seed=1)
    session, _ = opened(target, draft)
    flat = Sampling(
        temperature=2.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.1, logit_bias=((550, 0.5),), seed=1
    )
    texts = []
    for method in ("draft-model", "plain"):
        speculation = Speculation(method=method)
        passes = committed(session, Request(prompt="hello", max_tokens=100, sampling=flat, speculation=speculation))
        texts.append([piece.id for event in passes for piece in event.out])
    assert texts[0] == texts[1]
    assert max(texts[0]) >= 500
    session.close()


def test_times_and_counts_add_up(storyteller: LoadedPair) -> None:
    """What came before the prompt, the prompt and the passes make the wall time; passes make the tokens."""
    request = Request(prompt="Once upon a time", max_tokens=200, speculation=Speculation(method="draft-model"))
    told = list(storyteller.answer(request))
    prefilled = next(event for event in told if isinstance(event, events.Prefilled))
    passes = [event for event in told if isinstance(event, events.Committed)]
    (finished,) = [event for event in told if isinstance(event, events.Finished)]
    spent = sum(event.ms.draft + event.ms.verify + event.ms.sample + event.ms.other for event in passes)
    assert prefilled.prepare_ms + prefilled.ms + spent == pytest.approx(finished.wall_ms, rel=0.02)
    assert sum(len(event.out) for event in passes) == sum(event.n_accepted for event in passes) + len(passes)


def test_a_second_turn_evaluates_only_what_is_new(storyteller: LoadedPair) -> None:
    """The cache of target and draft keeps the common prefix."""
    first = Request(prompt="The old woman sat by the fire and", max_tokens=20, sampling=Sampling(temperature=0.0))
    text = "".join(event.text for event in committed(storyteller, first))
    again = Request(prompt=str(first.prompt) + text + " Then", max_tokens=5)
    prefilled = next(event for event in storyteller.answer(again) if isinstance(event, events.Prefilled))
    assert prefilled.cache_n >= prefilled.prompt_n - 6


def test_a_baseline_lasts_beyond_its_answer() -> None:
    """The first answer measures plain decoding before it drafts; the next goes on with that, and says how old it is."""
    session, _ = opened(pair.TARGET, pair.DRAFT)
    speculation = Speculation(method="draft-model", k=2)
    request = Request(prompt="Once upon a time", max_tokens=24, speculation=speculation)
    first, second = list(session.answer(request)), list(session.answer(request))
    session.close()
    ages = [[event.age_s for event in told if isinstance(event, events.Probed)] for told in (first, second)]
    plain = [
        [event.plain_ms for event in told if isinstance(event, events.Committed) and event.is_probe]
        for told in (first, second)
    ]
    assert len(plain[0]) >= 2
    assert all(plain[0])
    assert ages[0] == []
    assert len(ages[1]) == len(plain[0])
    assert min(ages[1]) > 0.0


def test_a_seeded_answer_never_depends_on_timing(storyteller: LoadedPair) -> None:
    """With a seed and a rule that draws in order of need, nothing is parked: the same request gives the same text."""
    sampling = Sampling(temperature=1.0, seed=7)
    request = Request(prompt="Once", max_tokens=80, sampling=sampling, speculation=Speculation(verify="block"))
    texts = {"".join(event.text for event in committed(storyteller, request)) for _ in range(4)}
    assert len(texts) == 1


@pytest.mark.parametrize("speculation", [
    Speculation(method="draft-model", tree="dyspec:8", verify="traversal"),
    Speculation(method="draft-model", tree="sequoia:16", verify="traversal"),
    Speculation(verify="block"),
], ids=lambda one: f"{one.tree} {one.verify}")  # fmt: skip
def test_a_seed_repeats_under_rules_that_draw_in_order_of_need(
    storyteller: LoadedPair, speculation: Speculation
) -> None:
    """There the text depends on what is drafted, so what the first answer taught must not change the second's."""
    sampling = Sampling(temperature=0.8, seed=7)
    request = Request(prompt="Once upon a time", max_tokens=60, sampling=sampling, speculation=speculation, cold=True)
    first, second = ([event.out for event in committed(storyteller, request)] for _ in range(2))
    assert first == second


def test_the_temperature_of_a_draft_follows_its_shape(storyteller: LoadedPair) -> None:
    """At T=0 a chain is drafted from point masses, a tree of choices from the distributions they come from."""

    def answer(k: int) -> list[events.Committed]:
        asked = Speculation(method="draft-model", tree="eagle2", k=k)
        sampling = Sampling(temperature=0.0)
        return committed(storyteller, Request(prompt="Once upon", max_tokens=40, sampling=sampling, speculation=asked))

    assert max(event.k for event in answer(1)) == 1
    assert any(event.k > event.depth for event in answer(16)), "there are branches"


def test_refusals(storyteller: LoadedPair) -> None:
    """A bias for a token there is not, and a prompt that the context cannot hold, with a hint that can help."""
    with pytest.raises(UsageError, match="tokens are 0 to 4095"):
        list(storyteller.answer(Request(prompt="x", sampling=Sampling(logit_bias=((4096, 1.0),)))))
    with pytest.raises(PromptTooLongError) as caught:
        list(storyteller.answer(Request(prompt="and then " * 2000)))
    assert "made for 1024" in caught.value.hint
    short, _ = opened(pair.TARGET, ctx=64)
    with pytest.raises(PromptTooLongError) as caught:
        list(short.answer(Request(prompt="and then " * 60)))
    assert caught.value.hint.startswith("--ctx 256")
    short.close()


def test_a_pair_whose_draft_cannot_be_loaded_is_not_half_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    real = loading.load_model

    def broken(
        looked: InspectedModel, options: LoadOptions, what: str, cancel: Cancel, *_: object, **__: object
    ) -> Iterator[events.Event]:
        if what == "draft":
            raise IntegrityError("llama.cpp does not take it", hint="another")
        return real(looked, options, what, cancel)

    monkeypatch.setattr(loading, "load_model", broken)
    closed: list[LoadedModel] = []
    close = LoadedModel.close
    monkeypatch.setattr(LoadedModel, "close", lambda model: (closed.append(model), close(model)))
    with pytest.raises(IntegrityError):
        pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT)))
    assert [model.info.path for model in closed] == [pair.TARGET]


def test_a_draft_that_was_left_out_leaves_no_price(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would be taken for free by the next run, in which there is memory for it."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    real = PairFiles.placed
    monkeypatch.setattr(PairFiles, "placed", lambda files: replace(real(files), draft=None))
    session, _ = opened(pair.TARGET, pair.DRAFT)
    list(session.answer(Request(prompt="Once", max_tokens=4)))
    session.close()
    monkeypatch.undo()
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    whole, _ = opened(pair.TARGET, pair.DRAFT)
    assert whole.controllers.profile.prices is None
    whole.close()


def test_nodes_that_a_failed_pass_left_open_do_not_stop_a_measurement() -> None:
    session, _ = opened(pair.TARGET, pair.DRAFT)
    session.target.backend.prefill([1, 2, 3], lambda: False)
    session.target.backend.extend([5], [-1])
    session.controllers._is_measured, session.controllers.profile.prices = False, None
    assert committed(session, Request(prompt="Once", max_tokens=4))
    session.close()


def test_doubts_are_told() -> None:
    """A context beyond what the model was made for, and GPU layers that this build cannot place."""
    session, told = opened(pair.TARGET, ctx=2048, gpu="3")
    warnings = [event.message for event in told if isinstance(event, events.Warned)]
    assert any("made for 1024" in warning for warning in warnings)
    assert len(warnings) in (1, 2)
    session.close()
