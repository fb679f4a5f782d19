"""What is seen of the transcript while text comes: following, letting go, resizing, very long answers."""

from __future__ import annotations

import pytest
from textual.widgets import Markdown, Static

from localspec.conversations.export import MAX_CHARACTERS
from localspec.models.store import usual_speculation
from localspec.settings.request import LoadSettings
from localspec.tui.app import LocalspecApp
from localspec.tui.widgets.card import WelcomeCard
from localspec.tui.widgets.flow import Flow, wrap
from localspec.tui.widgets.message import Spoken
from tests.recorded import recorded_expressions
from tests.tui.chats import until
from tests.tui.scripted import (
    SETTINGS,
    ScriptedWorker,
    answers,
    ask,
    markdown_text,
    opened,
    say_until_held,
    settled,
    shown,
)

LINES = [f"Line {n}.\n\n" for n in range(60)]


def page(app: LocalspecApp) -> str:
    return str(app.chat.query_one(WelcomeCard).render())


async def test_the_empty_page_says_what_the_bundled_pair_is() -> None:
    """Until another pair is chosen; drafting in another way is no demonstration."""
    async with opened(speculation=usual_speculation(SETTINGS)) as (pilot, app):
        await until(pilot, lambda: "not an assistant" in page(app))
        for words in ("5 million parameters", "localspec pull NAME", "localspec plan FILE.gguf --hub", "F1"):
            assert words in page(app)
        app.engine.switch_pair(LoadSettings("/models/other.gguf", name="other"))
        await until(pilot, lambda: "not an assistant" not in page(app))
        assert "F1" in page(app)


def is_at_end(app: LocalspecApp) -> bool:
    transcript = app.chat.transcript
    return bool(transcript.max_scroll_y - transcript.scroll_y <= 2)


async def test_the_end_is_followed_until_a_person_goes_up() -> None:
    worker = ScriptedWorker(passes=LINES, hold_at=30)
    async with opened(worker) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        await until(pilot, lambda: app.chat.transcript.max_scroll_y > 10 and is_at_end(app))
        await pilot.press("pageup")
        await pilot.pause()
        here = app.chat.transcript.scroll_y
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        await settled(pilot)
        assert app.chat.transcript.scroll_y == here
        chip = app.chat.query_one("#chip", Static)
        assert chip.display
        assert "new lines (End)" in str(chip.render())
        await pilot.press("end")
        await until(pilot, lambda: is_at_end(app))
        assert not chip.display


async def test_the_end_is_followed_again_once_it_is_reached() -> None:
    worker = ScriptedWorker(passes=LINES, hold_at=30)
    async with opened(worker) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        await until(pilot, lambda: app.chat.transcript.max_scroll_y > 10 and is_at_end(app))
        await pilot.press("pageup", "pagedown", "pagedown")
        await until(pilot, lambda: is_at_end(app))
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        await until(pilot, lambda: is_at_end(app))
        assert app.chat.transcript.is_following


@pytest.mark.parametrize("is_following", [True, False])
async def test_resizing_while_text_comes_loses_neither_text_nor_place(is_following: bool) -> None:
    worker = ScriptedWorker(passes=LINES, hold_at=40)
    async with opened(worker) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        await until(pilot, lambda: app.chat.transcript.max_scroll_y > 10 and is_at_end(app))
        if not is_following:
            await pilot.press("pageup")
        for size in ((80, 24), (60, 20), (40, 12), (25, 6), (12, 3), (200, 60), (120, 30)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        await settled(pilot)
        assert shown(app)[-1] == "".join(LINES)
        assert app.chat.transcript.is_following is is_following
        assert is_at_end(app) is is_following


async def test_the_end_is_followed_whenever_a_message_is_laid_out() -> None:
    """A widget asks for its layout when its own task comes to it, which may be after all that is said of the text."""
    async with opened(ScriptedWorker(passes=LINES)) as (pilot, app):
        await ask(pilot, "go")
        await until(pilot, lambda: is_at_end(app))
        late = Static("one row")
        await app.chat.transcript.mount(late)
        await settled(pilot)
        before = app.chat.transcript.max_scroll_y
        late.update("\n" * 100)
        await until(pilot, lambda: app.chat.transcript.max_scroll_y > before + 90)
        await until(pilot, lambda: is_at_end(app))


async def test_a_reply_of_ten_thousand_lines() -> None:
    """It is shown as plain rows, all of them, and the app stays usable."""
    text = [f"This is line {n} of very many.\n" * 10 for n in range(1000)]
    worker = ScriptedWorker(passes=text)
    async with opened(worker) as (pilot, app):
        answer = await ask(pilot, "go")
        flow = answer.query_one(Flow)
        assert flow.size.height >= 10_000
        assert not answer.query(Markdown)
        assert shown(app)[-1] == "".join(text)
        await until(pilot, lambda: is_at_end(app))
        rows = ["".join(part.text for part in strip) for strip in app.screen._compositor.render_strips()]
        assert any("This is line 999 of very many." in row for row in rows)


async def test_what_was_streamed_is_parsed_once_more_when_it_is_whole() -> None:
    """A table and a fence, cut anywhere: in the end they are what a whole parse makes of them."""
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint('x')\n```\n\nDone, *really*."
    for size in (1, 3, 7):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        async with opened(ScriptedWorker(passes=pieces)) as (pilot, app):
            answer = await ask(pilot, "go")
            whole = Markdown(text)
            await app.chat.mount(whole)
            await pilot.pause()
            assert markdown_text(answer) == markdown_text(whole)
            assert "print('x')" in markdown_text(answer)


async def test_a_text_that_outgrows_markdown_goes_on_as_plain_rows() -> None:
    text = ["word " * 200 + "\n"] * (MAX_CHARACTERS // 1000 + 5)
    async with opened(ScriptedWorker(passes=text)) as (pilot, app):
        answer = await ask(pilot, "go")
        assert answer.query(Flow)
        assert shown(app)[-1] == "".join(text)
        assert len(answers(app)) == 1


async def test_keys_go_from_message_to_message_and_back_to_writing() -> None:
    async with opened() as (pilot, app):
        await pilot.press("tab")
        assert app.focused is app.chat.composer  # there is no message to go to
        await ask(pilot, "one")
        await ask(pilot, "two")
        seen = []
        for key in ("tab", "k", "up", "k", "k", "j", "down"):
            await pilot.press(key)
            assert isinstance(app.focused, Spoken)
            seen.append(app.focused.entry.text[:4])
        assert seen == ["Once", "two", "Once", "one", "one", "Once", "two"]
        await pilot.press("tab")
        assert app.focused is app.chat.composer


async def test_a_link_is_copied_and_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr("textual.app.App.copy_to_clipboard", lambda self, text: copied.append(text))
    monkeypatch.setattr("textual.app.App.open_url", lambda *_: pytest.fail("it was opened"))
    async with opened(ScriptedWorker(passes=["[see](http://example.org/x)"])) as (pilot, app):
        answer = await ask(pilot, "go")
        paragraph = answer.query("MarkdownParagraph").first()
        await pilot.click(paragraph, offset=(1, 0))
        await settled(pilot)
        assert copied == ["http://example.org/x"]
        assert app.is_running


test_what_is_recorded = recorded_expressions(__file__, wrap)
