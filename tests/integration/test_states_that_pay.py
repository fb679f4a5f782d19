"""What is kept of a text and what is read back, by figures: each case lies just beside its bound."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from localspec.backends.saved_state import SavingBackend
from localspec.engine.events import Prefilled, Warned
from localspec.session.loaded_model import LoadedModel
from localspec.session.loaded_pair import LoadedPair
from localspec.session.prompt_states import PromptStates
from localspec.settings.folders import states_folder
from localspec.settings.request import LoadSettings, Request
from tests.integration import pair
from tests.integration.gguf_models import never

SETTINGS = LoadSettings(str(pair.TARGET))
KEEPS = Request(prompt="", keeps=True)
TEXT = [100 + 37 * i % 300 for i in range(200)]
OTHER = [101 + 31 * i % 300 for i in range(200)]
THIRD = [102 + 29 * i % 300 for i in range(200)]
FAST = 1e12  # bytes a second: what is read back costs nothing


@pytest.fixture(scope="module")
def loaded() -> Iterator[LoadedPair]:
    with closing(pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT)))[0]) as opened:
        yield opened


@pytest.fixture
def target(loaded: LoadedPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """The target with an empty context, a home folder of its own, and a disk whose speed was measured."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    loaded.target.backend.truncate(0)
    reads(FAST)
    return loaded.target


def reads(rate: float) -> None:
    states_folder().mkdir(parents=True, exist_ok=True)
    (states_folder() / "read-rate").write_text(str(rate))


def files() -> list[Path]:
    return sorted(states_folder().glob("*.state"), key=lambda path: path.stat().st_size)


def begin(states: PromptStates, model: LoadedModel, tokens: Sequence[int], request: Request = KEEPS) -> list[str]:
    """Begin with a prompt; return the warnings."""
    return [event.code for event in states.begin(request, [model], tokens) if isinstance(event, Warned)]


def answer(states: PromptStates, model: LoadedModel, tokens: Sequence[int], seconds: float) -> None:
    """Read a prompt, each token of which takes so many seconds, and have nothing else to do after it."""
    begin(states, model, tokens)
    model.backend.prefill(tokens, never)
    states.prefilled(Prefilled(len(tokens), 0, 1e3 * seconds * len(tokens)))
    states.idle(never)


@pytest.mark.parametrize(("share", "is_written"), [(1.02, True), (0.98, False)])
@pytest.mark.parametrize("rate", [FAST, 1e6])
def test_a_state_is_written_if_it_saves_the_twentieth_of_a_second_and_twice_its_reading(
    target: LoadedModel, rate: float, share: float, is_written: bool
) -> None:
    reads(rate)
    target.backend.prefill(TEXT, never)
    least = max(0.05, 3 * target.backend.n_state_bytes / rate)
    assert (least > 0.05) == (rate < FAST)
    target.backend.truncate(0)
    answer(PromptStates(SETTINGS), target, TEXT, share * least / len(TEXT))
    assert len(files()) == is_written


def test_what_a_longer_text_adds_decides_whether_it_is_written(target: LoadedModel) -> None:
    states = PromptStates(SETTINGS)
    for n, n_files in ((31, 0), (32, 1), (100, 1), (131, 1), (132, 1)):
        answer(states, target, TEXT[:n], 1.0)
        assert len(files()) == n_files
        sizes = [path.stat().st_size for path in files()]
        if n == 131:
            known = sizes
    assert sizes > known, "of 32 tokens more"
    answer(states, target, TEXT[:190], 0.05 / 60)
    assert [path.stat().st_size for path in files()] == sizes, "58 tokens more are quick to evaluate"


def test_a_draft_takes_the_share_of_its_size(loaded: LoadedPair, target: LoadedModel) -> None:
    """The target's seconds are measured. The draft's text is written where its own share of them is worth it."""
    assert loaded.draft is not None
    share = loaded.draft.info.bytes / target.info.bytes
    for factor, n_files in ((0.98, 1), (1.02, 2)):
        for each in (target, loaded.draft):
            each.backend.truncate(0)
        states = PromptStates(SETTINGS)
        list(states.begin(KEEPS, [target, loaded.draft], TEXT))
        for each in (target, loaded.draft):
            each.backend.prefill(TEXT, never)
        states.prefilled(Prefilled(len(TEXT), 0, 1e3 * factor * 0.05 / share))
        states.idle(never)
        assert len(files()) == n_files


