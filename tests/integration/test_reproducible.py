"""`--reproducible` on real llama.cpp: whatever drafts, the text is that of plain decoding, token by token.

One thread decodes, and two where their sharing of the work matters: two that spin on shared cores wait for each other.

With LOCALSPEC_REAL, a folder of real models, these are compared, too.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.options import LoadOptions
from localspec.engine import events
from localspec.engine.protocols import Cancelled
from localspec.errors import UsageError
from localspec.session.exact_widths import exact_widths
from localspec.session.loaded_model import inspect_model
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.session.placement import PairFiles
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from tests.integration import pair

FLASH = LoadOptions(n_ctx=1024, threads=2, flash_attn="on")
METHODS = ("auto", "draft-model", "suffix", "prompt-lookup", "lookahead")
PROMPTS = (*pair.OPENINGS[:3], "The king had three sons, and the king had three daughters. " * 12)
REAL = Path(os.environ.get("LOCALSPEC_REAL", ""))
NAMES = (
    ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    ("gemma-3-270m-q4_k_m.gguf", None),
)


def never() -> bool:
    return False


def opened(target: Path, draft: Path | None, threads: int = 1, **settings: Any) -> LoadedPair:
    wanted = LoadSettings(
        str(target), None if draft is None else str(draft), threads=threads, reproducible=True, **settings
    )
    return pair.load_pair(wanted, never)[0]


@pytest.fixture(scope="module")
def session() -> Iterator[LoadedPair]:
    made = opened(pair.TARGET, pair.DRAFT)
    yield made
    made.close()


@pytest.fixture(scope="module")
def two_threads() -> Iterator[LoadedPair]:
    made = opened(pair.TARGET, pair.DRAFT, threads=2)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("is_reproducible", "flash_attn", "expected"),
    [(False, "auto", "auto"), (False, "on", "on"), (True, "auto", "on"), (True, "off", "off")],
)
def test_only_reproducible_targets_are_loaded_so(is_reproducible: bool, flash_attn: str, expected: str) -> None:
    settings = LoadSettings(str(pair.TARGET), reproducible=is_reproducible, flash_attn=flash_attn)
    options = PairFiles(settings, inspect_model(settings.target)).target_options()
    assert (options.reproducible, options.flash_attn) == (is_reproducible, expected)


def answer(session: LoadedPair, request: Request) -> tuple[list[int], list[events.Event]]:
    told = list(session.answer(request))
    return [piece.id for event in told if isinstance(event, events.Committed) for piece in event.out], told


def drafted(told: list[events.Event]) -> int:
    return sum(event.k for event in told if isinstance(event, events.Committed))


def warnings(told: list[events.Event]) -> list[str]:
    return [event.message for event in told if isinstance(event, events.Warned)]


def plain(request: Request) -> Request:
    return replace(request, speculation=Speculation(method="plain"))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("prompt", "widest"), list(zip(PROMPTS, (16, 3, 4, 3), strict=True)))
def test_the_text_is_that_of_plain_decoding(
    session: LoadedPair, prompt: str, temperature: float, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_texts(session, prompt, temperature, widest, monkeypatch)


@pytest.mark.parametrize(("prompt", "widest"), [(PROMPTS[0], 16), (PROMPTS[-1], 3)])
def test_two_threads_change_nothing(
    two_threads: LoadedPair, prompt: str, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past 256 tokens too, where they attend to a row alone in another way than to several."""
    check_texts(two_threads, prompt, 0.8, widest, monkeypatch)


