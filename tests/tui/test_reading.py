"""What a reader sees: figures of earlier answers, how answers ended, the system message, lines of a fair length."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from textual.widgets import Static

from localspec.chat.state import ChatState
from localspec.conversations.store import Store
from localspec.engine.events import Event, Finished, Loading, Reading
from localspec.settings.request import Request
from localspec.tui.app import LocalspecApp
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.screens.conversations import Conversations
from localspec.tui.widgets.listing import Listing
from localspec.tui.worker_thread import WorkerThread
from localspec.ui.stats import Waited
from localspec.ui.summary import _Figures, kept_line
from tests.tui.chats import shown, until
from tests.tui.scripted import SETTINGS, ScriptedWorker, answers, ask, opened, plain, say, settled


@dataclass
class Reader(ScriptedWorker):
    """Reads half of a prompt of 16 tokens, and then waits."""

    def generate(self, request: Request) -> Iterator[Event]:
        for index, event in enumerate(super().generate(request)):
            if index == 1:
                yield Reading(8)
                self.is_held.set()
                self.go.wait()
            yield event


@dataclass
class Cut(ScriptedWorker):
    """Ends every answer with -n."""

    def generate(self, request: Request) -> Iterator[Event]:
        for event in super().generate(request):
            yield replace(event, reason="length") if isinstance(event, Finished) else event


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_how_far_a_prompt_is_read_is_shown(size: tuple[int, int]) -> None:
    worker = Reader()
    async with opened(worker, size=size) as (pilot, app):
        await say(pilot, "go")
        await until(pilot, lambda: shown(app).count("reading 8 of 16 tokens") == 2)
        top = shown(app).split("\n")[0]
        assert "reading 8 of 16 tokens" in top
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None and not app.engine.worker_thread.is_busy)
        assert "reading" not in shown(app)


async def test_an_answer_that_waits_for_its_pair_says_how_far_that_is() -> None:
    asked = threading.Event()

    class Slow(ScriptedWorker):
        def load(self, settings: object) -> Iterator[Event]:
            for event in super().load(SETTINGS):
                is_slow = len(self.loads) == 2 and isinstance(event, Loading) and not self.is_held.is_set()
                if is_slow:
                    self.is_held.set()
                    asked.wait()
                yield Loading("target", 0.25) if isinstance(event, Loading) else event
                if is_slow:
                    self.go.wait()

    worker = Slow()
    async with opened(worker) as (pilot, app):
        await until(pilot, lambda: len(worker.loads) == 1 and not app.engine.worker_thread.is_busy)
        app.engine.switch_pair(replace(app.chat_state.settings, name="another"))
        await say(pilot, "go")
        await until(pilot, lambda: bool(answers(app)))
        asked.set()
        await until(pilot, lambda: "loading the model 25%" in plain(answers(app)[0], "head"))
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None and not app.engine.worker_thread.is_busy)


async def test_an_answer_that_was_cut_says_so_also_when_it_is_opened_again() -> None:
    store = Store.open(None)
    async with opened(Cut(), store=store) as (pilot, app):
        answer = await ask(pilot, "go")
        assert "cut off by max-tokens" in plain(answer, "head")
        key = app.chat_state.messages.key or ""
        await say(pilot, "/new")
        await app.chat.turns.open(key)
        assert "cut off by max-tokens" in plain(answers(app)[0], "head")


async def test_a_chat_that_is_opened_again_keeps_the_figures_of_its_answers() -> None:
    store = Store.open(None)
    async with opened(store=store) as (pilot, app):
        before = plain(await ask(pilot, "go"), "note")
        key = app.chat_state.messages.key or ""
        conversation = app.chat_state.writer.ask(lambda each: each.get(key)).result()
        state = ChatState.opened(store, SETTINGS, Request(), former=conversation)
    app = LocalspecApp(ChatEngine(state, WorkerThread(ScriptedWorker())))
    async with opened(app=app) as (pilot, app):
        note = answers(app)[0].query_one(".note", Static)
        assert note.display
        after = str(note.render())
    for part in ("9 tokens", "6 of 8 guesses right"):
        assert part in before
        assert part in after


def test_figures_of_other_versions_are_shown_as_far_as_they_go() -> None:
    parts = {"start": 100.0, "load": 2700.0, "read": 1400.0, "write": 1000.0}
    assert kept_line({"timings": {"parts_ms": parts}}) == "5.2 s (start 0.1, load 2.7, read 1.4, write 1.0)"
    assert kept_line({}) == ""
    assert kept_line({"timings": None, "spec": None}) == ""
    assert kept_line({"timings": {"predicted_n": 3}}) == "3 tokens"
    timings = {"predicted_n": 30, "predicted_per_second": 10.0, "draft_n": 20, "draft_n_accepted": 15, "ttft_ms": 500.0}
    drafted = "15 of 20 guesses right (75 %)"
    assert kept_line({"timings": timings}) == f"30 tokens · 10.0 tok/s · {drafted} · first token after 0.50 s"
    plain_one = kept_line({"timings": {**timings, "draft_n": 0}})
    assert plain_one == "30 tokens · 10.0 tok/s · plain decoding · first token after 0.50 s"


def test_a_line_of_eighty_columns_says_where_the_seconds_went() -> None:
    """The parts add up to the whole in each form; in the short one the start is a part of the load."""
    parts = {"start": 100.0, "load": 1149.0, "read": 551.0, "write": 3000.0}
    timings = {"predicted_n": 160, "predicted_per_second": 10.0, "draft_n": 20, "draft_n_accepted": 15}
    spec = {"speedup": 2.31, "speedup_ci95": [2.1, 2.52], "tokens_per_pass": 2.5, "passes": 60, "drafting_passes": 59}
    stored = {"timings": {**timings, "parts_ms": parts}, "spec": spec}
    guessed, took = "15 of 20 guesses right (75 %)", "4.8 s (start 0.1, load 1.1, read 0.6, write 3.0)"
    rate, brief, least = "160 tokens · 10.0 tok/s", "4.8 s (load 1.2, read 0.6, write 3.0)", "10.0 tok/s · 2.31× plain"
    expected = [
        f"{rate} · 2.31× plain, 2.10 to 2.52 · {guessed} · 2.5 tokens a pass · {took}",
        f"{rate} · 2.31× plain, 2.10 to 2.52 · {guessed} · {took}",
        f"{rate} · 2.31× plain, 2.10 to 2.52 · 75 % of guesses right · {took}",
        f"{rate} · 2.31× plain, 2.10 to 2.52 · 75 % of guesses right · {brief}",
        f"{rate} · 2.31× plain · 75 % of guesses right · {brief}",
        f"{rate} · 2.31× plain · {brief}",
        f"{least} · {brief}",
        f"{least} · 4.8 s",
        "10.0 tok/s · 4.8 s",
        "10.0 tok/s",
    ]
    assert list(dict.fromkeys(kept_line(stored, width) for width in range(200, 0, -1))) == expected
    assert all(kept_line(stored, len(line)) == line != kept_line(stored, len(line) - 1) for line in expected[:-1])
    plain = {"timings": {**timings, "draft_n": 0, "parts_ms": {**parts, "load": 0.0}}, "spec": {"passes": 60}}
    assert kept_line(plain, 79) == f"{rate} · plain · 3.7 s (start 0.1, read 0.6, write 3.0)"
    unknown = _Figures(31, 303.0, "speedup unknown: too few plain passes", 20, 17, 0.85, 2.1, Waited(0, 210, 0, 90))
    assert unknown.line("", 79) == "31 tokens · 303.0 tok/s · 85 % of guesses right · 0.3 s (load 0.2, write 0.1)"
    quick = {"timings": {"parts_ms": {"start": 0.0, "load": 0.0, "read": 46.0, "write": 704.0}}}
    assert [kept_line(quick, width) for width in (31, 29)] == ["0.75 s (read 0.05, write 0.70)", "0.7 s (write 0.7)"]


async def test_a_system_message_is_seen_while_it_goes_along() -> None:
    async with opened() as (pilot, app):
        assert "system" not in shown(app)
        await say(pilot, "/system You are a pirate.")
        await settled(pilot)
        assert "system (^S): You are a pirate." in shown(app)
        await say(pilot, "/system none")
        await settled(pilot)
        assert "system (^S)" not in shown(app)


async def test_prose_is_no_wider_than_one_reads() -> None:
    worker = ScriptedWorker(passes=["word " * 200])
    async with opened(worker, size=(200, 60)) as (pilot, app):
        answer = await ask(pilot, "go " * 200)
        lines = [line for line in shown(app).split("\n") if "word word" in line or "go go" in line]
        assert len(lines) > 10
        assert all(len(line.split("│")[0].rstrip()) <= 106 for line in lines)
        assert answer.size.width <= 104


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_lists_have_no_bar_below_them(size: tuple[int, int]) -> None:
    store = Store.open(None)
    kept = store.create("storyteller", title="A title of many words " * 10)
    asked = store.add_message(kept.id, None, "user", "Tell me " * 20)
    store.finish(store.add_message(kept.id, asked.id, "assistant").id, "stop")
    async with opened(store=store, size=size) as (pilot, app):
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, Conversations) and bool(app.screen.query(Listing)))
        await until(pilot, lambda: app.screen.query_one(Listing).row_count > 0)
        await settled(pilot)
        table = app.screen.query_one(Listing)
        assert not table.show_horizontal_scrollbar
        assert table.virtual_size.width <= table.size.width + table.scrollbar_size_vertical


async def test_the_refused_drafts_need_the_colours_and_say_so() -> None:
    async with opened() as (pilot, app):
        answer = await ask(pilot, "go")
        answer.focus()
        await pilot.press("d")
        await settled(pilot)
        assert "F3 shows where tokens come from" in app.notices.text
        assert not answer.is_revealed
