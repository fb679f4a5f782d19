"""Sending, stopping, answering again, editing, branches: with a scripted worker, on the real app."""

from pathlib import Path

import pytest
from textual.events import AppFocus
from textual.pilot import Pilot

from localspec.conversations.records import USER
from localspec.conversations.store import Store
from localspec.errors import PromptTooLongError, WorkerDiedError
from localspec.settings.request import Sampling, Speculation
from localspec.tui.app import LocalspecApp
from localspec.tui.widgets.card import ErrorCard, Note
from localspec.tui.widgets.message import Spoken
from localspec.worker.client import Worker
from tests.chat.test_opening import answering
from tests.cli.harness import needs_pair
from tests.tui.chats import app_of as real
from tests.tui.chats import opened as real_opened
from tests.tui.chats import until
from tests.tui.scripted import (
    SETTINGS,
    ScriptedWorker,
    answers,
    ask,
    made,
    markdown_text,
    opened,
    say,
    say_until_held,
    settled,
    shown,
)

STORY = "Once upon a time there was a king."


async def test_a_message_is_answered_and_its_numbers_stand_below() -> None:
    async with opened() as (pilot, app):
        answer = await ask(pilot, "Tell me a story")
        assert shown(app) == ["Tell me a story", STORY]
        assert markdown_text(answer) == STORY
        assert "9 tokens" in str(answer.query_one(".note").render())
        assert app.chat.composer.text == ""


async def test_what_is_typed_before_enter_is_sent_with_it() -> None:
    """All of it in one read of the terminal, as a paste of keys or a slow machine brings it."""
    async with opened() as (pilot, app):
        await pilot.press(*"Hi you", "enter")
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        assert shown(app)[0] == "Hi you"


async def test_the_conversation_is_sent_with_the_next_message() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, _app):
        await ask(pilot, "one")
        await ask(pilot, "two")
        sent = [(message.role, message.content) for message in worker.requests[-1].messages]
        assert sent == [("user", "one"), ("assistant", STORY), ("user", "two")]


async def test_text_is_shown_while_it_comes() -> None:
    worker = ScriptedWorker(hold_at=2)
    async with opened(worker) as (pilot, app):
        await say(pilot, "go")
        await until(pilot, lambda: bool(answers(app)) and "there" in markdown_text(answers(app)[0]))
        assert markdown_text(answers(app)[0]) == "Once upon a time there"
        assert app.chat_state.answering is not None
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        assert markdown_text(answers(app)[0]) == STORY


async def test_escape_stops_and_keeps_what_there_is() -> None:
    worker = ScriptedWorker(hold_at=2)
    async with opened(worker) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        await pilot.press("escape")
        await until(pilot, lambda: app.chat_state.answering is None)
        assert shown(app)[-1] == "Once upon a time there"
        assert app.chat_state.messages.path()[-1].finish == "interrupted"
        assert "stopped" in str(answers(app)[0].query_one(".head").render())


async def test_only_answers_have_passes_to_show() -> None:
    async with opened(ScriptedWorker()) as (pilot, app):
        await ask(pilot, "go")
        question, answer = app.chat_state.messages.path()
        app.chat.turns.inspect(question)
        assert app.notices.text == "Enter shows the passes of an answer, and this is your message"
        app.engine.traces.pop(answer.id)
        app.chat.turns.inspect(answer)
        assert app.notices.text == "only the text of this answer was kept, not its passes"


async def test_a_stop_is_acknowledged_while_the_prompt_is_read() -> None:
    worker = ScriptedWorker(hold_at=0)
    async with opened(worker) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.chat_state.answering is None)
        assert app.chat_state.messages.path()[-1].finish == "interrupted"
        assert app.is_running


