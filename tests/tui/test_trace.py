"""Where tokens came from: marks and colours, refused drafts, the table of passes."""

from __future__ import annotations

import pytest
from textual.content import Content
from textual.widgets import DataTable, Static

from localspec.tui.screens.inspector import Inspector
from localspec.tui.source_marks import View, marked
from localspec.ui.sources import Span
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, answers, ask, markdown_text, opened, settled

ORIGINS = [
    Span("Once", "plain"),
    Span(" upon", "draft"),
    Span(" a", "draft"),
    Span(" day", "rejected"),
    Span(" time", "corrected"),
    Span(" there", "copied"),
    Span(" was", "copied"),
    Span(",", "bonus"),
    Span(" he", "early"),
    Span("\n\n", "plain"),
]


def test_every_origin_but_the_drafts_has_a_mark() -> None:
    assert marked(ORIGINS, View.MARKS).plain == "·Once· upon a ⟦time⟧ ‹there was›,⁺ ⟨he⟩\n\n"


def test_where_nothing_was_drafted_nothing_is_marked() -> None:
    origins = [Span("Once", "plain"), Span(" upon", "plain")]
    assert marked(origins, View.FULL).plain == "Once upon"


def test_colours_say_the_same_as_the_marks() -> None:
    content = marked(ORIGINS, View.FULL)
    assert content.plain == marked(ORIGINS, View.MARKS).plain
    styles = {content.plain[span.start : span.end].strip(): str(span.style) for span in content.spans}
    assert styles["upon a"] == "$origin-draft"
    assert styles["⟦time⟧"] == "$origin-corrected"
    assert styles["‹there was›"] == "$origin-copied"
    assert not marked(ORIGINS, View.MARKS).spans


def test_refused_drafts_are_struck_through_where_they_are_wanted() -> None:
    content = marked(ORIGINS, View.FULL, is_revealed=True)
    assert " a day ⟦time⟧" in content.plain
    assert any("strike" in str(span.style) for span in content.spans)


@pytest.mark.parametrize(
    ("drafter", "mark"),
    [("draft-model", "There lived a"), ("suffix", "‹There lived a›"), ("early-exit", "⟨There lived a⟩")],
)
async def test_the_mark_tells_who_drafted(drafter: str, mark: str) -> None:
    worker = ScriptedWorker(passes=["First.", " There lived a king"], drafter=drafter)
    async with opened(worker) as (pilot, _app):
        answer = await ask(pilot, "go")
        await pilot.press("f3")
        await until(pilot, lambda: answer.query_one(".origins", Static).display)
        assert mark in str(answer.query_one(".origins").render())
        assert not answer.query_one("ReplyText").display


async def test_f3_goes_round_and_d_reveals() -> None:
    async with opened() as (pilot, _app):
        answer = await ask(pilot, "go")
        origins = answer.query_one(".origins", Static)
        seen = []
        for _ in range(3):
            await pilot.press("f3")
            await pilot.pause()
            seen.append(origins.display)
        assert seen == [True, True, False]
        assert markdown_text(answer) == "Once upon a time there was a king."
        await pilot.press("f3")
        answer.focus()
        await pilot.press("d")
        await pilot.pause()
        assert "wrong" in str(origins.render())


async def test_the_first_press_of_f3_colours() -> None:
    async with opened() as (pilot, _app):
        answer = await ask(pilot, "go")
        await pilot.press("f3")
        await settled(pilot)
        shown_as = answer.query_one(".origins", Static).content
        assert isinstance(shown_as, Content)
        assert {"$origin-corrected", "$origin-draft"} <= {str(span.style) for span in shown_as.spans}


async def test_tokens_are_marked_while_they_come() -> None:
    worker = ScriptedWorker(hold_at=2)
    async with opened(worker) as (pilot, app):
        await pilot.press("f3")
        app.chat.composer.fill("go")
        await pilot.press("enter")
        await until(pilot, lambda: app.engine.trace is not None and len(app.engine.trace.passes) == 2)
        assert answers(app)[0].query_one(".origins").display
        assert "⟦there⟧" in str(answers(app)[0].query_one(".origins").render())
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)


async def test_the_inspector_lists_every_pass() -> None:
    async with opened() as (pilot, app):
        answer = await ask(pilot, "go")
        answer.focus()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Inspector))
        table = app.screen.query_one(DataTable)
        assert table.row_count == 3
        row = [str(cell) for cell in table.get_row_at(1)]
        assert row[2:7] == ["draft-model", "4", "3", " a time there", " wrong"]
        await pilot.press("escape")
        assert app.screen is app.chat


async def test_the_head_of_the_passes_is_whole_in_a_narrow_terminal() -> None:
    async with opened(size=(80, 24)) as (pilot, app):
        answer = await ask(pilot, "go")
        answer.focus()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Inspector))
        await settled(pilot)
        head = app.screen.query_one(".title", Static)
        rows = [line.text.strip() for line in head.render_lines(head.size.region)]
        assert " ".join(filter(None, rows)).endswith(", guessed: draft-model 8")


async def test_f3_says_why_an_answer_that_was_kept_has_no_colours() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "go")
        await pilot.press("f3")
        await settled(pilot)
        assert app.notices.text == "Origins of tokens in colours · F3 changes that"
        await pilot.press("f3", "f3")
        app.engine.traces.clear()
        await app.chat.renew()
        await pilot.press("f3")
        await until(pilot, lambda: "not the origins of their tokens" in app.notices.text)
