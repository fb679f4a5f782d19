"""Notices: one line above the composer, the newest only, beside what one writes; and the line of keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localspec.engine.events import Event, Warned
from localspec.settings.request import LoadSettings
from localspec.tui.app import LocalspecApp
from localspec.tui.widgets import notices
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.notices import NoticeBar
from tests.tui.chats import shown, until
from tests.tui.scripted import ScriptedWorker, opened, say_until_held, settled

SIZES = [(60, 20), (80, 24), (120, 40)]


def rows(app: LocalspecApp) -> list[str]:
    return shown(app).split("\n")


@pytest.mark.parametrize("size", SIZES)
async def test_the_newest_notice_stands_above_the_composer_and_hides_nothing(size: tuple[int, int]) -> None:
    async with opened(size=size) as (pilot, app):
        await pilot.press("f6")
        app.say("first")
        app.say("second")
        await pilot.press(*"what I write")
        await settled(pilot)
        composer = app.chat.composer.region
        line = app.chat.query_one(NoticeBar).region
        assert (line.height, line.bottom) == (1, composer.y)
        assert rows(app)[line.y].strip() == "second"
        assert rows(app)[composer.y].strip() == "› what I write"
        assert "first" not in shown(app)


async def test_a_notice_said_again_and_again_stays_one_line() -> None:
    worker = ScriptedWorker(hold_at=1)
    async with opened(worker, size=(80, 24)) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        for n in range(6):
            app.chat.composer.fill("more")
            await pilot.press("enter")
            await settled(pilot)
            if n == 0:  # this one waits, which is told in a line of its own
                before = app.chat.transcript.region
        assert shown(app).count("waits already") == 1
        assert app.chat.transcript.region == before, "and moves nothing"
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)


async def test_what_a_load_warns_of_is_told() -> None:
    """As in every command: see tests/cli/test_pair_commands.py."""

    class Doubting(ScriptedWorker):
        def load(self, settings: LoadSettings) -> Iterator[Event]:
            *before, loaded = super().load(settings)
            yield from (*before, Warned("pair", "there is no memory for the draft model: decoding without it"), loaded)

    async with opened(Doubting()) as (pilot, app):
        await until(pilot, lambda: "there is no memory for the draft model" in shown(app))


async def test_a_notice_goes_after_a_while_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "LASTS", 0.05)
    async with opened(size=(80, 24)) as (pilot, app):
        before = shown(app)
        app.say("here and gone")
        await until(pilot, lambda: "here and gone" in shown(app))
        await until(pilot, lambda: "here and gone" not in shown(app))
        assert shown(app) == before


async def test_a_long_notice_is_whole_and_the_composer_too() -> None:
    async with opened(size=(60, 20)) as (pilot, app):
        words = " ".join(f"word{i}" for i in range(20))
        app.say(words, is_wrong=True)
        await pilot.press(*"mine")
        await settled(pilot)
        assert " ".join(shown(app).split()).count(words) == 1
        assert "› mine" in shown(app)


async def test_a_notice_is_seen_on_every_screen_and_below_it() -> None:
    async with opened(size=(80, 24)) as (pilot, app):
        await pilot.press("f9")
        await settled(pilot)
        app.say("told here")
        await settled(pilot)
        assert "told here" in shown(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.chat)
        assert "told here" in shown(app)


def keys(app: LocalspecApp) -> str:
    return str(app.screen.query_one(Keys).render())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("key", ["", "tab", "f1", "f4", "f8", "f9", "ctrl+o"])
async def test_the_keys_fit_and_f1_is_among_them(size: tuple[int, int], key: str) -> None:
    async with opened(size=size) as (pilot, app):
        if key == "tab":
            app.chat.composer.fill("go")
            await pilot.press("enter")
            await until(pilot, lambda: len(app.chat_state.messages.entries) == 2 and app.chat_state.answering is None)
        if key:
            await pilot.press(key)
        await settled(pilot)
        line = keys(app)
        assert "f1" in line.split() or key == "f1"  # which leaves the page of keys
        assert len(line) <= size[0]
        assert rows(app)[-1].strip() == line.strip(), "whole words, and nothing over them"


async def test_a_wide_line_shows_more_keys_and_a_click_presses_one() -> None:
    async with opened(size=(60, 20)) as (pilot, app):
        narrow = keys(app)
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: len(keys(app)) > len(narrow))
        at = keys(app).index("f9")
        await pilot.click(Keys, offset=(at, 0))
        await until(pilot, lambda: app.screen is not app.chat)
        assert type(app.screen).__name__ == "SettingsScreen"


async def test_a_notice_goes_when_something_is_sent() -> None:
    """It was about what came before: Ctrl+C again, or how a command may go on."""
    async with opened(size=(80, 24)) as (pilot, app):
        await pilot.press("ctrl+c")
        await settled(pilot)
        assert "Ctrl+C again to quit" in shown(app)
        app.chat.composer.fill("hi")
        await pilot.press("enter")
        await until(pilot, lambda: "Ctrl+C again to quit" not in shown(app))


async def test_words_that_complete_a_command_go_with_it() -> None:
    async with opened(size=(80, 24)) as (pilot, app):
        await pilot.press("slash", "s", "e", "tab")
        await settled(pilot)
        assert "/set  " in app.notices.text
        assert "/settings" in app.notices.text
        await pilot.press("ctrl+u")
        await settled(pilot)
        assert app.notices.text == ""