@pytest.mark.parametrize("text", ["two", "/fork", "/regen"])
async def test_one_message_waits_for_the_end_of_the_answer(text: str) -> None:
    """Or a command that cannot run before; a second one stays in the composer."""
    worker = ScriptedWorker(hold_at=1)
    async with opened(worker) as (pilot, app):
        await say_until_held(pilot, worker, "one")
        await say(pilot, text)
        assert text in str(app.chat.query_one("#attached").render())
        await say(pilot, "three")
        assert (app.chat.composer.text, app.notices.text) == (
            "three",
            "One message waits already · Esc stops the answer",
        )
        assert len(worker.requests) == 1
        worker.go.set()
        if text == "/fork":
            await until(
                pilot, lambda: len(app.chat_state.writer.ask(lambda store: store.conversations()).result()) == 2
            )
        else:
            await until(pilot, lambda: len(worker.requests) == 2 and app.chat_state.answering is None)
            assert worker.requests[1].messages[-1].content == ("two" if text == "two" else "one")
        assert app.chat.composer.text == "three"
        assert not app.chat.query_one("#attached").display


@pytest.mark.parametrize("end", ["escape", "error"])
async def test_what_waited_is_put_back_where_the_answer_was_cut_short(end: str) -> None:
    worker = ScriptedWorker(hold_at=1)
    async with opened(worker) as (pilot, app):
        await say_until_held(pilot, worker, "one")
        await say(pilot, "two")
        app.chat.composer.insert("half")
        if end == "escape":
            await pilot.press("escape")
        else:
            worker.fails[2] = WorkerDiedError("the engine was killed (SIGKILL)", hint="--ctx 512")
            worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None and not app.engine.worker_thread.is_busy)
        await until(pilot, lambda: app.chat.composer.text == "two\nhalf")
        assert len(worker.requests) == 1
        assert not app.chat.query_one("#attached").display


async def test_answering_again_adds_a_branch() -> None:
    worker = ScriptedWorker(answers=[["The first", " answer."], ["The second", " answer."]])
    async with opened(worker) as (pilot, app):
        await ask(pilot, "go")
        await pilot.press("f5")
        await until(pilot, lambda: len(worker.requests) == 2 and app.chat_state.answering is None)
        assert shown(app) == ["go", "The second answer."]
        assert "2/2" in str(answers(app)[0].query_one(".head").render())
        answers(app)[0].focus()
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: shown(app) == ["go", "The first answer."])
        assert "1/2" in str(answers(app)[0].query_one(".head").render())
        assert markdown_text(answers(app)[0]) == "The first answer."
        await pilot.press("right_square_bracket", "left_square_bracket", "right_square_bracket")
        await until(pilot, lambda: shown(app) == ["go", "The second answer."])
        assert app.chat.composer.text == "", "the keys go on being for the message"
        for key, beyond in (("right_square_bracket", "after"), ("left_square_bracket", "before")):
            await pilot.press(key, key)
            await until(pilot, lambda beyond=beyond: app.notices.text == f"There is no branch {beyond} this one")


async def test_a_fixed_seed_moves_on_when_answering_again() -> None:
    worker = ScriptedWorker()
    async with opened(worker, sampling=Sampling(seed=5)) as (pilot, app):
        await ask(pilot, "go")
        await pilot.press("f5")
        await until(pilot, lambda: len(worker.requests) == 2 and app.chat_state.answering is None)
        assert [request.sampling.seed for request in worker.requests] == [5, 6]


async def test_an_edit_is_a_branch_and_the_old_one_stays() -> None:
    worker = ScriptedWorker(answers=[["One."], ["Two."], ["Three."]])
    async with opened(worker) as (pilot, app):
        await ask(pilot, "first")
        await ask(pilot, "second")
        app.chat.transcript.query("UserMessage").first().focus()
        await pilot.press("e")
        await until(pilot, lambda: "new branch" in app.notices.text)
        assert app.chat.composer.text == "first"
        await ask(pilot, "first, edited")
        assert app.notices.text == ""
        assert shown(app) == ["first, edited", "Three."]
        assert [message.content for message in worker.requests[-1].messages] == ["first, edited"]
        app.chat.transcript.query("UserMessage").first().focus()
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: shown(app) == ["first", "One.", "second", "Two."])
        assert len(app.chat_state.messages.entries) == 6


