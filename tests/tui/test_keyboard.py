"""Keys that change the conversation while the screen is at it: one thing is done after the other, however slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from localspec.conversations.store import Store
from localspec.tui.screens.conversations import Conversations
from localspec.tui.widgets.composer import Composer
from localspec.tui.widgets.message import Answered
from localspec.tui.widgets.transcript import Transcript
from tests.tui.chats import until
from tests.tui.scripted import (
    PATIENCE,
    ScriptedWorker,
    answers,
    ask,
    markdown_text,
    opened,
    say_until_held,
    settled,
    shown,
)

LONG = 0.3  # seconds: the screen looks for news several times meanwhile


def slow_down(monkeypatch: pytest.MonkeyPatch, cls: type, name: str) -> None:
    """Let a method of a widget take as long as it does on a machine that has no time."""
    quick = getattr(cls, name)

    async def slow(*args: Any) -> None:
        await asyncio.sleep(LONG)
        await quick(*args)
        await asyncio.sleep(LONG)

    monkeypatch.setattr(cls, name, slow)


async def moment(condition: Callable[[], object]) -> None:
    """Wait until something is so, and for nothing else: a pause of the pilot would wait for the screen as well."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_what_comes_before_its_widget_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ScriptedWorker(answers=[["One."], ["The", " second", " answer."]])
    async with opened(worker) as (pilot, app):
        await ask(pilot, "go")
        slow_down(monkeypatch, Transcript, "remove_children")
        worker.hold_at = 2
        await pilot.press("f5")
        await until(pilot, worker.is_held.is_set)
        await until(pilot, lambda: bool(answers(app)) and "second" in markdown_text(answers(app)[0]))
        assert markdown_text(answers(app)[0]) == "The second"
        worker.go.set()
        await until(pilot, lambda: markdown_text(answers(app)[0]) == "The second answer.")


async def test_an_answer_that_ends_before_its_widget_is_there_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ScriptedWorker(answers=[["One."], ["The", " second", " answer."]])
    async with opened(worker) as (pilot, app):
        await ask(pilot, "go")
        slow_down(monkeypatch, Answered, "_compose")
        await pilot.press("f5")
        await until(
            pilot, lambda: len(worker.requests) == 2 and app.chat_state.answering is None and bool(answers(app))
        )
        await until(pilot, lambda: markdown_text(answers(app)[0]) == "The second answer.")


async def test_the_colours_wait_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (pilot, app):
        slow_down(monkeypatch, Answered, "_compose")
        app.chat.composer.fill("go")
        app.chat.composer.action_send()
        await moment(lambda: answers(app))
        await app.run_action("screen.origins")  # as F3 does, but at once
        await app.run_action("screen.thinking")
        await until(pilot, lambda: app.chat_state.answering is None)
        await until(pilot, lambda: "Once upon" in str(answers(app)[0].query_one(".origins").render()))


async def test_a_new_conversation_waits_for_the_end_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (pilot, app):
        slow_down(monkeypatch, Answered, "finish")
        app.chat.composer.fill("go")
        app.chat.composer.action_send()
        await moment(lambda: app.chat_state.messages.path() and app.chat_state.answering is None)
        await app.run_action("app.new")  # as Ctrl+N does, but at once
        await until(pilot, lambda: shown(app) == [])
        await ask(pilot, "and now")
        assert len(shown(app)) == 2


async def test_a_conversation_is_opened_beside_an_answer_that_began_meanwhile() -> None:
    store, worker = Store.open(None), ScriptedWorker(hold_at=1)
    store.add_message(store.create("pair", title="Another").id, None, "user", "before")
    async with opened(worker, store=store) as (pilot, app):
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, Conversations))
        app.chat.post_message(Composer.Sent("go"))  # Enter was pressed before F8, and comes to the screen after it
        await until(pilot, worker.is_held.is_set)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.chat and shown(app) == ["before"])
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        latest = app.chat_state.writer.ask(lambda each: each.path(each.conversations(1)[0].leaf)).result()
        assert [message.text for message in latest] == ["go", "Once upon a time there was a king."]
        assert shown(app) == ["before"]


async def test_a_widget_begins_with_what_has_come() -> None:
    worker = ScriptedWorker(hold_at=2)
    async with opened(worker) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        await until(pilot, lambda: markdown_text(answers(app)[0]) == "Once upon a time there")
        app.chat.call_later(app.chat.renew)
        await settled(pilot)
        await until(pilot, lambda: markdown_text(answers(app)[0]) == "Once upon a time there")
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        await until(pilot, lambda: markdown_text(answers(app)[0]) == "Once upon a time there was a king.")
