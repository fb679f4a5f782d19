"""Log-probabilities are those of plain decoding, whatever drafts, and add up to what the text has by itself.

Each is compared with a reading of the same text: in passes of one token, and in one pass of all, as a perplexity run
reads. Weights and cache are F32, so that passes of several rows differ from lone ones by little.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.llama_cpp import Model
from localspec.backends.options import LoadOptions
from localspec.engine import events
from localspec.engine.judge import log_softmax
from localspec.engine.protocols import Logits
from localspec.engine.sampling import Sampler
from localspec.models.store import bundled_head
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.speculation import registered
from tests.integration import pair
from tests.integration.raw_context import RawContext

DRIFT = 2e-3  # by which a row of a wide pass differs from that of a lone token, F32 throughout
WARM = Sampling(temperature=0.8, seed=11)
REQUEST = Request(prompt=pair.OPENINGS[0], max_tokens=120, logprobs=5, sampling=WARM, cold=True)
KINDS = {name: method.info.draft_kind for name, method in registered("method").items()}
HEADS = {kind: bundled_head("storyteller", kind) for kind in KINDS.values() if kind not in ("", "model")}
METHODS = ["auto", *(name for name, kind in KINDS.items() if HEADS.get(kind, Path()) is not None)]
Opening = Callable[[str], LoadedPair]


@dataclass(frozen=True)
class Told:
    """The prompt's tokens, the answer's with their log-probabilities, and how many were drafted."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[events.Logprob]
    accepted: int

    @property
    def own(self) -> np.ndarray:
        return np.array([each.logprob for each in self.logprobs])


def ask(session: LoadedPair, request: Request) -> Told:
    passes = [event for event in session.answer(request) if isinstance(event, events.Committed)]
    logprobs = [each for event in passes for each in event.logprobs]
    tokens = [piece.id for event in passes for piece in event.out]
    assert [each.id for each in logprobs] == tokens
    return Told(list(session.tokenised(request).tokens), tokens, logprobs, sum(event.n_accepted for event in passes))


def draft_of(method: str, model: Path) -> str | None:
    kind = KINDS.get(method, "model")
    return str(model) if kind == "model" else str(HEADS[kind]) if kind else None


@pytest.fixture(scope="module")
def opened(f32_pair: dict[str, Path]) -> Iterator[Opening]:
    """Return what loads the pair of a method, once for each draft."""
    made: list[LoadedPair] = []

    @cache
    def load(draft: str | None) -> LoadedPair:
        settings = LoadSettings(str(f32_pair["target"]), draft, ctx=1024, threads=1, kv_type="f32", flash_attn="off")
        made.append(pair.load_pair(settings)[0])
        return made[-1]

    yield lambda method: load(draft_of(method, f32_pair["draft"]))
    for session in made:
        session.close()


@pytest.fixture(scope="module")
def raw(f32_pair: dict[str, Path]) -> Iterator[RawContext]:
    options = LoadOptions(n_ctx=1024, threads=1, kv_type="f32", flash_attn="off")
    with Model(f32_pair["target"], options) as model, RawContext(model, options) as context:
        yield context


def rows_of(raw: RawContext, told: Told, *, at_once: bool) -> list[Logits]:
    """Return the row before each token of the answer, from passes of one token or from one of all."""
    raw.remove(0)
    text = [*told.prompt, *told.tokens][:-1]
    if at_once:
        rows = list(raw.decode(text, 0))
    else:
        rows = [raw.decode([token], at)[0] for at, token in enumerate(text)]
    return rows[len(told.prompt) - 1 :]


@pytest.mark.parametrize("method", METHODS)
def test_every_drafter_tells_those_of_plain_passes(opened: Opening, raw: RawContext, method: str) -> None:
    told = ask(opened(method), replace(REQUEST, speculation=Speculation(method=method)))
    assert len(told.tokens) == 120
    assert told.accepted > 0 or method in ("auto", "plain", "copy", "suffix", "prompt-lookup")
    laws = [log_softmax(row) for row in rows_of(raw, told, at_once=False)]
    for law, logprob in zip(laws, told.logprobs, strict=True):
        assert logprob.logprob == pytest.approx(law[logprob.id], abs=DRIFT)
        assert len(logprob.top) == 5
        for rank, likely in enumerate(logprob.top):
            assert likely.logprob == pytest.approx(law[likely.id], abs=DRIFT)
            assert likely.logprob == pytest.approx(np.sort(law)[-1 - rank], abs=DRIFT)


