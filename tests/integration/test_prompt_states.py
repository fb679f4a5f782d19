"""Prompts that were read before: put back from memory and from disk they answer as if they had been read anew."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.llama_cpp import Model
from localspec.backends.options import LoadOptions
from localspec.backends.saved_state import SavingBackend
from localspec.engine.events import Committed, Prefilled, Warned
from localspec.session.loaded_pair import LoadedPair
from localspec.session.prompt_states import PromptStates
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.worker.client import Worker
from tests.integration import pair
from tests.integration.gguf_models import EXACT, SLIDING, never, random_gguf
from tests.integration.stateful_models import ARCHS, ROLLING, stateful_gguf

LONG = "The old woman sat by the fire and told the three brothers of the king who lived in the forest. " * 27
REQUEST = Request(
    prompt=f"{LONG}Then",
    max_tokens=24,
    keeps=True,
    sampling=Sampling(temperature=0.0),
    speculation=Speculation(method="plain"),
)
OTHER = replace(REQUEST, prompt=f"{LONG}At last")
SETTINGS = LoadSettings(str(pair.TARGET))
PAIR = LoadSettings(str(pair.TARGET), str(pair.DRAFT))
TOKENS = [100 + 37 * i % 300 for i in range(90)]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))


def opened(settings: LoadSettings = SETTINGS) -> closing[LoadedPair]:
    return closing(pair.load_pair(settings)[0])


def asked(loaded: LoadedPair, request: Request = REQUEST) -> tuple[str, Prefilled, list[str]]:
    """Answer, and do what waits for idle time; return the text, how the prompt was read, and warnings of states."""
    told = list(loaded.answer(request))
    loaded.idle(never)
    text = "".join(event.text for event in told if isinstance(event, Committed))
    warned = [event.message for event in told if isinstance(event, Warned) and event.code == "state"]
    return text, next(event for event in told if isinstance(event, Prefilled)), warned


def cold(request: Request, settings: LoadSettings = SETTINGS) -> str:
    """Return the text of an answer that is given without any state."""
    with opened(replace(settings, cache_disk="0", cache_ram="0")) as loaded:
        return asked(loaded, request)[0]


def files() -> list[Path]:
    return sorted(cache_folder("states").glob("*.state"))


@pytest.mark.parametrize(
    "options",
    [
        EXACT,
        replace(EXACT, flash_attn="on", kv_type="f16"),
        replace(EXACT, flash_attn="on", kv_type="q8_0"),
        replace(EXACT, flash_attn="on", reproducible=True, kv_type="f16"),
    ],
    ids=["F32", "flash attention", "quantised", "reproducible"],
)
@pytest.mark.parametrize("length", [90, 64, 31, 1])
def test_rows_after_a_restored_text_have_the_bits_of_one_that_stayed(options: LoadOptions, length: int) -> None:
    with ExitStack() as stack:
        model = stack.enter_context(Model(pair.TARGET, options))
        source, target = (stack.enter_context(SavingBackend(model, options)) for _ in range(2))
        source.prefill(TOKENS, never)
        target.prefill(TOKENS[40:60], never)
        assert target.restore(source.save(), length)
        source.truncate(length)
        assert list(target.tokens) == TOKENS[:length]
        assert np.array_equal(source.extend([7], [-1]).logits(0), target.extend([7], [-1]).logits(0))
        source.keep([0])
        target.keep([0])
        target.check()
        wanted = [*TOKENS[:length], 7, *range(20, 60)]
        assert target.cached(wanted) == source.cached(wanted)
        assert np.array_equal(source.prefill(wanted, never).logits(0), target.prefill(wanted, never).logits(0))


def test_llama_cpp_does_not_write_what_lies_before_a_window() -> None:
    """It would be lacking where the text is taken back."""
    with ExitStack() as stack:
        model = stack.enter_context(Model(random_gguf(SLIDING), EXACT))
        source, target = (stack.enter_context(SavingBackend(model, EXACT)) for _ in range(2))
        source.prefill(TOKENS, never)
        target.prefill(TOKENS, never)
        target.truncate(0)
        assert target._put(source._written(0), 0)
        target._cache.restored(90, ())
        target._tokens += TOKENS
        for each in (source, target):
            each.truncate(64)
        rows = (each.extend([7], [-1]).logits(0) for each in (source, target))
        assert np.abs(np.subtract(*rows)).max() > 0.01


@pytest.mark.parametrize("length", [90, 64, 31, 1])
@pytest.mark.parametrize("n_drafts", [0, 40])
def test_a_window_is_saved_block_by_block(length: int, n_drafts: int) -> None:
    """All of it comes back, nothing of it is overwritten by what follows, and trees find free sequences."""
    options = replace(EXACT, n_batch=64)
    with ExitStack() as stack:
        model = stack.enter_context(Model(random_gguf(SLIDING), options))
        source, target = (stack.enter_context(SavingBackend(model, options)) for _ in range(2))
        source.prefill(TOKENS, never)
        source.extend([5, 6, 7], [-1, -1, 0])
        source.keep([1])
        source.truncate(90)
        target.prefill(TOKENS[40:60], never)
        assert source.can_save
        assert target.restore(source.save(), 90)
        source.check()
        target.check()
        for turn in range(n_drafts):  # further than a window
            rows = [each.extend([turn, 6, 7], [-1, -1, 0]).logits(2).copy() for each in (source, target)]
            assert np.array_equal(*rows)
            for each in (source, target):
                each.keep([0, 2])
        for each in (source, target):
            each.truncate(length)
            each.check()
        rows = [each.extend([7], [-1]).logits(0) for each in (source, target)]
        assert np.array_equal(*rows)


@pytest.mark.parametrize(
    ("has_window", "max_leaves", "chunked", "can_save"),
    [
        pytest.param(False, 1, "gemma3", True, id="no window"),
        pytest.param(True, 2, "llama4", True, id="a window"),
        pytest.param(True, 1, "llama4", False, id="no sequence is free"),
        pytest.param(True, 2, "gemma3", False, id="a window that begins anew"),
    ],
)
def test_a_window_is_saved_where_a_sequence_is_free_and_it_slides(
    monkeypatch: pytest.MonkeyPatch, has_window: bool, max_leaves: int, chunked: str, can_save: bool
) -> None:
    monkeypatch.setattr("localspec.backends.saved_state.CHUNKED", {chunked})
    path, options = random_gguf(SLIDING) if has_window else pair.TARGET, replace(EXACT, max_leaves=max_leaves)
    with Model(path, options) as model, SavingBackend(model, options) as backend:
        assert backend.can_save == can_save


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("length", [90, 64, 40])
def test_a_restored_state_has_the_bits_of_one_that_stayed(arch: str, length: int) -> None:
    """At the end, where a state was kept, and between two, where the next pass reads some tokens again."""
    options = replace(EXACT, keeps_prompt=True, rollback=4 if arch in ROLLING else 0)
    with ExitStack() as stack:
        model = stack.enter_context(Model(stateful_gguf(arch), options))
        source, target = (stack.enter_context(SavingBackend(model, options)) for _ in range(2))
        source.prefill(TOKENS[:40], never)
        source.prefill(TOKENS, never)
        target.prefill(TOKENS[40:60], never)
        saved = source.save()
        assert saved.ends == (40, 90, 90)
        assert [target.usable(saved.ends, 90, n) for n in (39, 64, 90)] == [0, 40, 90]
        assert target.restore(saved, length)
        source.truncate(length)
        target.check()
        rows = [each.extend([7], [-1]).logits(0) for each in (source, target)]
        assert np.array_equal(*rows)
        for each in (source, target):
            each.keep([0])
        target.check()
        wanted = [*TOKENS[:length], 7, 8, 9]
        assert np.array_equal(source.prefill(wanted, never).logits(0), target.prefill(wanted, never).logits(0))


@pytest.mark.parametrize("arch", ["qwen35", "granitehybrid", "mamba2"])
def test_hybrids_read_the_end_of_a_prompt_from_disk(arch: str) -> None:
    """A restart, then the same beginning with another end: what is read again is a chunk at most."""
    settings = LoadSettings(str(stateful_gguf(arch)), ctx=2048)
    begin = "the king and the queen went into the wood " * 60
    first, second = (replace(REQUEST, prompt=begin + end) for end in ("where they", "and nobody"))
    expected = cold(second, settings)
    with opened(settings) as loaded:
        prompt_n = asked(loaded, first)[1].prompt_n
        assert prompt_n > 540
    with opened(settings) as loaded:
        found, prefilled, warned = asked(loaded, second)
        assert prefilled.cache_n == prompt_n // 512 * 512
        assert (found, warned) == (expected, [])


def test_a_context_that_grows_takes_a_text_of_another_length() -> None:
    """Weights of a size from which on contexts grow: 600 tokens go into one that begins with 512 positions."""
    options = LoadOptions(n_ctx=2048, threads=1, flash_attn="off")
    tokens = [100 + 37 * i % 300 for i in range(600)]
    with ExitStack() as stack:
        model = stack.enter_context(Model(pair.TARGET, options, n_bytes=1 << 40))
        source, target = (stack.enter_context(SavingBackend(model, options)) for _ in range(2))
        source.prefill(tokens, never)
        assert target.restore(source.save(), 600)
        assert np.array_equal(source.extend([7], [-1]).logits(0), target.extend([7], [-1]).logits(0))


@pytest.mark.parametrize("settings", [SETTINGS, replace(SETTINGS, reproducible=True)], ids=["as usual", "reproducible"])
def test_another_process_reads_only_the_end_of_a_prompt(settings: LoadSettings) -> None:
    with opened(settings) as first:
        text, prefilled, _ = asked(first)
        assert prefilled.cache_n == 0
    for request in (REQUEST, OTHER):
        with opened(settings) as second:
            found, again, warned = asked(second, request)
            assert again.cache_n >= (512 if settings.reproducible else again.prompt_n - 4)
            assert not warned
            if settings.reproducible or request is REQUEST:
                assert found == cold(request, settings)
    assert text == cold(REQUEST, settings)


@pytest.mark.parametrize("method", ["draft-model", "auto"])
def test_the_draft_model_has_its_text_too(method: str) -> None:
    request = replace(REQUEST, speculation=Speculation(method=method))
    with opened(PAIR) as first:
        text, _, _ = asked(first, request)
        assert first.draft is not None
        was_read = first.draft.backend.length > 500
    assert len(files()) == 1 + was_read
    with opened(PAIR) as second:
        assert second.draft is not None
        before = second.draft.backend.evaluated
        again, prefilled, _ = asked(second, request)
        assert prefilled.cache_n == prefilled.prompt_n - 1
        assert again == text
        assert not was_read or second.draft.backend.evaluated - before < 200


def test_a_conversation_goes_on_where_it_was() -> None:
    with opened() as first:
        text, prefilled, _ = asked(first)
    more = replace(REQUEST, prompt=f"{REQUEST.prompt}{text} And so")
    with opened() as second:
        _, again, _ = asked(second, more)
        assert again.cache_n > prefilled.prompt_n + 10
    assert len(files()) == 1, "the longer text has the shorter one's place"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"kv_type": "q8_0"}, id="cache type"),
        pytest.param({"flash_attn": "on"}, id="attention"),
        pytest.param({"reproducible": True}, id="mixed types"),
        pytest.param({"target": str(pair.DRAFT)}, id="model"),
    ],
)
def test_a_state_of_another_kind_is_not_looked_at(change: dict[str, Any]) -> None:
    with opened() as first:
        asked(first)
    with opened(replace(SETTINGS, **change)) as second:
        assert asked(second)[1].cache_n == 0


def test_a_state_of_another_rotation_or_layout_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(EXACT, flash_attn="on", kv_type="q8_0")
    with Model(pair.TARGET, options) as model, SavingBackend(model, options) as backend:
        facts = backend.facts
        monkeypatch.setenv("LLAMA_ATTN_ROT_DISABLE", "1")
        assert backend.facts != facts
        monkeypatch.delenv("LLAMA_ATTN_ROT_DISABLE")
        monkeypatch.setattr(model, "options", replace(options, repack=False))
        assert backend.facts != facts


@pytest.mark.parametrize("request_", [replace(REQUEST, keeps=False), replace(REQUEST, cold=True)], ids=["", "cold"])
def test_nothing_is_written_of_a_text_that_is_not_kept(request_: Request) -> None:
    with opened() as loaded:
        asked(loaded, request_)
    assert not cache_folder("states").exists()


def test_nothing_is_written_where_the_disk_may_not_be_used() -> None:
    with opened(replace(SETTINGS, cache_disk="0")) as loaded:
        asked(loaded)
    assert not cache_folder("states").exists()


def test_nothing_is_kept_of_a_model_whose_state_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.backends.saved_state.SavingBackend.can_save", False)
    with opened() as loaded:
        text = asked(loaded)[0]
        asked(loaded, replace(OTHER, prompt="Never"))
        assert asked(loaded)[0] == text
    assert not files()


def test_a_state_that_is_slower_to_read_than_to_make_is_left_alone() -> None:
    with opened() as first:
        text, prefilled, _ = asked(first)
    (file,) = files()
    assert file.stat().st_size / 1e6 > 1.5e-3 * prefilled.prompt_n
    (cache_folder("states") / "read-rate").write_text("1000000")
    with opened() as second:
        found, prefilled, warned = asked(second)
    assert (found, prefilled.cache_n, warned) == (text, 0, [])


def test_what_is_asked_for_meanwhile_goes_first() -> None:
    with opened() as loaded:
        list(loaded.answer(REQUEST))
        loaded.idle(lambda: True)
        assert not files()
        loaded.idle(never)
        assert len(files()) == 1


@pytest.mark.parametrize(("at", "is_told"), [(0.5, 1), (-40, 1), (100, 0)], ids=["state", "checksum", "tokens"])
def test_a_damaged_state_is_told_once_at_most_and_read_anew(at: float, is_told: int) -> None:
    with opened() as first:
        text, _, _ = asked(first)
    (file,) = files()
    data = bytearray(file.read_bytes())
    data[int(at * len(data)) if at == 0.5 else int(at)] ^= 1
    file.write_bytes(data)
    for told, is_read in ((is_told, False), (0, True)):
        with opened() as second:
            found, prefilled, warned = asked(second)
            assert found == text
            assert (prefilled.cache_n > 20) == is_read
            assert len(warned) == told


def test_memory_goes_back_to_another_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the memory that is free is for that, unless --cache-ram says how much."""
    others = [f"{word} {LONG[:900]}" for word in ("Once", "Never")]
    first, second = (replace(REQUEST, prompt=text, keeps=False) for text in others)
    with opened() as loaded:
        texts = [asked(loaded, request)[0] for request in (first, second)]
        for request, text in ((first, texts[0]), (second, texts[1]), (first, texts[0])):
            found, prefilled, _ = asked(loaded, request)
            assert prefilled.cache_n == prefilled.prompt_n - 1
            assert found == text
    monkeypatch.setattr("localspec.session.prompt_states.available_memory", lambda: 4000)
    for settings in (SETTINGS, replace(SETTINGS, cache_ram="1kB")):
        with opened(settings) as loaded:
            for request in (first, second, first):
                assert asked(loaded, request)[1].cache_n < 20
    assert not files()


def test_the_engine_writes_once_nobody_waits_for_it() -> None:
    """The real process: what it read is on disk when it has ended."""
    with Worker() as worker:
        list(worker.load(SETTINGS))
        list(worker.generate(REQUEST))
    assert len(files()) == 1
    with opened() as second:
        assert asked(second)[1].cache_n > 500


@pytest.fixture(scope="module", autouse=True)
def _measured() -> Iterator[None]:
    """Each token takes a millisecond, however busy the machine is, and any saving is worth a file."""
    prefilled = PromptStates.prefilled

    def evenly(states: PromptStates, event: Prefilled) -> None:
        prefilled(states, replace(event, ms=float(max(event.prompt_n - event.cache_n, 1))))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("localspec.session.prompt_states.WORTH", 0.0)
        patch.setattr("localspec.session.prompt_states.QUICKER", 0.0)
        patch.setattr(PromptStates, "prefilled", evenly)
        yield