def test_few_tokens_tell_how_long_one_takes_until_more_do(target: LoadedModel) -> None:
    """Of a prompt only what was evaluated counts; an empty rest is one token, the last."""
    for n_read, seconds, is_written in ((15, 1.0, False), (16, 1.0, True)):
        target.backend.truncate(0)
        states = PromptStates(SETTINGS)
        begin(states, target, TEXT)
        target.backend.prefill(TEXT, never)
        states.prefilled(Prefilled(200, 200, 1e-3))
        states.prefilled(Prefilled(200, 200 - n_read, 1e3 * seconds))
        states.idle(never)
        assert len(files()) == is_written
    reads(FAST)
    states = PromptStates(SETTINGS)
    target.backend.truncate(0)
    begin(states, target, OTHER)
    target.backend.prefill(OTHER, never)
    states.prefilled(Prefilled(200, 198, 1e3))
    states.idle(never)
    assert len(files()) == 2, "half a second a token, by the only two that were read"


@pytest.mark.parametrize(("share", "is_written"), [(1.02, True), (0.98, False)])
def test_a_prompt_that_was_all_there_took_the_time_of_one_token(
    target: LoadedModel, share: float, is_written: bool
) -> None:
    states = PromptStates(SETTINGS)
    begin(states, target, TEXT)
    target.backend.prefill(TEXT, never)
    states.prefilled(Prefilled(200, 200, 1e3 * share * 0.05 / len(TEXT)))
    states.idle(never)
    assert len(files()) == is_written


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (0.25, 0.25)])
def test_a_state_on_disk_tells_how_long_a_token_takes_where_nobody_knows(
    target: LoadedModel, before: float, after: float
) -> None:
    """Two tokens that were slow do not tell better."""
    answer(PromptStates(SETTINGS), target, TEXT[:198], 1.0)
    target.backend.truncate(0)
    states = PromptStates(SETTINGS)
    states._seconds = before
    begin(states, target, TEXT)
    assert target.backend.length == 198
    states.prefilled(Prefilled(200, 198, 60e3))
    assert states._seconds == after


def test_a_text_that_is_not_kept_is_read_from_memory_alone(target: LoadedModel) -> None:
    """And nothing is read from the disk that memory has as well."""
    states = PromptStates(SETTINGS)
    answer(states, target, TEXT, 1.0)
    (file,) = files()
    for is_in_memory, request, length in ((False, replace(KEEPS, keeps=False), 0), (True, KEEPS, 199)):
        target.backend.truncate(0)
        if is_in_memory:
            target.backend.prefill(TEXT, never)
            states.stow(target)
            target.backend.truncate(0)
        os.utime(file, (1, 1))
        begin(states, target, TEXT, request)
        assert target.backend.length == length
        assert file.stat().st_mtime == 1, "it was not read"