async def test_escape_gives_an_edit_up() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "first")
        app.chat.transcript.query("UserMessage").first().focus()
        await pilot.press("e")
        await until(pilot, lambda: "new branch" in app.notices.text)
        await pilot.press("escape")
        assert (app.chat.composer.text, app.notices.text) == ("", "")
        await ask(pilot, "next")
        assert shown(app) == ["first", STORY, "next", STORY]


async def edit_first(pilot: Pilot[int], app: LocalspecApp) -> None:
    app.chat.transcript.query("UserMessage").first().focus()
    await pilot.press("e")
    await pilot.pause()
    assert app.chat.composer.text == shown(app)[0]


async def test_an_edit_gives_back_what_was_being_written() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "first")
        for key in ("escape", "ctrl+c", "enter"):
            app.chat.composer.fill("half a message")
            app.chat.transcript.query("UserMessage").first().focus()
            await pilot.press("e")
            await until(pilot, lambda: app.chat.composer.text == "first")
            await pilot.press("!", key)
            await until(pilot, lambda: app.chat.composer.text == "half a message" and app.chat_state.answering is None)
        assert shown(app) == ["first!", STORY]
        await pilot.press("up")
        assert app.chat.composer.text == "first!"


@pytest.mark.parametrize("end", ["escape", "ctrl+c", "enter"])
async def test_a_second_edit_keeps_what_was_being_written_before_the_first(end: str) -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "first")
        await ask(pilot, "second")
        app.chat.composer.fill("half a message")
        for widget in app.chat.transcript.query("UserMessage"):
            widget.focus()
            await pilot.press("e")
            await settled(pilot)
        assert app.chat.composer.text == "second"
        await pilot.press("!", end)
        await until(pilot, lambda: app.chat.composer.text == "half a message" and app.chat_state.answering is None)
        assert ("second!" in shown(app)) == (end == "enter")


async def test_an_edit_ends_with_its_conversation() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await ask(pilot, "first")
        await until(pilot, lambda: app.chat_state.messages.key is not None)
        key = app.chat_state.messages.key
        await edit_first(pilot, app)
        await pilot.press("ctrl+n")
        await until(pilot, lambda: shown(app) == [])
        await ask(pilot, "anew")
        assert shown(app) == ["anew", STORY]
        await edit_first(pilot, app)
        await app.chat.turns.open(key or "")
        await ask(pilot, "next")  # the messages of both conversations have the same numbers
        assert shown(app) == ["first", STORY, "next", STORY]
        assert [message.content for message in worker.requests[-1].messages] == ["first", STORY, "next"]


async def test_an_edit_ends_where_another_branch_is_looked_at() -> None:
    async with opened(ScriptedWorker(answers=[["One."], ["Two."], ["Three."]])) as (pilot, app):
        await ask(pilot, "first")
        await pilot.press("f5")
        await until(pilot, lambda: app.chat_state.answering is None and shown(app)[-1] == "Two.")
        await edit_first(pilot, app)
        answers(app)[0].focus()
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: shown(app) == ["first", "One."])
        app.chat.composer.focus()
        await ask(pilot, "next")
        assert shown(app) == ["first", "One.", "next", "Three."]


async def test_an_edit_whose_input_was_emptied_is_still_one() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "first")
        await edit_first(pilot, app)
        await pilot.press("ctrl+a", "ctrl+k")
        await pilot.pause()
        assert app.chat.composer.text == ""
        await ask(pilot, "anew")
        assert shown(app) == ["anew", STORY]


async def test_a_command_ends_an_edit() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "first")
        app.chat.composer.fill("half a message")
        await edit_first(pilot, app)
        await pilot.press("ctrl+a", "ctrl+k")
        await say(pilot, "/stats")
        await until(pilot, lambda: app.chat.composer.text == "half a message")
        assert app.chat_state.messages.editing is None


