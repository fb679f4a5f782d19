"""Other conversations are looked at while an answer is written, which goes on, is kept, and is there on return."""

from pathlib import Path

import pytest
from textual.widgets import Static

from localspec.conversations.store import Store
from localspec.settings.request import Sampling
from localspec.tui.screens.conversations import Conversations
from localspec.tui.widgets.card import ErrorCard
from localspec.tui.widgets.listing import Listing
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, answers, ask, markdown_text, opened, say, say_until_held, settled, shown

STORY = "Once upon a time there was a king."


async def test_an_answer_goes_on_while_another_conversation_is_open(tmp_path: Path) -> None:
    worker, store = ScriptedWorker(), Store.open(tmp_path / "kept.db")
    async with opened(worker, store=store) as (pilot, app):
        state = app.chat_state

        def above() -> str:
            line = app.chat.query_one("#attached", Static)
            return str(line.render()) if line.display else ""

        def kept(words: str) -> list[tuple[str, str | None]]:
            key = next(each.id for each in store.conversations() if each.title == words)
            found = state.writer.ask(lambda each: each.messages(key)).result()
            return [(message.text, message.finish) for message in found]

        async def go_to(words: str) -> None:
            await pilot.press("f8")
            await until(pilot, lambda: isinstance(app.screen, Conversations) and bool(app.screen.query(Listing)))
            await pilot.press(*words)
            await settled(pilot)
            await pilot.press("enter")
            await until(pilot, lambda: app.screen is app.chat and shown(app)[0] == words)

        await ask(pilot, "one")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: shown(app) == [])
        worker.hold_at = 2
        await say_until_held(pilot, worker, "two")
        await say(pilot, "and then")
        assert above() == "next, after this answer: and then"
        await go_to("one")
        assert above() == "answering in “two” (F8)"
        assert app.chat.composer.text == "and then", "what waited for the other answer is not sent here"
        assert shown(app) == ["one", STORY]
        await pilot.press("escape")
        assert app.notices.text == "The answer in “two” goes on · F8 goes there, where Esc stops it"
        await pilot.press("f5")
        await until(pilot, lambda: app.notices.text == "Still answering in another conversation · F8 goes there")
        key = state.answered and state.answered.key
        await say(pilot, f"/delete {key}")
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        card = app.chat.query_one(ErrorCard).error
        assert f"{card.message}{card.advice}" == (
            "an answer is being written in this conversation — try: Esc there stops it"
        )
        assert kept("two")[1] == ("Once upon a time there", None), "a kill loses nothing"
        await go_to("two")
        assert markdown_text(answers(app)[0]) == "Once upon a time there"
        await go_to("one")
        worker.hold_at = None
        await say(pilot, "three")
        assert above() == "answering in “two” (F8) · next, after this answer: three"
        assert not app.chat.query(ErrorCard), "a card of a command goes with the next message"
        worker.go.set()
        await until(pilot, lambda: shown(app) == ["one", STORY, "three", STORY] and state.answering is None)
        assert above() == ""
        assert kept("two") == [("two", "sent"), (STORY, "stop")]
        await go_to("two")
        assert shown(app) == ["two", STORY]


async def test_another_answer_has_the_next_seed_and_says_so_and_the_conversation_keeps_its_own() -> None:
    worker = ScriptedWorker(hold_at=1)
    async with opened(worker, sampling=Sampling(seed=7)) as (pilot, app):

        def notes() -> list[str]:
            return [str(each.content) for each in app.chat.query(".note-card").results(Static)]

        await say_until_held(pilot, worker, "go")
        await say(pilot, "/stats")
        await until(pilot, lambda: len(notes()) == 1)
        assert notes()[0].split("\n")[0] == "The answer is still being written. Its figures so far:"
        assert "in short" not in notes()[0]

        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        for n, key in enumerate(("f5", "f5"), 2):
            await pilot.press(key)
            await until(pilot, lambda n=n: len(worker.requests) == n and app.chat_state.answering is None)
        assert notes()[-1:] == ["this answer has seed 9; /seed stays 7"]
        await pilot.press("ctrl+n")
        await ask(pilot, "go")
        await say(pilot, "/regen")
        await until(pilot, lambda: len(worker.requests) == 5 and app.chat_state.answering is None)
        assert [request.sampling.seed for request in worker.requests] == [7, 8, 9, 7, 8]
        assert app.chat_state.request.sampling.seed == 7


async def test_several_files_folders_and_patterns_are_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a command, by the key that completes their names, and by what a message names."""
    monkeypatch.chdir(tmp_path)
    worker = ScriptedWorker()
    (tmp_path / "proj").mkdir()
    for name, text in (("menu.txt", "soup\n"), ("staff.csv", "Cleo,1203\n"), ("proj/opening hours.md", "8 to 6\n")):
        (tmp_path / name).write_text(text)
    async with opened(worker) as (pilot, app):

        def notes() -> list[str]:
            return [str(each.content) for each in app.chat.query(".note-card").results(Static)]

        def names() -> list[str]:
            return [each.name for each in app.chat_state.attached]

        await say(pilot, "/read menu.txt proj/opening hours.md 'staff.csv'")
        await until(pilot, lambda: len(notes()) == 1)
        assert names() == ["menu.txt", "proj/opening hours.md", "staff.csv"]
        assert notes() == ["took 3 files: 22 B, about 11 tokens; for your next message"]
        await say(pilot, "/read none")
        await say(pilot, "/read menu.txt nothing.txt")
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        assert names() == [], "nothing is attached where one of them is wrong"
        await pilot.press("ctrl+f")
        await until(pilot, lambda: app.screen is not app.chat)
        await pilot.press(*"*.txt", "space", *"pro", "tab", "tab")
        await settled(pilot)
        assert app.screen.query_one("Input").value == "*.txt proj/opening hours.md"
        await pilot.press("space", "tab")
        await until(pilot, lambda: str(app.screen.query_one("#hint", Static).render()) == "menu.txt  proj/  staff.csv")
        await pilot.press(*"proj", "enter")
        await until(pilot, lambda: len(names()) == 2)
        assert names() == ["menu.txt", "proj/opening hours.md"], "the file of the folder is there once"
        await ask(pilot, "Who is @staff.csv?")
        assert app.notices.text == "took staff.csv: 10 B, about 6 tokens"
        sent = worker.requests[-1].messages[-1].content
        assert [name in sent for name in ("```menu.txt", "hours.md", "Cleo,1203")] == [True] * 3
