"""Tab completes commands, letters typed at a message are written, and a paste without brackets is one message."""

from __future__ import annotations

import asyncio

import pytest
from textual import events
from textual.pilot import Pilot

from localspec.chat.commands import TABLE
from localspec.tui.app import LocalspecApp
from localspec.tui.widgets.composer import HANDS, HELD, Composer
from localspec.tui.widgets.message import Spoken
from tests.tui.scripted import ScriptedWorker, ask, opened, settled, shown, until

SPEED = HANDS / 10  # seconds between two keys of a paste, also where a machine is slow
HAND = 2 * HANDS


async def keys(app: LocalspecApp, text: str, gap: float, at: float = 0.0) -> float:
    """Send keys as a terminal does, all at once, each with the time at which it was read; return the last one's."""
    names = {"\n": "enter", "\t": "tab", " ": "space", "/": "slash", ".": "full_stop", "-": "minus"}
    at = at or app.chat.composer._pressed_at + 10
    for char in text:
        at += gap
        key = events.Key(names.get(char, char), "\r" if char == "\n" else char)
        key.time = at
        app.post_message(key)
    return at


async def rest(pilot: Pilot[int]) -> None:
    """Wait until no Enter waits any more."""
    await asyncio.sleep(2 * HELD)
    await settled(pilot)


@pytest.mark.parametrize("end", ["", "\n"])
async def test_a_paste_without_brackets_is_one_message(end: str) -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await keys(app, f"def f(x):\n\treturn x\n\nprint(f(1)){end}", SPEED)
        await rest(pilot)
        assert app.chat.composer.text == f"def f(x):\n\treturn x\n\nprint(f(1)){end}", "and nothing is sent"
        await pilot.press("enter")
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        sent = [request.messages[-1].content for request in worker.requests]
        assert sent == [f"def f(x):\n\treturn x\n\nprint(f(1)){end}"]


async def test_messages_typed_ahead_by_hand_are_sent_one_by_one() -> None:
    """However late the screen gets to them: what counts is when the terminal was read."""
    async with opened() as (pilot, app):
        await keys(app, "one\ntwo", HAND)
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        assert (shown(app)[0], app.chat.composer.text) == ("one", "two")


@pytest.mark.parametrize("gap", [0.0, SPEED, HAND])
async def test_commands_sent_in_one_burst_are_run_one_by_one(gap: float) -> None:
    async with opened() as (pilot, app):
        await keys(app, "/temp 0.7\n/k 4\n/seed 5\nhello\n", gap)
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        request = app.chat_state.request
        assert (request.sampling.temperature, request.speculation.k, request.sampling.seed) == (0.7, 4, 5)
        assert shown(app)[0] == "hello"


async def test_one_line_and_enter_in_a_burst_is_sent() -> None:
    async with opened() as (pilot, app):
        await keys(app, "hello\n", 0.0)
        await until(pilot, lambda: len(shown(app)) == 2)
        assert shown(app)[0] == "hello"


async def test_a_key_that_is_no_text_sends_what_waits() -> None:
    async with opened() as (pilot, app):
        at = await keys(app, "hello\n", 0.0)
        escape = events.Key("escape", None)
        escape.time = at
        app.post_message(escape)
        await until(pilot, lambda: len(shown(app)) == 2)


async def test_tab_completes_a_command_and_its_values() -> None:
    async with opened() as (pilot, app):
        composer = app.chat.composer
        for typed, completed in (
            ("/sta", "/stats"),
            ("/re", "/re"),
            ("/res", "/res"),
            ("/resu", "/resume "),
            ("/set verify bl", "/set verify block"),
            ("/set tem", "/set temp"),  # or template-arg
            ("/set min", "/set min-p "),
            ("/copy co", "/copy code"),
            ("/nothing", "/nothing"),
            ("/temp ", "/temp "),
        ):
            composer.fill(typed)
            await pilot.press("tab")
            await settled(pilot)
            assert (composer.text, composer.has_focus) == (completed, True)
        composer.fill("/re")
        await pilot.press("tab")
        await settled(pilot)
        assert app.notice.split() == ["/resume", "/read", "/regen", "/restart"]
        composer.fill("/set verify t")
        await pilot.press("tab")
        await settled(pilot)
        assert sorted(app.notice.split()) == ["token", "traversal", "tree", "typical"]


async def test_tab_completes_a_command_that_comes_in_one_burst() -> None:
    async with opened() as (pilot, app):
        await keys(app, "/sta\t", 0.0)
        await until(pilot, lambda: app.chat.composer.text == "/stats")


async def test_tab_at_anything_else_goes_to_the_messages() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "go")
        app.chat.composer.fill("half a message")
        await pilot.press("tab")
        await until(pilot, lambda: isinstance(app.focused, Spoken))


def test_every_command_is_completed_and_every_value_is_one() -> None:
    for command in TABLE.commands:
        assert TABLE.completions(f"/{command.name}")[0].rstrip() == f"/{command.name}"
        for line in TABLE.completions(f"/{command.name} "):
            assert line.startswith(f"/{command.name} ")
    assert TABLE.completions("/") == [f"/{each.name}{' ' if each.argument else ''}" for each in TABLE.commands]
    assert TABLE.completions("no command") == []
    assert TABLE.completions("/two\nlines") == []


async def test_a_letter_typed_at_a_message_is_written() -> None:
    """Unless it is one of the keys of a message."""
    async with opened() as (pilot, app):
        answer = await ask(pilot, "go")
        answer.focus()
        await settled(pilot)
        await pilot.press("H")
        await until(pilot, lambda: isinstance(app.focused, Composer))
        await pilot.press("i", "space", "y", "o", "u")
        assert app.chat.composer.text == "Hi you"
        assert len(shown(app)) == 2, "and nothing was regenerated"


@pytest.mark.parametrize("gap", [0.0, HAND])
async def test_a_command_typed_at_a_message_is_written_whole(gap: float) -> None:
    """However fast: its other letters are keys of a message, as c and y are."""
    async with opened() as (pilot, app):
        answer = await ask(pilot, "go")
        answer.focus()
        await settled(pilot)
        await keys(app, "/copy", gap)
        await rest(pilot)
        assert (app.chat.composer.text, app.notice) == ("/copy", "")


async def test_undo_has_the_key_of_a_shell() -> None:
    async with opened() as (pilot, app):
        await pilot.press(*"words")
        await pilot.press("ctrl+underscore")
        assert app.chat.composer.text == ""
