"""Nothing that a model, a person, a file or the hub says is obeyed: not by the terminal, not by Textual's markup."""

import re

import pytest
from textual import events
from textual.widgets import Input, Markdown

from localspec.conversations.records import Attachment
from localspec.conversations.store import Store
from localspec.settings.request import LoadSettings
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.conversations import Conversations
from localspec.tui.screens.race import RaceScreen
from localspec.tui.widgets.composer import Composer, LineInput
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, ask, opened, settled, shown

MARKUP = ["[/INST]", "[/]", "[@click=app.quit]x[/]", "[link=http://x]y[/link]", "[bold", "[", "]]", "$primary", "{x}"]
CONTROLS = [
    "\x1b]52;c;QUFB\x1b\\",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\y\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[?1049l\x1bc\x1b[6n",
    "\x9b31m\x90q\x9c\x85",
    "\x07\x08\r\x0b\x0c\x00\x7f",
    "\u202eabc\u2066\u200b\u2060\ufeff\U000e0041",
    "\ud800 \ufffd \udfff",
]
ENCODED = [  # what the parser of Markdown decodes
    "a&#8238;txt.exe &#x202e; &lrm;&shy;&zwj; &#155;2J",
    "**&#8238;** `&#8238;` # &#8238;\n\n# &#8238;\n\n> &#8238;\n\n| &#8238; |\n|---|\n| &#8238; |",
    "see http://example.org/%1B%5B2J%C2%9B2J%E2%80%AE and <http://example.org/%1B%E2%80%AE>",
    "![a&#8238;b](http://example.org/%E2%80%AE) [&#8238;](http://example.org '&#8238;')",
    "```&#8238;\n&#8238;\n```",
]
FLOODS = ["\u200b" * 5000, "\u0301" * 4096, "\r" * 5000, "\x07" * 5000, "\x1b" * 3000]
MARKDOWN = [
    "```\nnever closed",
    ">" * 5000 + " deep",
    "- " * 500 + "x",
    "|" * 2000 + "\n" + "|-" * 1000 + "\n" + "|a" * 2000,
    "\\" * 3000,
    "# " * 200,
    "[a](javascript:x) ![b](http://x/y.png) <script>x</script> <b>z</b> &nbsp; \n\n---\n\n***",
    "\t\n \n\n   ",
    "日本語" * 200 + "👩\u200d👩\u200d👧" * 40,
]
# What Textual itself writes may be anything; a control character in the text of a row may not.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def rows(app: LocalspecApp) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip if not segment.control) for strip in strips)


@pytest.mark.parametrize("evils", [MARKUP, CONTROLS, ENCODED], ids=["markup", "controls", "encoded"])
async def test_text_of_a_model_is_text(evils: list[str]) -> None:
    """In every view, cut after every character."""
    worker = ScriptedWorker(answers=[["Before", *evil, "after"] for evil in evils])
    async with opened(worker) as (pilot, app):
        for evil in evils:
            app.action_new()
            await until(pilot, lambda: not shown(app))
            await ask(pilot, evil.encode("utf-8", "replace").decode() + "?")
            for _ in range(3):
                assert not CONTROL.search(rows(app)), ascii(evil)
                app.chat.action_origins()
                await pilot.pause()
            app.chat.turns.inspect(app.chat_state.messages.path()[-1])
            await pilot.pause()
            assert not CONTROL.search(rows(app)), ascii(evil)
            await app.pop_screen()
        assert app.is_running


@pytest.mark.parametrize("evils", [FLOODS, MARKDOWN], ids=["floods", "markdown"])
async def test_odd_shapes_are_shown_and_cost_nothing_but_their_room(evils: list[str]) -> None:
    pieces = [[evil[i : i + 400] for i in range(0, len(evil), 400)] for evil in evils]
    async with opened(ScriptedWorker(answers=[["Before", *each, "after"] for each in pieces])) as (pilot, app):
        for evil in evils:
            app.action_new()
            await until(pilot, lambda: not shown(app))
            await ask(pilot, "go")
            assert shown(app)[-1] == f"Before{evil}after"
            assert not CONTROL.search(rows(app)), ascii(evil[:20])
            app.chat.action_origins()
            app.chat.action_origins()
            await pilot.pause()
            assert not CONTROL.search(rows(app)), ascii(evil[:20])
            app.chat.action_origins()


async def test_a_line_of_a_megabyte() -> None:
    pieces = ["x" * 10_000] * 100
    async with opened(ScriptedWorker(passes=pieces)) as (pilot, app):
        answer = await ask(pilot, "go")
        assert len(shown(app)[-1]) == 1_000_000
        assert answer.query("Flow")


async def test_names_of_files_and_pairs_are_text() -> None:
    evil = "x\x1b]0;t\x07[/INST].txt"
    async with opened() as (pilot, app):
        app.chat_state.attached.append(Attachment(evil, "data"))
        app.chat.show_attached()
        app.engine.switch_pair(LoadSettings(f"/models/{evil}.gguf", name=evil))
        await until(pilot, lambda: not app.engine.worker_thread.is_busy)
        await settled(pilot)
        assert not CONTROL.search(rows(app))
        assert "[/INST].txt" in rows(app)
        app.chat_state.messages.system = evil
        await pilot.press("ctrl+s")
        await settled(pilot)
        assert not CONTROL.search(rows(app))


async def test_titles_and_texts_that_were_kept_are_text() -> None:
    store = Store.open(None)
    evil = "\x1b]52;c;QUFB\x07 [/INST] [@click=app.quit]x[/]"
    kept = store.create(evil, title=evil)
    store.add_message(kept.id, None, "user", evil)
    async with opened(store=store) as (pilot, app):
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, Conversations))
        await settled(pilot)
        assert "[@click=app.quit]x[/]" in rows(app)
        assert not CONTROL.search(rows(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(shown(app)))
        assert not CONTROL.search(rows(app))


async def test_a_question_that_is_raced_is_one_line_of_text() -> None:
    evil = " first\nsecond\x1b]52;c;QUFB\x07\x9b2J\u202e "
    async with opened() as (pilot, app):
        app.chat.post_message(Composer.Sent(evil))  # as it comes from a large paste
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, RaceScreen))
        await settled(pilot)
        assert "first second" in rows(app)
        assert not CONTROL.search(rows(app))