def test_a_text_as_long_as_the_context_is_taken_and_a_longer_one_is_not(
    target: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with a longer context wrote it."""
    answer(PromptStates(SETTINGS), target, TEXT, 1.0)
    backend = target.backend
    for n_ctx, length in ((200, 199), (199, 0)):
        backend.truncate(0)
        monkeypatch.setattr(backend, "capabilities", replace(backend.capabilities, n_ctx=n_ctx))
        begin(PromptStates(SETTINGS), target, TEXT)
        assert backend.length == length


def test_the_end_of_a_text_that_mostly_stays_is_not_copied(target: LoadedModel) -> None:
    target.backend.prefill(TEXT, never)
    states = PromptStates(SETTINGS)
    begin(states, target, TEXT[:180] + OTHER[:20])
    assert states._in_memory == []


def test_what_gives_way_to_a_text_in_memory_is_copied(target: LoadedModel) -> None:
    """All of it goes, although it begins alike."""
    states = PromptStates(SETTINGS)
    target.backend.prefill(TEXT, never)
    states.stow(target)
    other = TEXT[:100] + OTHER[:20]
    target.backend.prefill(other, never)
    begin(states, target, TEXT)
    assert target.backend.length == 199
    assert [each.state.tokens.tolist() for each in states._in_memory] == [other, TEXT]


def test_a_text_is_copied_once_and_a_model_that_cannot_be_saved_is_let_be(target: LoadedModel) -> None:
    states = PromptStates(SETTINGS)
    target.backend.prefill(TEXT, never)
    states.stow(target)
    (kept,) = states._in_memory
    states.stow(target)
    assert states._in_memory[0] is kept
    with pytest.raises(FrozenInstanceError):
        kept.state = kept.state  # type: ignore[misc]
    assert not hasattr(kept, "__dict__")
    states.stow(cast("LoadedModel", SimpleNamespace(backend=SimpleNamespace(length=1000))))


def test_two_models_keep_the_same_text_each(loaded: LoadedPair, target: LoadedModel) -> None:
    assert loaded.draft is not None
    states = PromptStates(SETTINGS)
    for each in (target, loaded.draft):
        each.backend.truncate(0)
        each.backend.prefill(TEXT, never)
        states.stow(each)
    assert [kept.backend for kept in states._in_memory] == [target.backend, loaded.draft.backend]


def test_a_damaged_state_gives_way_to_a_shorter_one(target: LoadedModel) -> None:
    states = PromptStates(SETTINGS)
    answer(states, target, TEXT[:100] + OTHER[:20], 1.0)
    answer(states, target, TEXT, 1.0)
    damaged = files()[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    for warned in (["state"], []):
        target.backend.truncate(0)
        assert begin(PromptStates(SETTINGS), target, TEXT) == warned
        assert target.backend.length == 100
        assert not damaged.exists()


def test_a_model_is_named_once(target: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is looked at for that."""
    named: list[Path] = []
    monkeypatch.setattr("localspec.session.prompt_states.file_fingerprint", lambda path: named.append(path))
    states = PromptStates(SETTINGS)
    for text in (TEXT, OTHER):
        answer(states, target, text, 1.0)
    assert named == [Path(target.model.path)]


def test_thirty_two_tokens_on_disk_are_of_use_and_memory_that_is_not_taken_counts_for_nothing(
    target: LoadedModel,
) -> None:
    answer(PromptStates(SETTINGS), target, TEXT[:32], 1.0)
    target.backend.truncate(0)
    begin(PromptStates(SETTINGS), target, TEXT)
    assert target.backend.length == 32
    answer(PromptStates(SETTINGS), target, TEXT[:140], 1.0)
    states = PromptStates(SETTINGS)
    target.backend.truncate(120)
    states.stow(target)
    target.backend.truncate(100)
    begin(states, target, TEXT)
    assert target.backend.length == 140


def test_a_state_on_disk_is_read_for_what_it_saves(target: LoadedModel) -> None:
    """A state of 100 tokens, each of which took a second: 31 more than there are, or slower to read, are none."""
    answer(PromptStates(SETTINGS), target, TEXT[:100], 1.0)
    n_bytes = target.backend.n_state_bytes
    for held, rate, length in ((69, FAST, 69), (68, FAST, 100), (0, n_bytes / 99, 100), (0, n_bytes / 101, 0)):
        target.backend.truncate(0)
        if held:
            target.backend.prefill(TEXT[:held], never)
        states = PromptStates(SETTINGS)
        assert states._folder is not None
        states._folder._rate = rate  # slower than any disk
        begin(states, target, TEXT)
        assert target.backend.length == length


@pytest.mark.parametrize(
    ("length", "keeps", "is_kept"),
    [(200, 169, False), (200, 168, True), (31, 0, False), (32, 0, True), (400, 351, False), (400, 350, True)],
)
def test_what_is_dropped_is_copied_from_thirty_two_tokens_and_an_eighth_on(
    target: LoadedModel, length: int, keeps: int, is_kept: bool
) -> None:
    text = [100 + 37 * i % 301 for i in range(length)]
    states = PromptStates(SETTINGS)
    target.backend.prefill(text, never)
    states.stow(target, *([keeps] if keeps else []))
    target.backend.truncate(0)
    begin(states, target, [*text, 7], replace(KEEPS, keeps=False))
    assert target.backend.length == (length if is_kept else 0)


def test_memory_is_of_use_from_thirty_two_tokens_on(target: LoadedModel) -> None:
    states = PromptStates(SETTINGS)
    target.backend.prefill(TEXT, never)
    states.stow(target)
    for held, length in ((168, 168), (167, 199)):
        target.backend.truncate(held)
        begin(states, target, TEXT, replace(KEEPS, keeps=False))
        assert target.backend.length == length, "of the last token a row is wanted"


def test_the_text_that_was_used_least_recently_leaves_memory(target: LoadedModel) -> None:
    target.backend.prefill(TEXT, never)
    states = PromptStates(replace(SETTINGS, cache_ram=f"{int(2.5 * target.backend.n_state_bytes)}B"))
    for text in (TEXT, OTHER, TEXT, THIRD):
        begin(states, target, text, replace(KEEPS, keeps=False))
        target.backend.prefill(text, never)
    states.stow(target)
    for text, is_kept in ((TEXT, True), (THIRD, True), (OTHER, False)):
        target.backend.truncate(0)
        begin(states, target, text, replace(KEEPS, keeps=False))
        assert (target.backend.length > 100) == is_kept


def test_a_start_of_a_text_that_is_kept_takes_no_memory(target: LoadedModel) -> None:
    states = PromptStates(SETTINGS)
    for n in (100, 200, 150):
        target.backend.truncate(0)
        target.backend.prefill(TEXT[:n], never)
        states.stow(target)
    assert [len(each.state.tokens) for each in states._in_memory] == [200]


@pytest.mark.parametrize(("lacks", "length"), [(0, 199), (4, 0)])
def test_a_quarter_of_the_free_memory_is_for_texts(
    target: LoadedModel, monkeypatch: pytest.MonkeyPatch, lacks: int, length: int
) -> None:
    target.backend.prefill(TEXT, never)
    assert isinstance(target.backend, SavingBackend)
    free = 4 * target.backend.save().n_bytes - lacks
    monkeypatch.setattr("localspec.session.prompt_states.available_memory", lambda: free)
    assert memory_of_a_text(target) == length


@pytest.mark.parametrize(("size", "length"), [(1 << 29, 199), ((1 << 29) + 1, 0)])
def test_half_a_gigabyte_is_for_texts_where_nobody_knows_how_much_is_free(
    target: LoadedModel, monkeypatch: pytest.MonkeyPatch, size: int, length: int
) -> None:
    target.backend.prefill(TEXT, never)
    monkeypatch.setattr("localspec.session.prompt_states.available_memory", lambda: None)
    monkeypatch.setattr("localspec.backends.saved_state.SavingBackend.n_state_bytes", size)
    assert memory_of_a_text(target) == length


def memory_of_a_text(model: LoadedModel) -> int:
    """Return how many tokens of a text are there after another one."""
    states = PromptStates(SETTINGS)
    states.stow(model)
    model.backend.truncate(0)
    begin(states, model, TEXT, replace(KEEPS, keeps=False))
    return model.backend.length


def test_an_answer_tells_how_much_of_it_is_written(target: LoadedModel) -> None:
    target.backend.prefill(TEXT, never)
    assert isinstance(target.backend, SavingBackend)
    saved = target.backend.save()
    expected = saved.n_bytes - saved.tokens.nbytes
    for settings, request, told in (
        (SETTINGS, KEEPS, expected),
        (SETTINGS, replace(KEEPS, keeps=False), 0),
        (SETTINGS, replace(KEEPS, reads_ahead=True), 0),
        (SETTINGS, replace(KEEPS, cold=True), 0),
        (replace(SETTINGS, cache_disk="0"), KEEPS, 0),
    ):
        states = PromptStates(settings)
        begin(states, target, [*TEXT, 7], request)
        assert states.n_bytes == told
