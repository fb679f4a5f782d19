"""A conversation of several turns on the real pair: what was said is in both models' caches already."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from localspec.chat.answer_writer import AnswerWriter
from localspec.chat.state import ChatState
from localspec.conversations.records import Attachment
from localspec.conversations.store import Store
from localspec.engine import events
from localspec.engine.protocols import Cancelled
from localspec.errors import PromptTooLongError
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from localspec.ui.result import result
from localspec.ui.stats import Stats
from tests.integration import pair

K = 3
LONG = "The old woman sat by the fire and told the three brothers of the king who lived in the forest. " * 6
REQUEST = Request(max_tokens=8, sampling=Sampling(temperature=0.0), speculation=Speculation(method="draft-model", k=K))


@pytest.fixture
def session() -> Iterator[LoadedPair]:
    session, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT)))
    yield session
    session.close()


def test_a_second_turn_evaluates_only_what_is_new_in_both_models(session: LoadedPair) -> None:
    assert session.draft is not None
    backends = session.target.backend, session.draft.backend
    with Store.open(None) as store:
        state = ChatState.opened(store, LoadSettings(str(pair.TARGET), str(pair.DRAFT)), REQUEST)
        for turn, words in enumerate((LONG, "Then she rose and", "At last the king came and")):
            writer, asked = AnswerWriter(state), state.say(words)
            writer.begin(asked)
            before = [backend.evaluated for backend in backends]
            request = replace(state.request_for(asked), shorten=False)
            told = list(writer.recorded(session.answer(request)))
            target, draft = (backend.evaluated - n for backend, n in zip(backends, before, strict=True))
            prefilled = next(event for event in told if isinstance(event, events.Prefilled))
            passes = [event for event in told if isinstance(event, events.Committed)]
            new = prefilled.prompt_n - prefilled.cache_n
            n_drafted, n_emitted = sum(event.k for event in passes), sum(len(event.out) for event in passes)
            assert n_drafted > 0
            assert target == new + n_drafted + len(passes) - 1, "each pass is its draft and the pending token"
            # The draft's cache may lack the last run of the turn before.
            assert draft <= new + K + 1 + n_drafted + n_emitted
            if turn:
                assert new < 30
                assert draft < prefilled.prompt_n / 2, "so it did not read everything anew"
            writer.finish("length", {})


def conversation(n: int, question: str = "What then?") -> Request:
    """Return a question after `n` turns, which may be shortened."""
    turns = [Message("assistant" if i % 2 else "user", f"{i}. {LONG[:95]}") for i in range(2 * n)]
    return replace(REQUEST, messages=(*turns, Message("user", question)), max_tokens=64, shorten=True)


def started_of(told: list[events.Event]) -> tuple[events.Started, list[str]]:
    """Return how an answer began, and its warnings about the context."""
    (started,) = [event for event in told if isinstance(event, events.Started)]
    return started, [each.message for each in told if isinstance(each, events.Warned) and "the context" in each.message]


@pytest.fixture
def _short_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts open with 128 tokens where none are asked for; the storyteller was made for 1 024."""
    monkeypatch.setattr("localspec.backends.context.DEFAULT_CTX", 128)


@pytest.mark.usefixtures("_short_contexts")
def test_the_context_grows_before_anything_is_left_out() -> None:
    session, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT)))
    assert session.n_ctx == 128
    grown = []
    for n in range(0, 36, 3):
        told = list(session.answer(conversation(n)))
        started, warnings = started_of(told)
        prefilled = next(event for event in told if isinstance(event, events.Prefilled))
        grown.append(started.n_ctx)
        is_cut = bool(started.left_out)
        assert not n or is_cut or prefilled.cache_n > 30 * (n - 3), "what was read is not read again"
        if n and grown[-1] != grown[-2]:
            assert warnings == [
                f"the context has {grown[-1]} tokens from here on, since the text needs more than {grown[-2]}"
            ]
        else:
            assert len(warnings) == is_cut, "no cut is carried on here, so each is told"
        assert not is_cut or grown[-1] == 1024
    assert {128, 512, 1024} <= set(grown) <= {128, 256, 512, 1024}
    assert started.left_out
    assert session.draft is not None
    assert session.draft.backend.capabilities.n_ctx == 1024
    session.close()


@pytest.mark.usefixtures("_short_contexts")
def test_a_lone_prompt_grows_the_context_too() -> None:
    session, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT)))
    started, _ = started_of(list(session.answer(replace(REQUEST, prompt=LONG * 3))))
    assert 256 < started.prompt_n < 500
    assert started.n_ctx == 512
    with pytest.raises(PromptTooLongError, match="and the context holds 1024"):
        list(session.answer(replace(REQUEST, prompt=LONG * 20)))
    session.close()


def test_a_file_is_there_for_every_question_about_it() -> None:
    """A file of 3 100 tokens in a context of 4 096 that was asked for, and more questions than fit with it."""
    settings = LoadSettings(str(pair.TARGET), ctx=4096)
    session, _ = pair.load_pair(settings)
    file = Attachment("tale.md", "")
    while len(session.target.model.tokenize(file.text)) < 3100:
        file = Attachment("tale.md", file.text + LONG)
    plain = replace(REQUEST, speculation=Speculation(method="plain"), max_tokens=None)
    with Store.open(None) as store:
        state = ChatState.opened(store, settings, plain)
        told = []
        for words, attached in (("Who is the king?", (file,)), ("And who is old?", ()), *[(LONG, ())] * 5):
            asked, writer = state.say(words, attached), AnswerWriter(state)
            writer.begin(asked)
            stats = Stats()
            for event in writer.recorded(session.answer(replace(state.request_for(asked), max_tokens=30))):
                stats.observe(event)
            assert stats.started is not None
            assert 3100 < stats.started.prompt_n < 4096 - 30
            assert 0 not in stats.started.left_out
            told.append([warned.message for warned in stats.warnings if "no longer sent" in warned.message])
            writer.finish("length", result(stats, settings, plain))
    assert told[:2] == [[], []]
    assert sum(map(len, told)) in (1, 2), "the talk about it was cut, seldom"
    session.close()


def test_a_full_context_leaves_room_for_every_answer() -> None:
    """And one question that is too long costs the next one nothing."""
    is_stopped = False
    session, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT), ctx=256), lambda: is_stopped)
    told = {n: list(session.answer(conversation(n))) for n in (1, 9, 10, 11)}
    warnings = {n: [event.message for event in seen if isinstance(event, events.Warned)] for n, seen in told.items()}
    for n, seen in told.items():
        (started,) = [event for event in seen if isinstance(event, events.Started)]
        (finished,) = [event for event in seen if isinstance(event, events.Finished)]
        assert any("no longer sent" in message for message in warnings[n]) == (n > 1)
        assert n == 1 or started.prompt_n <= 256 - 64, "a quarter is free"
        assert bool(started.left_out) == (n > 1)
        assert finished.reason in ("length", "stop")
    with pytest.raises(PromptTooLongError, match="and the context holds 256"):
        list(session.answer(conversation(3, LONG * 3)))
    again = list(session.answer(conversation(9)))
    assert [event.message for event in again if isinstance(event, events.Warned)] == warnings[9]
    is_stopped = True
    with pytest.raises(Cancelled):
        list(session.answer(conversation(3, LONG * 3)))
    session.close()