@pytest.mark.parametrize("key", ["f4", "f8", "ctrl+f", "ctrl+o", "ctrl+p", "ctrl+s"])
async def test_a_paste_is_text_wherever_one_writes(key: str) -> None:
    async with opened() as (pilot, app):
        await pilot.press(key)
        await until(pilot, lambda: app.screen is not app.chat)
        written = app.screen.query("Input, TextArea").first()
        written.focus()
        await settled(pilot)
        app.post_message(events.Paste("a\x1b]52;c;QUFB\x07\x9b2J\u202eb\r"))
        await until(pilot, lambda: "␛]52;c;QUFB␇" in rows(app))
        assert not CONTROL.search(rows(app))
        if isinstance(written, Input):
            assert written.cursor_position == len(written.value)


async def test_a_line_is_text_whoever_gives_it() -> None:
    evil = "\x1b]52;c;QUFB\x07\u202e"
    async with opened() as (pilot, app):
        line = LineInput(evil)
        await app.chat.mount(line)
        await settled(pilot)
        assert line.value == "␛]52;c;QUFB␇\\u{202e}"
        assert not CONTROL.search(rows(app))


async def test_a_link_of_an_answer_is_copied_and_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ScriptedWorker(passes=["**see** ", "[a page](http://example.org)"])
    async with opened(worker) as (pilot, app):
        visited: list[str] = []
        monkeypatch.setattr(app, "open_url", lambda url, **_: visited.append(url))
        page = (await ask(pilot, "hi")).query(Markdown).first()
        page.post_message(Markdown.LinkClicked(page, "http://example.org"))
        await until(pilot, lambda: app.clipboard == "http://example.org")
        assert visited == []
