"""A conversation of several turns on the real pair: what was said is in both models' caches already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from localspec.chat.answer_writer import AnswerWriter
from localspec.chat.state import ChatState
from localspec.conversations.store import Store
from localspec.engine import events
from localspec.engine.protocols import Cancelled
from localspec.errors import PromptTooLongError
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
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
        assert n == 1 or 256 - 64 - 64 - 61 < started.prompt_n <= 256 - 64, "a quarter is free, a step and a turn more"
        assert finished.reason in ("length", "stop")
    with pytest.raises(PromptTooLongError, match="and the context holds 256"):
        list(session.answer(conversation(3, LONG * 3)))
    again = list(session.answer(conversation(9)))
    assert [event.message for event in again if isinstance(event, events.Warned)] == warnings[9]
    is_stopped = True
    with pytest.raises(Cancelled):
        list(session.answer(conversation(3, LONG * 3)))
    session.close()