async def test_ctrl_c_in_an_edit_gives_it_up() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "first")
        await edit_first(pilot, app)
        await pilot.press("ctrl+c")
        await pilot.pause()
        await ask(pilot, "next")
        assert shown(app) == ["first", STORY, "next", STORY]


async def test_undo_takes_the_message_back_into_the_input() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "a question")
        await say(pilot, "/undo")
        await until(pilot, lambda: shown(app) == [])
        assert app.chat.composer.text == "a question"


@needs_pair
async def test_a_conversation_that_does_not_fit_is_sent_without_its_oldest_turns() -> None:
    """By the real engine; and what was too long to be sent costs the next message nothing."""
    story = "Tell me of the king who lived in the forest with his three brothers and the old woman by the fire. "
    with Worker() as worker:
        app = real(worker, max_tokens=60, sampling=Sampling(seed=1))
        async with real_opened(app) as pilot:

            async def prompt_of(text: str) -> int:
                await ask(pilot, text)
                assert app.engine.trace is not None
                started = app.engine.trace.stats.started
                return 0 if started is None else started.prompt_n

            sizes = [await prompt_of(story) for _ in range(8)]
            notes = [str(note.render()) for note in app.chat.query(Note)]
            assert await prompt_of(40 * story) == 0
            assert isinstance(app.chat.query_one(ErrorCard).error, PromptTooLongError)
            after = await prompt_of("And then?")
            ends = [trace.stats.finished for trace in app.engine.traces.values()]
    assert max(sizes) <= 512 - 60
    assert any("no longer sent" in note for note in notes)
    assert after > 256
    assert not [end for end in ends if end is not None and end.reason == "context"]


async def test_one_message_that_is_too_long_is_an_error_with_the_next_step() -> None:
    worker = ScriptedWorker(max_messages=0)
    async with opened(worker) as (pilot, app):
        await ask(pilot, "one")
        card = app.chat.query_one(ErrorCard)
        assert isinstance(card.error, PromptTooLongError)
        assert "--ctx 2048" in str(card.query_one("Static").render())


async def test_a_seeded_speculation_is_switched_off_and_on() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, _app):
        await pilot.press("f6")
        await ask(pilot, "plain")
        await pilot.press("f6")
        await ask(pilot, "drafted")
        assert [request.speculation.k for request in worker.requests] == [0, None]


async def test_what_is_set_while_speculation_is_off_switches_it_on() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):

        async def asked_after(*texts: str) -> tuple[str, int | None]:
            for text in texts:
                if text == "F6":
                    await pilot.press("f6")
                else:
                    await say(pilot, text)
                await settled(pilot)
            await ask(pilot, "go")
            speculation = worker.requests[-1].speculation
            return speculation.method, speculation.k

        assert await asked_after("/set method suffix", "/k 3", "F6") == ("suffix", 0)
        assert await asked_after("/temp 0.3") == ("suffix", 0)
        assert await asked_after("/k 0") == ("suffix", 0)
        assert await asked_after("/set method prompt-lookup") == ("prompt-lookup", 3)
        assert await asked_after("F6", "/k 2") == ("prompt-lookup", 2)
        assert await asked_after("F6") == ("prompt-lookup", 0)
        assert await asked_after("F6") == ("prompt-lookup", 2)
        assert app.chat_state.switched_off is None


async def test_a_draft_that_nothing_uses_is_not_loaded() -> None:
    worker = ScriptedWorker()
    async with opened(worker, speculation=Speculation(method="suffix")) as (pilot, app):
        await ask(pilot, "one")
        notes = [str(each.render()) for each in app.chat.query(Note)]
        assert notes == ["the draft is not loaded: --method suffix uses none"]
        await say(pilot, "/set method draft-model")
        await ask(pilot, "two")
    assert [each.draft for each in worker.loads] == [None, SETTINGS.draft]