def test_forced_tokens_have_those_of_the_models_own_row(opened: Opening, raw: RawContext) -> None:
    """Before the sampler a form changes nothing: what it forced may be most unlikely."""
    schema = '{"type": "object", "properties": {"name": {"enum": ["Ann", "Bob"]}}, "required": ["name"]}'
    request = replace(REQUEST, schema=schema, speculation=Speculation(method="draft-model"))
    told = ask(opened("draft-model"), request)
    for row, logprob in zip(rows_of(raw, told, at_once=False), told.logprobs, strict=True):
        assert logprob.logprob == pytest.approx(log_softmax(row)[logprob.id], abs=DRIFT)
    after = ask(opened("draft-model"), replace(request, is_after_sampler=True))
    assert after.own.sum() > told.own.sum() + 5


@pytest.mark.parametrize("method", ["plain", "draft-model"])
def test_their_sum_is_that_of_a_perplexity_run(opened: Opening, raw: RawContext, method: str) -> None:
    told = ask(opened(method), replace(REQUEST, speculation=Speculation(method=method)))
    read = [log_softmax(row)[token] for row, token in zip(rows_of(raw, told, at_once=True), told.tokens, strict=True)]
    assert told.own.sum() == pytest.approx(sum(read), abs=0.02)
    assert np.exp(-told.own.mean()) == pytest.approx(np.exp(-np.mean(read)), rel=1e-3)


@pytest.mark.parametrize("method", ["plain", "draft-model", "eagle3"])
def test_after_the_sampler_they_are_of_the_law_that_was_drawn_from(
    opened: Opening, raw: RawContext, method: str
) -> None:
    """Penalties see what stands before each token, drafted tokens of the pass included; no filter has an edge here."""
    sampling = Sampling(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.3, seed=11)
    request = replace(REQUEST, sampling=sampling, is_after_sampler=True, speculation=Speculation(method=method))
    told = ask(opened(method), request)
    text = [*told.prompt, *told.tokens]
    for at, (row, logprob) in enumerate(zip(rows_of(raw, told, at_once=False), told.logprobs, strict=True)):
        dist = Sampler(sampling).dist(row, text[: len(told.prompt) + at])
        assert logprob.logprob == pytest.approx(np.log(dist.prob(logprob.id)), abs=2 * DRIFT)
    filtered = ask(opened(method), replace(request, sampling=Sampling(temperature=0.0)))
    assert set(filtered.own) == {0.0}, "greedy decoding leaves one token"
    assert {len(each.top) for each in filtered.logprobs} == {1}


@pytest.mark.parametrize("is_after", [False, True])
def test_reproducible_ones_are_equal_to_the_bit(is_after: bool) -> None:
    settings = LoadSettings(str(pair.TARGET), str(pair.DRAFT), threads=1, reproducible=True)
    session, _ = pair.load_pair(settings)
    request = replace(REQUEST, is_after_sampler=is_after)
    expected = ask(session, replace(request, speculation=Speculation(method="plain")))
    for method in ("draft-model", "suffix", "prompt-lookup", "auto"):
        told = ask(session, replace(request, speculation=Speculation(method=method)))
        assert told.logprobs == expected.logprobs, method
        assert told.accepted > 0 or method != "draft-model"
    session.close()


def test_nothing_is_told_that_nobody_asked_for(opened: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.engine.judge.log_softmax", lambda row: pytest.fail("computed"))
    told = [*opened("draft-model").answer(replace(REQUEST, logprobs=None))]
    assert not any(event.logprobs for event in told if isinstance(event, events.Committed))
