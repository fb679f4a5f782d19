"""Commands that are typed as a message, and the keys of the palette and the help."""

import re

import pytest
from textual.binding import Binding
from textual.widgets import Input

from localspec.chat.commands import TABLE
from localspec.cli.settings_table import described
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.help import Help
from localspec.tui.screens.inspector import Inspector
from localspec.tui.screens.settings import SettingsScreen
from localspec.tui.settings_form import Form
from localspec.tui.stats_panel import explained
from localspec.tui.widgets.card import Note
from localspec.tui.widgets.composer import Composer
from localspec.tui.widgets.message import Spoken
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, ask, made, opened, say, settled, shown


def notes(app: LocalspecApp) -> str:
    return "\n".join(str(note.render()) for note in app.chat.query(Note))


async def test_settings_change_from_the_next_answer_on() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        for text in ("/temp 0.3", "/set top-k 7", "/k 2", "/seed 9", "/system Be brief."):
            await say(pilot, text)
            await settled(pilot)
        await ask(pilot, "go")
        request = worker.requests[-1]
        assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (0.3, 7, 9)
        assert request.speculation.k == 2
        assert request.messages[0].content == "Be brief."
        assert "temp 0.3" in notes(app)
        assert shown(app)[0] == "go"


async def test_two_slashes_send_one() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await ask(pilot, "//etc is a folder")
        assert shown(app)[0] == "/etc is a folder"
        assert worker.requests[0].messages[0].content == "/etc is a folder"
        await ask(pilot, "// main.c\nint main() {}")
        assert worker.requests[1].messages[-1].content == "// main.c\nint main() {}"


async def test_stats_and_the_list_of_settings() -> None:
    async with opened() as (pilot, app):
        await say(pilot, "/stats")
        await until(pilot, lambda: "there is no answer yet" in notes(app))
        await ask(pilot, "go")
        await say(pilot, "/stats")
        await until(pilot, lambda: "right" in notes(app))
        await say(pilot, "/set")
        await until(pilot, lambda: "top-p" in notes(app))
        assert "0.95" in notes(app)


async def test_copying_says_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr(LocalspecApp, "copy_to_clipboard", lambda self, text: copied.append(text))
    passes = ["One", "\n\n```py\nx = 1\n```\n\n", "```\ny\n```"]
    async with opened(ScriptedWorker(passes=passes)) as (pilot, app):
        answer = await ask(pilot, "go")
        await pilot.press("f7")
        await say(pilot, "/copy code")
        await settled(pilot)
        answer.focus()
        await pilot.press("y", "c", "c", "c")
        await settled(pilot)
        whole = "".join(passes)
        assert copied == [whole, "y\n", whole, "x = 1\n", "y\n", "x = 1\n"]
        assert "if your terminal allows it" in app.notices.text


async def test_edit_title_and_fork() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "first")
        await say(pilot, "/title A fine story")
        await say(pilot, "/edit")
        assert app.chat.composer.text == "first"
        await pilot.press("escape")
        key = app.chat_state.messages.key
        await say(pilot, "/fork")
        await until(pilot, lambda: app.chat_state.messages.key != key)
        forked = app.chat_state.writer.ask(lambda store: store.get(app.chat_state.messages.key or "")).result()
        assert forked.title == "A fine story"
        assert shown(app)[0] == "first"


async def test_a_full_context_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_REASON", "context")
    async with opened() as (pilot, app):
        await ask(pilot, "go")
        assert "the context is full: 1024 tokens with the prompt; /ctx 2048 for more, or /new" in notes(app)