def check_texts(
    session: LoadedPair, prompt: str, temperature: float, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the text of each method with that of plain decoding, in passes of at most `widest` rows."""
    widths = session.widths
    assert len(widths) >= widest, "what the kernels of this machine give"
    session = replace(session, widths=widths[:widest])
    request = Request(prompt=prompt, max_tokens=300, sampling=Sampling(temperature=temperature, seed=11), cold=True)
    expected, _ = answer(session, plain(request))
    for method in METHODS:
        got, told = answer(session, replace(request, speculation=Speculation(method=method)))
        assert got == expected, method
        assert max(event.rows for event in told if isinstance(event, events.Committed)) <= widest
        assert drafted(told) > 0 or method in ("auto", "lookahead", "suffix", "prompt-lookup")
        assert ("so decoding is plain" in str(warnings(told))) == (method == "lookahead")
        (started,) = [event for event in told if isinstance(event, events.Started)]
        assert started.widths == widths[:widest]


def test_copies_are_drafted(session: LoadedPair) -> None:
    """Else equal texts would show nothing of them."""
    request = Request(prompt=PROMPTS[-1], max_tokens=100, sampling=Sampling(temperature=0.0), cold=True)
    for method in ("suffix", "prompt-lookup"):
        _, told = answer(session, replace(request, speculation=Speculation(method=method)))
        assert drafted(told) > 0


def test_without_a_seed_one_is_drawn_that_gives_the_text(session: LoadedPair) -> None:
    request = Request(prompt="Once", max_tokens=60, sampling=Sampling(temperature=0.8), cold=True)
    text, told = answer(session, replace(request, speculation=Speculation(method="draft-model")))
    (started,) = [event for event in told if isinstance(event, events.Started)]
    assert not started.is_seeded
    seeded = replace(request, sampling=replace(request.sampling, seed=started.seed))
    assert answer(session, plain(seeded))[0] == text


def test_a_chat_does_not_depend_on_what_the_cache_holds(session: LoadedPair) -> None:
    """The turns are drafted, then decoded plainly; then an answer is given again, and from empty caches."""
    texts = []
    for method in ("draft-model", "plain"):
        messages: tuple[Message, ...] = ()
        for turn, words in enumerate((PROMPTS[-1], "Then?", "And then?")):
            messages += (Message("user", words),)
            request = Request(
                messages=messages, max_tokens=60, sampling=Sampling(temperature=0.8, seed=turn), cold=turn == 0,
                speculation=Speculation(method=method),
            )  # fmt: skip
            tokens, told = answer(session, request)
            texts.append(tokens)
            text = "".join(event.text for event in told if isinstance(event, events.Committed))
            messages += (Message("assistant", text),)
    assert texts[:3] == texts[3:]
    assert answer(session, request)[0] == texts[-1]
    assert answer(session, replace(request, cold=True))[0] == texts[-1]


def test_a_prompt_is_read_in_the_same_chunks_whatever_the_cache_holds() -> None:
    text = np.random.default_rng(1).integers(4096, size=700).tolist()
    with pair.backend(pair.TARGET, replace(FLASH, reproducible=True)) as backend:
        cold = backend.prefill(text, never).logits(0).copy()
        for again, kept in ((text, 512), ([*text[:600], 5, *text[600:]], 512), ([*text[:500], 5], 0)):
            assert backend.cached(again) == kept
            warm = backend.prefill(again, never).logits(0).copy()
            backend.truncate(0)
            assert np.array_equal(warm, backend.prefill(again, never).logits(0))
            backend.truncate(0)
            assert np.array_equal(cold, backend.prefill(text, never).logits(0))
        backend.truncate(0)
        backend.prefill(text[:512], never)
        assert backend.cached(text[:512]) == 0, "the last token is evaluated, and so its chunk"
        for token in text[512:]:
            backend.extend([token], [-1])
            backend.keep((0,))
        assert backend.cached(text) == 512


@pytest.mark.parametrize(("is_reproducible", "least"), [(True, 2), (False, 1)])
def test_attention_of_one_row_is_that_of_several(is_reproducible: bool, least: int) -> None:
    """Two threads share the entries of a row alone, from 257 on, and not those of several rows."""
    with pair.backend(pair.TARGET, replace(FLASH, reproducible=is_reproducible)) as backend:
        widths = measured(backend)
        assert len(widths) >= least
        assert is_reproducible or widths == (1,)


def measured(backend: LlamaBackend) -> tuple[int, ...]:
    run = exact_widths(backend, never)
    while True:
        try:
            next(run)
        except StopIteration as done:
            widths: tuple[int, ...] = done.value
            return widths


def test_what_was_measured_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For the target, whatever drafts for it. Then plain decoding without the flag is measured for itself."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    first = opened(pair.TARGET, pair.DRAFT, ctx=512)
    widths = first.widths
    first.close()
    monkeypatch.setattr("localspec.session.exact_widths.exact_widths", None)
    for draft in (pair.DRAFT, None):
        again = opened(pair.TARGET, draft, ctx=512)
        assert again.widths == widths
        again.close()
    with pytest.raises(TypeError, match="not callable"):
        opened(pair.TARGET, None, ctx=1024)


def test_a_measurement_can_be_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    is_stopped = False
    loading = load(LoadSettings(str(pair.TARGET), reproducible=True), lambda: is_stopped)
    while not isinstance(event := next(loading), events.Loading) or event.fraction < 1.0:
        pass
    is_stopped = True
    with pytest.raises(Cancelled):
        list(loading)
    assert not list((tmp_path / "cache" / "profiles").glob("*"))


def test_a_length_beyond_what_is_exact_is_refused(session: LoadedPair) -> None:
    with pytest.raises(UsageError, match="-k 40 needs passes of 41 rows") as caught:
        list(session.answer(Request(prompt="x", speculation=Speculation(k=40))))
    assert caught.value.hint == f"-k {len(session.widths) - 1}"


def test_where_one_row_alone_is_exact_decoding_is_plain(session: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    session = replace(session, widths=(1,))
    request = Request(prompt=PROMPTS[-1], max_tokens=40, sampling=Sampling(temperature=0.8, seed=3), cold=True)
    for method in ("auto", "draft-model", "suffix"):
        _, told = answer(session, replace(request, speculation=Speculation(method=method)))
        assert {event.rows for event in told if isinstance(event, events.Committed)} == {0, 1}
        assert "no pass of several rows" in warnings(told)[0]


@pytest.mark.parametrize("names", NAMES, ids=lambda names: str(names[0])[:8])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_real_models(names: tuple[str, str | None], temperature: float) -> None:
    target, draft = (None if name is None else REAL / name for name in names)
    if not os.environ.get("LOCALSPEC_REAL") or target is None or not target.exists():
        pytest.skip("LOCALSPEC_REAL names no folder of real models")
    session = opened(target, draft, ctx=2048)
    words = "Write a Python function that merges two sorted lists, and a second one that merges three of them."
    request = Request(
        messages=(Message("user", words),), max_tokens=48, sampling=Sampling(temperature=temperature, seed=5), cold=True
    )
    try:
        expected, _ = answer(session, plain(request))
        n_drafted = 0
        for method in ("auto", "suffix", *(() if draft is None else ("draft-model",))):
            got, told = answer(session, replace(request, speculation=Speculation(method=method)))
            assert got == expected, method
            n_drafted += drafted(told)
        assert n_drafted > 0 or session.widths == (1,)
    finally:
        session.close()