async def test_a_message_that_waited_counts_from_enter() -> None:
    worker, now = ScriptedWorker(hold_at=1), [1000.0]
    app = made(worker)
    app.engine.clock = lambda: now[0]
    async with opened(app=app) as (pilot, app):
        await say_until_held(pilot, worker, "one")
        await say(pilot, "two")
        now[0] += 7.0
        worker.hold_at = None
        worker.go.set()
        await until(pilot, lambda: len(answers(app)) == 2 and app.chat_state.answering is None)
        trace = app.engine.trace
        assert trace is not None
        assert trace.stats.first_token_ms == 7000.0


async def test_a_branch_of_another_terminal_is_there_when_a_person_comes_back(tmp_path: Path) -> None:
    """Both terminals have the conversation open; the path that is looked at stays."""
    with Store.open(tmp_path / "c.db") as here, Store.open(tmp_path / "c.db") as there:
        async with opened(store=here) as (pilot, app):
            await ask(pilot, "one")
            key = app.chat_state.messages.key
            assert key is not None
            there.add_message(key, None, USER, "elsewhere")
            app.post_message(AppFocus())
            await until(pilot, lambda: [each.branch for each in app.chat.query(Spoken)][:1] == [(1, 2)])
            assert "another localspec has added 1 message here" in app.notices.text
            assert shown(app) == ["one", STORY]
            there.add_message(key, None, USER, "again")
            await ask(pilot, "two")
            assert len(app.chat_state.messages.siblings(app.chat_state.messages.path()[0])) == 3
            assert shown(app) == ["one", STORY, "two", STORY]


async def test_an_answer_that_ended_elsewhere_is_drawn_when_a_person_comes_back(tmp_path: Path) -> None:
    """It is sent as context, so a person must see all of it; an edit that has begun goes on."""
    path = tmp_path / "c.db"
    with answering(path) as other, Store.open(path) as here:
        async with opened(store=here) as (pilot, app):
            await say(pilot, f"/resume {other.id}")
            await until(pilot, lambda: shown(app) == ["Tell me", "Half of"])
            app.chat.turns.edit(app.chat_state.messages.path()[0])
            other.finish()
            app.post_message(AppFocus())
            await until(pilot, lambda: shown(app) == ["Tell me", "Half of it, and all."])
            assert app.chat_state.messages.editing is not None


async def test_the_name_of_no_file_is_told_below_the_message() -> None:
    """A notice is gone in seconds, and the answer may come in minutes."""
    async with opened() as (pilot, app):
        await ask(pilot, "what is @missing.py about")
        assert [str(note.render()) for note in app.chat.query(Note)] == [
            "there is no file missing.py: @missing.py is sent as text"
        ]


async def test_a_branch_is_shown_where_the_one_before_it_was() -> None:
    """It may be far above the end; what one has asked for stays in sight."""
    worker = ScriptedWorker(answers=[[f"{n}: ", "line\n\n" * 9] for n in range(6)])
    async with opened(worker, size=(80, 24)) as (pilot, app):
        await ask(pilot, "first")
        await pilot.press("f5")
        await until(pilot, lambda: len(worker.requests) == 2 and app.chat_state.answering is None)
        await ask(pilot, "second")
        await ask(pilot, "third")
        transcript = app.chat.transcript
        answers(app)[0].focus()
        await settled(pilot)
        for key, said in (("left_square_bracket", "0: line"), ("right_square_bracket", "1: line")):
            row = answers(app)[0].region.y
            await pilot.press(key)
            await until(pilot, lambda said=said: shown(app)[1].startswith(said))
            await settled(pilot)
            assert app.focused is answers(app)[0]
            assert answers(app)[0].region.y == row, key
        assert transcript.max_scroll_y - transcript.scroll_y > 20, "the rest is below"
        app.chat.composer.focus()
        await ask(pilot, "fourth")
        await settled(pilot)
        assert transcript.scroll_y == transcript.max_scroll_y, "and a new answer is followed"