async def test_the_help_begins_with_sending_and_commands_and_is_searched() -> None:
    async with opened(size=(80, 24)) as (pilot, app):
        await say(pilot, "/help")
        await until(pilot, lambda: isinstance(app.screen, Help))
        await settled(pilot)

        def page() -> list[str]:
            lines = [
                " ".join(re.sub("[▁-█]", "", strip.text).split()) for strip in app.screen._compositor.render_strips()
            ]
            return [line for line in lines if line]

        assert page()[:7] == [
            "type to search this page",
            "First of all",
            "Enter send",
            "⇧⏎ ^J newline",
            "Esc stop the answer, or go back to writing",
            "F5 answer the last message again; the old answer stays",
            "Commands, typed as a message",
        ]
        assert page()[-1] == "PgDn more esc back"
        before = page()[1]
        await pilot.press("pagedown")
        assert page()[1] != before
        await pilot.press(*"temperature")
        await settled(pilot)
        assert page()[1:4] == ["Commands, typed as a message", "/temp F temperature", page()[-1]]
        await pilot.press(*" such nonsense")
        await settled(pilot)
        assert page()[1:] == ["Nothing here has these words", page()[-1]]
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.chat)


async def test_every_command_of_the_help_exists_and_every_key_is_in_it() -> None:
    async with opened(size=(120, 200)) as (pilot, app):
        await say(pilot, "/help")
        await until(pilot, lambda: isinstance(app.screen, Help))
        text = "\n".join(str(each.render()) for each in app.screen.query(".help"))
        for command in TABLE.commands:
            assert command.usage in text
        for cls in (LocalspecApp, ChatScreen, Composer, Spoken):
            for declared in cls.__dict__["BINDINGS"]:
                assert isinstance(declared, Binding)
                assert (declared.tooltip or declared.description) in text


async def test_texts_of_the_help_go_on_below_themselves() -> None:
    async with opened(size=(60, 20)) as (pilot, app):
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, Help))
        await settled(pilot)
        for table in app.screen.query(".help"):
            rows = str(table.render()).rstrip("\n").split("\n")[1:]
            assert all(len(row) <= table.content_size.width for row in rows)


async def test_the_palette_offers_what_has_a_key_and_what_has_none() -> None:
    async with opened() as (_pilot, app):
        commands = list(app.get_system_commands(app.screen))
        titles = [command.title for command in commands]
        assert {"Colours", "Export the conversation", "Light or dark", "Conversations"} <= set(titles)
        assert len(titles) == len(set(titles))
        told = {command.title: command.help for command in commands}
        assert told["Again"] == "answer the last message again; the old answer stays · F5"
        assert told["Conversations"] == "search and open what was said · F8"
        assert all(words for title, words in told.items() if len(title.split()) == 1), "one word explains nothing"


async def test_light_and_dark() -> None:
    async with opened() as (pilot, app):
        before = app.theme
        await app.run_action("theme")
        await pilot.pause()
        assert app.theme != before
        assert app.theme.startswith("localspec-")


async def test_the_screen_begins_as_it_was_asked_for() -> None:
    app = made(ScriptedWorker(), has_tokens=True, has_figures=False)
    async with opened(app=app) as (pilot, _app):
        answer = await ask(pilot, "go")
        assert answer.query_one(".origins").display
        assert not app.chat.query_one("#figures").region.area
        await pilot.press("f2")
        await settled(pilot)
        assert app.chat.query_one("#figures").region.area


async def test_one_key_explains_what_the_cursor_is_on() -> None:
    """An answer with its verdict, a pass by the columns of its table, a setting; in the composer nothing of these."""
    async with opened(size=(100, 40)) as (pilot, app):

        async def first_title() -> str:
            await pilot.press("f1")
            await until(pilot, lambda: isinstance(app.screen, Help))
            await settled(pilot)
            title = str(app.screen.query(".help").first().render()).split("\n")
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, Help))
            return title[0]

        answer = await ask(pilot, "go")
        assert await first_title() == "First of all"
        answer.focus()
        await settled(pilot)
        assert await first_title() == "This answer"
        assert app.engine.trace is not None
        assert [name for name, _ in explained(app.engine.trace)][:1] == ["in short"]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Inspector))
        assert await first_title() == "The passes of an answer"
        app.form = Form.of(app.chat_state, described(("chat",)), app.chat_state.request)
        await pilot.press("escape", "f9")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen) and isinstance(app.focused, Input))
        await settled(pilot)
        assert await first_title() == "This setting"
