"""Screens over the chat: keys that come faster than they go close each of them once, and never the chat."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from textual import actions
from textual.binding import Binding
from textual.events import Key
from textual.screen import Screen

import localspec.tui
from localspec.cli.settings_table import described
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.dialog import OverChat
from localspec.tui.screens.race import RaceScreen
from tests.tui.chats import ScriptedEngine, app_of, opened, until

KEYS = ("escape f12 escape escape", "escape escape escape", "ctrl+c escape", "f12 escape")


@pytest.mark.parametrize("opener", ["f1", "f9", "ctrl+p", "ctrl+s"])
async def test_keys_that_wait_in_a_busy_screen(opener: str) -> None:
    app = app_of(ScriptedEngine(), form=described(("chat",)))
    async with opened(app) as pilot:
        for keys in KEYS:
            await pilot.press(opener)
            await until(pilot, lambda: app.screen is not app.chat)
            for key in keys.split():
                app.post_message(Key(key, None))
            await pilot.pause()
            assert app.chat in app.screen_stack, keys
            for _ in list(app.screen_stack):
                if app.screen is not app.chat:
                    await pilot.press("escape")
            await until(pilot, lambda: app.screen is app.chat)


def subclasses(of: type) -> Iterator[type]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_screen_over_the_chat_goes_once() -> None:
    for found in pkgutil.walk_packages(localspec.tui.__path__, "localspec.tui."):
        importlib.import_module(found.name)
    ours = [each for each in subclasses(Screen) if each.__module__.startswith("localspec.")]
    assert [each for each in ours if not issubclass(each, OverChat)] == [ChatScreen]
    assert len(ours) > 8


async def test_help_and_palette_list_a_key_where_it_works() -> None:
    app = app_of(ScriptedEngine(), form=described(("chat",)))
    async with opened(app) as pilot:
        sections, in_chat = dict(app.keys), {each.title for each in app.get_system_commands(app.screen)}
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, RaceScreen))
        over = {each.title for each in app.get_system_commands(app.screen)}
        for title, declared in sections.items():
            for each in declared:
                assert isinstance(each, Binding)
                _, action, parameters = actions.parse(each.action)
                works = bool(app.check_action(action, parameters)) or action == "restore"  # of what was deleted
                assert works or title != "Everywhere", each.key
                assert not works or not title.startswith("From the chat"), each.key
    assert {"Settings", "Pairs", "Race", "Write in $EDITOR"} <= in_chat - over
