"""Kept conversations: saved while they come, resumed, searched, forked, exported, deleted and brought back."""

import json
import re
import string
from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input, Static, TextArea

from localspec.chat.conversation_writer import ConversationWriter
from localspec.chat.message_tree import MessageTree
from localspec.conversations.store import Store
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.conversations import MARKED, Conversations
from localspec.tui.screens.dialog import Ask, AskText
from localspec.tui.widgets.card import ErrorCard, Note
from localspec.tui.widgets.listing import Listing
from tests.chat.test_opening import answering
from tests.tui.chats import until
from tests.tui.scripted import PATIENCE, ScriptedWorker, ask, made, opened, say, say_until_held, settled, shown

STORY = "Once upon a time there was a king."


def kept(store: Store) -> list[tuple[str, str, str | None]]:
    """Return role, text and finish of every message of the latest conversation."""
    latest = store.conversations(1)
    messages = store.messages(latest[0].id) if latest else []
    return [(message.role, message.text, message.finish) for message in messages]


def titles(app: LocalspecApp) -> list[str]:
    return [title_at(app, row) for row in range(app.screen.query_one(Listing).row_count)]


def title_at(app: LocalspecApp, row: int) -> str:
    """Return the title of a row, which stands between when it was used and the number of messages."""
    return re.split("  +", app.screen.query_one(Listing).text_of(row).plain.strip())[1]


@pytest.fixture
def store() -> Store:
    """Two conversations, of a fox and of a wolf."""
    made = Store.open(None)
    for animal in ("fox", "wolf"):
        conversation = made.create("storyteller")
        asked = made.add_message(conversation.id, None, "user", f"Tell of the {animal}")
        answer = made.add_message(conversation.id, asked.id, "assistant")
        made.append_text(answer.id, f"The {animal} ran.")
        made.finish(answer.id, "stop")
    return made


async def open_list(pilot: Pilot[int], app: LocalspecApp) -> None:
    await pilot.press("f8")
    await until(pilot, lambda: isinstance(app.screen, Conversations) and bool(app.screen.query(Listing)))
    await settled(pilot)


async def test_what_comes_just_before_the_end_is_kept(tmp_path: Path) -> None:
    worker, store = ScriptedWorker(hold_at=2), Store.open(tmp_path / "kept.db")
    app = made(worker, store=store)
    app.engine.answer(app.chat_state.say("go"))
    assert worker.is_held.wait(PATIENCE)
    app.engine.close()  # and no screen has looked yet
    assert kept(store) == [("user", "go", "sent"), ("assistant", "Once upon a time there", None)]
    worker.go.set()


async def test_an_answer_is_kept_while_it_comes(tmp_path: Path) -> None:
    worker, store = ScriptedWorker(hold_at=2), Store.open(tmp_path / "kept.db")
    async with opened(worker, store=store) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        await until(pilot, lambda: app.engine.trace is not None and len(app.engine.trace.passes) == 2)
        app.chat_state.writer.ask(lambda each: None).result()
        assert kept(store) == [("user", "go", "sent"), ("assistant", "Once upon a time there", None)]
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        app.chat_state.writer.ask(lambda each: None).result()
        assert kept(store)[1] == ("assistant", STORY, "stop")
        assert app.chat_state.writer.is_saved


async def test_the_figures_are_kept_with_the_settings_of_their_answer() -> None:
    """Whatever is changed while it comes, and though its pair was not loaded yet when it was asked for."""
    worker, store = ScriptedWorker(hold_at=2), Store.open(None)
    async with opened(worker, store=store) as (pilot, app):
        worker.load_pause = 0.2
        app.engine.switch_pair(replace(app.chat_state.settings, target="/models/other.gguf", name="other"))
        await say_until_held(pilot, worker, "go")
        await say(pilot, "/temp 0.25")
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None and not app.engine.worker_thread.is_busy)
        await ask(pilot, "more")
        found = app.chat_state.writer.ask(lambda each: each.messages(each.conversations(1)[0].id)).result()
        stats = [message.stats for message in found if message.stats is not None]
        assert [each["params"]["temperature"] for each in stats] == [0.8, 0.25]
        assert [each["pair"]["name"] for each in stats] == ["other"] * 2
        assert [each["pair"]["target"].get("arch") for each in stats] == ["llama"] * 2


async def test_branches_are_kept_as_branches() -> None:
    store = Store.open(None)
    worker = ScriptedWorker(answers=[["One."], ["Two."]])
    async with opened(worker, store=store) as (pilot, app):
        await ask(pilot, "go")
        await pilot.press("f5")
        await until(pilot, lambda: len(worker.requests) == 2 and app.chat_state.answering is None)
        app.chat_state.writer.ask(lambda each: None).result()
        conversation = store.conversations()[0]
        assert [message.text for message in store.messages(conversation.id)] == ["go", "One.", "Two."]
        assert [message.text for message in store.path(conversation.leaf)] == ["go", "Two."]


async def test_a_conversation_is_opened_and_goes_on(store: Store) -> None:
    worker = ScriptedWorker()
    async with opened(worker, store=store) as (pilot, app):
        await open_list(pilot, app)
        assert titles(app) == ["Tell of the wolf", "Tell of the fox"]
        await pilot.press("down", "enter")
        await until(pilot, lambda: shown(app) == ["Tell of the fox", "The fox ran."])
        await ask(pilot, "And then?")
        sent = [message.content for message in worker.requests[-1].messages]
        assert sent == ["Tell of the fox", "The fox ran.", "And then?"]
        assert len(store.conversations()) == 2


async def test_what_was_taken_back_stays_so_when_the_conversation_is_opened_again(store: Store) -> None:
    worker = ScriptedWorker()
    async with opened(worker, store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press("enter")
        await until(pilot, lambda: shown(app) == ["Tell of the wolf", "The wolf ran."])
        await ask(pilot, "And then?")
        await say(pilot, "/undo")
        await until(pilot, lambda: len(shown(app)) == 2)
        await app.chat.turns.open(app.chat_state.messages.key or "")
        assert shown(app) == ["Tell of the wolf", "The wolf ran."]


def marked(app: LocalspecApp, row: int = 0) -> list[str]:
    """Return the words that are marked in a row of the list."""
    line = app.screen.query_one(Listing).text_of(row)
    return [line.plain[span.start : span.end] for span in line.spans if span.style == MARKED]


def preview_lines(app: LocalspecApp) -> list[str]:
    """Return the lines of the preview that are on the screen, from its top."""
    pane = app.screen.query_one("#preview")
    lines = [app.screen._compositor.render_strips()[y].text for y in range(pane.region.y, pane.region.bottom)]
    return [line[pane.region.x : pane.region.right].strip() for line in lines]


async def test_the_list_is_searched_by_title_and_words_which_are_seen_and_marked(store: Store) -> None:
    """At 80 columns: in a row of the list, and in the preview, which goes to where they stand."""
    for long in (True, False):
        made = store.create("storyteller")
        asked = store.add_message(made.id, None, "user", "Why is the sky blue, and what is in the air? " * 3)
        answer = store.add_message(made.id, asked.id, "assistant")
        store.append_text(answer.id, "air " * 1500 * long + "dust, pollution and droplets " + "air " * 500 * long)
        store.finish(answer.id, "stop")
    store.rename(made.id, "Weather notes")
    async with opened(store=store, size=(80, 24)) as (pilot, app):
        await open_list(pilot, app)

        async def search(words: str, *rows: str) -> None:
            app.screen.query_one(Input).value = words
            await until(pilot, lambda: [title.partition(" · ")[0] for title in titles(app)] == list(rows))
            await settled(pilot)

        await search("weather not", "Weather notes")
        assert marked(app) == ["Weather", "not"]
        await search("wolf ran", "Tell of the wolf")
        assert titles(app) == ["Tell of the wolf · The wolf ran."]
        assert marked(app) == ["wolf", "wolf", "ran"]
        await search("pollut", "Weather notes", "Why is the sky blue, …")
        assert [marked(app, row) for row in (0, 1)] == [["pollut"], ["pollut"]]
        assert all(len(title) <= 67 for title in titles(app))
        await pilot.press("down")
        await until(pilot, lambda: any("pollution" in line for line in preview_lines(app)))
        assert app.screen.query_one(Listing).cursor_row == 1
        await search("pollution", "Weather notes", "Why is the sky blue, …")
        assert app.screen.query_one(Listing).cursor_row == 0, (
            "what fits best is chosen where other words are searched for"
        )
        await search("nothing like this")
        preview = app.screen.query_one("#preview Static")
        await until(pilot, lambda: str(preview.render()) == "No title or message has these words")
        await search("wolf ran", "Tell of the wolf")
        await pilot.press("ctrl+x")
        await until(pilot, lambda: titles(app) == [])
        assert str(preview.render()) == "No title or message has these words"


async def test_the_list_begins_with_the_open_one_whose_title_stands_over_what_happens_to_it(store: Store) -> None:
    """F2 is no key of the list, which it has in the chat; deleting goes on with the next row, and is undone."""
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: shown(app)[:1] == ["Tell of the fox"])
        await say(pilot, "/resume tell of")
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        card = app.chat.query_one(ErrorCard).error
        assert f"{card.message}{card.advice}" == (
            "2 conversations have 'tell of' in their title — try: /search tell of lists them"
        )
        await open_list(pilot, app)
        assert current(app) == "Tell of the fox"
        await pilot.press("f7")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        said = [str(each.render()) for each in app.screen.query(Static)]
        key = store.conversations()[1].id
        assert said[0] == f"Export {key} “Tell of the fox”, 2 messages to"
        assert app.screen.query_one(Input).value == "tell-of-the-fox.md"
        await pilot.press("escape", "f2")
        await settled(pilot)
        assert isinstance(app.screen, Conversations)
        await pilot.press("ctrl+x")
        await until(
            pilot, lambda: app.notices.text == f"Deleted {key} “Tell of the fox”, 2 messages · Ctrl+Y restores it"
        )
        assert current(app) == "Tell of the wolf"
        await pilot.press("ctrl+y")
        await until(pilot, lambda: current(app) == "Tell of the fox")
        await pilot.press("escape")
        await say(pilot, "/resume wolf")
        await until(pilot, lambda: shown(app)[:1] == ["Tell of the wolf"])
        await say(pilot, "/resume nothing-such")
        await until(pilot, lambda: len(app.chat.query(ErrorCard)) > 0)
        card = app.chat.query(ErrorCard).last().error
        assert f"{card.message}{card.advice}" == "there is no conversation 'nothing-such' — try: /list"


def current(app: LocalspecApp) -> str:
    return title_at(app, app.screen.query_one(Listing).cursor_row)


async def test_a_list_without_conversations_says_so(tmp_path: Path) -> None:
    async with opened(store=Store.open(tmp_path / "empty.db")) as (pilot, app):
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, Conversations))
        await until(pilot, lambda: "No conversations yet" in str(app.screen.query_one("#preview Static").render()))


async def test_what_is_typed_is_searched_for_and_nothing_else(store: Store) -> None:
    """Each printable key, and those that edit a field: in a list that once had commands on plain letters."""
    before = [(each.id, each.title) for each in store.conversations()]
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        keys = ("delete", "backspace", "ctrl+d", "ctrl+k", "ctrl+u", "ctrl+w")
        for key in (*"dragon", *string.printable.split()[0], *keys, *"wolf", *keys):
            await pilot.press(key)
        await settled(pilot)
        assert isinstance(app.screen, Conversations)
        assert [(each.id, each.title) for each in store.conversations()] == before


async def test_delete_names_it_and_is_undone_from_where_one_is(store: Store) -> None:
    """In the list, in the search line with words in it, and in the composer."""
    async with opened(store=store) as (pilot, app):
        for place in ("list", "composer"):
            await open_list(pilot, app)
            await pilot.press(*"wolf", "ctrl+x")
            await until(pilot, lambda: "“Tell of the wolf”, 2 messages" in app.notices.text)
            assert titles(app) == []
            assert [each.title for each in store.conversations()] == ["Tell of the fox"]
            if place == "composer":
                await pilot.press("escape", *"a draft")
            await pilot.press("ctrl+y")
            await until(pilot, lambda: app.notices.text.startswith("Restored"))
            assert len(store.conversations()) == 2
            if place == "list":
                assert len(titles(app)) == 1
                await pilot.press("escape")
        assert app.chat.composer.text == "a draft"


@pytest.mark.parametrize("words", ["", "Tell"])
async def test_what_is_restored_is_what_the_next_key_acts_on(store: Store, words: str) -> None:
    """With other conversations beside it, of which one took the cursor."""
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press(*words)
        await settled(pilot)
        table = app.screen.query_one(Listing)
        row, before = table.cursor_row, len(titles(app))
        await pilot.press("ctrl+x")
        await until(pilot, lambda: "“Tell of the wolf”" in app.notices.text and len(titles(app)) == before - 1)
        await pilot.press("ctrl+y")
        await until(pilot, lambda: len(titles(app)) == before)
        await settled(pilot)
        assert table.cursor_row == row
        await pilot.press("ctrl+x")
        await until(pilot, lambda: [each.title for each in store.conversations()] == ["Tell of the fox"])


async def test_each_deletion_is_undone_one_by_one_the_last_one_first(store: Store) -> None:
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press("ctrl+x", "ctrl+x")
        await until(pilot, lambda: titles(app) == [])
        await pilot.press("escape", "ctrl+y")
        await until(pilot, lambda: [each.title for each in store.conversations()] == ["Tell of the fox"])
        await pilot.press("ctrl+y")
        await until(pilot, lambda: len(store.conversations()) == 2)
        assert app.check_action("restore", ()) is False, "there is nothing more, and the key is the composer's again"


async def test_what_is_typed_before_a_command_comes_before_it(store: Store) -> None:
    """All in one burst: what is deleted is what was searched for, not what the cursor was on before."""
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        for key in "fox":
            app.post_message(Key(key, key))
        app.post_message(Key("ctrl+x", None))
        await until(pilot, lambda: app.notices.text.startswith("Deleted"))
        assert [each.title for each in store.conversations()] == ["Tell of the wolf"]


async def test_a_new_conversation_begins_where_the_open_one_is_deleted(store: Store) -> None:
    """As with /delete, and the key that restores brings it back onto the screen."""
    async with opened(store=store) as (pilot, app):
        await ask(pilot, "go")
        await open_list(pilot, app)
        await pilot.press("ctrl+x")
        await until(pilot, lambda: app.chat_state.messages.key is None and len(titles(app)) == 2)
        assert shown(app) == []
        await pilot.press("ctrl+y")
        await until(pilot, lambda: len(titles(app)) == 3)
        assert shown(app)[0] == "go"


async def test_what_comes_back_takes_the_place_of_nothing_that_was_said(store: Store) -> None:
    """Not even while its first answer comes, of which the store does not know yet."""
    worker = ScriptedWorker(hold_at=1)
    async with opened(worker, store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press("ctrl+x", "escape")
        await say_until_held(pilot, worker, "go")
        app.chat_state.writer.ask(lambda each: None).result()
        app.chat_state.messages.key = None  # as before it was written
        await pilot.press("ctrl+y")
        await until(pilot, lambda: app.notices.text.startswith("Restored"))
        assert shown(app)[0] == "go"
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        assert shown(app) == ["go", STORY]


async def test_what_goes_wrong_in_the_list_is_said(store: Store) -> None:
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press("ctrl+x")
        await until(pilot, lambda: len(titles(app)) == 1)
        store.delete(app.chat_state.deleted[0], now=True)  # by another process
        await pilot.press("ctrl+y")
        await until(pilot, lambda: "no conversation was deleted" in app.notices.text)


async def test_a_fork_leaves_the_old_one_as_it_was(store: Store) -> None:
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press("f6")
        await until(pilot, lambda: shown(app) == ["Tell of the wolf", "The wolf ran."])
        await ask(pilot, "More")
        counts = sorted(conversation.n_messages for conversation in store.conversations())
        app.chat_state.writer.ask(lambda each: None).result()
        assert counts == [2, 2, 4]


async def test_renaming(store: Store) -> None:
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press("ctrl+e")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        app.screen.query_one(Input).value = "Wolves"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Conversations) and titles(app)[0] == "Wolves")
        assert store.conversations()[0].title == "Wolves"
        await until(pilot, lambda: "“Wolves”, 2 messages; it was “Tell of the wolf”" in app.notices.text)


async def export(pilot: Pilot[int], app: LocalspecApp, path: Path) -> None:
    """Have an answer, and ask for the conversation in a file."""
    await ask(pilot, "go")
    await until(pilot, lambda: app.chat_state.messages.key is not None)
    app.action_open("export")
    await until(pilot, lambda: isinstance(app.screen, Ask))
    app.screen.query_one(Input).value = str(path)
    await pilot.press("enter")


@pytest.mark.parametrize(("name", "words"), [("a.md", "## "), ("a.html", "<!DOCTYPE html>"), ("a.json", '"schema"')])
async def test_export(name: str, words: str, tmp_path: Path) -> None:
    async with opened() as (pilot, app):
        await export(pilot, app, tmp_path / name)
        await until(pilot, (tmp_path / name).exists)
        text = (tmp_path / name).read_text("utf-8")
        assert words in text
        assert STORY in text
        if name.endswith("json"):
            assert len(json.loads(text)["messages"]) == 2


@pytest.mark.parametrize("name", ["there.md", "kind.pdf", "no/such/folder/a.md"])
async def test_an_export_that_cannot_be_written_replaces_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("mine")
    async with opened() as (pilot, app):
        await export(pilot, app, tmp_path / name)
        await until(pilot, lambda: bool(app.notices.text))
        assert (tmp_path / "there.md").read_text() == "mine"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["there.md"]


async def test_a_new_conversation_keeps_the_system_message() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, AskText))
        app.screen.query_one(TextArea).text = "Be brief."
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen is app.chat)
        await ask(pilot, "one")
        await pilot.press("ctrl+n")
        await ask(pilot, "two")
        sent = [(message.role, message.content) for message in worker.requests[-1].messages]
        assert sent == [("system", "Be brief."), ("user", "two")]


async def test_a_file_is_attached_fenced_and_kept_apart_from_the_words(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("A note.\n```\nno end\n")
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await say(pilot, f"/read {tmp_path / 'notes.txt'}")
        await until(pilot, lambda: bool(app.chat_state.attached))
        await ask(pilot, "What is this?")
        assert worker.requests[0].messages[0].content == "````notes.txt\nA note.\n```\nno end\n````\n\nWhat is this?"
        assert shown(app)[0] == "What is this?"
        assert not app.chat_state.attached
        key = app.chat_state.messages.key
        assert key is not None

        def names() -> list[str]:
            return [str(line.render()) for line in app.chat.query(".attached").results(Static)]

        assert names() == ["attached: notes.txt (3 lines)"]
        await say(pilot, "/new")
        await until(pilot, lambda: names() == [])
        await say(pilot, f"/resume {key}")
        await until(pilot, lambda: names() == ["attached: notes.txt (3 lines)"])


async def test_what_is_attached_is_taken_back_and_stays_in_its_conversation(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("A note.")
    async with opened() as (pilot, app):

        async def read(*keys: str) -> None:
            await say(pilot, f"/read {tmp_path / 'notes.txt'}")
            await until(pilot, lambda: bool(app.chat_state.attached) and bool(app.chat.query_one("#attached").display))
            await pilot.press(*keys)
            await until(pilot, lambda: not app.chat_state.attached and not app.chat.query_one("#attached").display)

        await read("ctrl+c")
        assert app.return_value is None
        await read(*"/read", "space", *"none", "enter")
        await read("ctrl+n")
        await ask(pilot, "one")
        await say(pilot, f"/read {tmp_path / 'notes.txt'}")
        await say(pilot, "/fork")
        await until(pilot, lambda: len(app.chat_state.writer.ask(lambda store: store.conversations()).result()) == 2)
        await settled(pilot)
        assert app.chat.query_one("#attached").display, "a copy is the same talk"


async def test_a_file_that_is_no_text_is_attached_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes("A nöte".encode("latin-1"))
    async with opened() as (pilot, app):
        await say(pilot, f"/read {tmp_path / 'binary'}")

        def warnings() -> int:
            return sum("invalid UTF-8" in str(note.render()) for note in app.chat.query(Note))

        await until(pilot, lambda: warnings() == 1)
        await pilot.press("ctrl+f", *str(tmp_path / "binary"), "enter")
        await until(pilot, lambda: warnings() == 2)


async def test_a_title_is_told_once_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    async with opened(store=Store.open(path)) as (pilot, app):
        await ask(pilot, "one")
        await say(pilot, f"/title {'long ' * 40}")
        await until(pilot, lambda: bool(app.chat.query(Note)))
        told = " ".join(str(app.chat.query(Note).last().render()).split())
        assert told == f"title: {kept_title(app)} (before: one)"
        with Store.open(path) as other:
            other.delete(app.chat_state.messages.key or "", now=True)
        await say(pilot, "/title gone")
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        assert "there is no conversation" in app.chat.query_one(ErrorCard).error.message
        assert len(app.chat.query(Note)) == 1


def kept_title(app: LocalspecApp) -> str:
    return app.chat_state.writer.ask(lambda store: store.conversations(1)[0].title).result()


async def test_what_is_attached_goes_with_a_message_that_is_said_differently(tmp_path: Path) -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):

        async def read(name: str) -> None:
            (tmp_path / name).write_text(f"in {name}\n")
            await say(pilot, f"/read {tmp_path / name}")
            await until(pilot, lambda: name in told())

        def told() -> str:
            line = app.chat.query_one("#attached")
            return str(line.render()) if line.display else ""

        def sent() -> str:
            return worker.requests[-1].messages[-1].content

        await read("a.txt")
        await ask(pilot, "one")
        assert told() == ""
        await say(pilot, "/edit")
        await read("b.txt")
        await say(pilot, "/edit")
        await ask(pilot, "one, better")
        assert sent() == "```a.txt\nin a.txt\n```\n\n```b.txt\nin b.txt\n```\n\none, better"
        assert told() == ""
        await say(pilot, "/undo")
        await until(pilot, lambda: shown(app) == [])
        assert told() == "+ a.txt, b.txt"
        await ask(pilot, "one, anew")
        assert sent().endswith("in b.txt\n```\n\none, anew")


async def test_a_store_that_fails_costs_the_saving_and_not_the_chat(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "kept.db")
    worker = ScriptedWorker()
    async with opened(worker, store=store) as (pilot, app):
        await ask(pilot, "one")
        store._file._db.close()  # as after the disk has gone
        await ask(pilot, "two")
        assert shown(app)[-1] == STORY
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        assert not app.chat_state.writer.is_saved
        assert app.is_running


async def test_what_is_said_after_the_conversation_was_deleted_for_good_begins_another_one(tmp_path: Path) -> None:
    """By another process. What was deleted stays so; an answer that was coming goes with it."""
    path = tmp_path / "kept.db"
    worker, store = ScriptedWorker(), Store.open(path)
    async with opened(worker, store=store) as (pilot, app):

        async def delete() -> None:
            await until(pilot, lambda: app.chat_state.messages.key is not None)
            with Store.open(path) as other:
                other.delete(app.chat_state.messages.key or "", now=True)

        def saved() -> list[tuple[str, str, str | None]]:
            return app.chat_state.writer.ask(kept).result()

        await ask(pilot, "one")
        await delete()
        await ask(pilot, "two")
        assert saved() == [("user", "two", "sent"), ("assistant", STORY, "stop")]
        await delete()
        await pilot.press("f5")
        await until(pilot, lambda: len(worker.requests) == 3 and app.chat_state.answering is None)
        assert saved() == [("user", "two", "sent"), ("assistant", STORY, "stop")]
        worker.hold_at = 2
        await say_until_held(pilot, worker, "three")
        await delete()
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        await ask(pilot, "four")
        assert [text for _, text, _ in saved()] == ["four", STORY]
        assert [message.content for message in worker.requests[-1].messages][::2] == ["one", "two", "three", "four"]
        assert app.chat_state.writer.is_saved
        assert not app.chat.query(ErrorCard)


@pytest.mark.parametrize("keys", [("tab", "f"), tuple("/fork")])
async def test_what_was_deleted_for_good_is_not_forked_and_that_is_a_card(
    keys: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "kept.db"
    async with opened(store=Store.open(path)) as (pilot, app):
        await ask(pilot, "one")
        app.chat_state.writer.ask(kept).result()  # once all of it is written: more would begin another conversation
        with Store.open(path) as other:
            other.delete(app.chat_state.messages.key or "", now=True)
        await pilot.press(*keys, *(() if "tab" in keys else ("enter",)))
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        assert "there is no message" in app.chat.query_one(ErrorCard).error.message
        assert shown(app) == ["one", STORY]


async def test_a_search_for_a_whole_page_is_refused_in_words(store: Store) -> None:
    async with opened(store=store) as (pilot, app):
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, Conversations))
        app.screen.query_one("#search", Input).value = " ".join(chr(0x4E00 + n) for n in range(1200))
        await until(pilot, lambda: "too much to search for" in app.notices.text)


def test_what_is_handed_over_is_written_before_the_end() -> None:
    store = Store.open(None)
    writer = ConversationWriter(store)
    made = writer.ask(lambda each: each.create("storyteller"))
    writer.close()
    assert store.get(made.result().id).pair == "storyteller"


async def test_a_conversation_of_another_pair_says_so_when_it_opens(store: Store) -> None:
    async with opened(store=store) as (pilot, app):
        await open_list(pilot, app)
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.chat.transcript.query(Note)))
        told = str(app.chat.transcript.query(Note).first().content)
        assert "held with storyteller" in told
        assert "/model storyteller loads the other" in told


async def test_what_another_process_answers_is_not_followed_before_its_end(tmp_path: Path) -> None:
    """The message stays in the composer, and goes out when the other answer is whole."""
    path = tmp_path / "kept.db"
    with answering(path) as other, Store.open(path) as store:
        worker = ScriptedWorker()
        app = made(worker, store=store)
        app.chat_state.open(MessageTree.restored(store.get(other.id), store.messages(other.id)))
        async with opened(worker, app=app) as (pilot, app):
            assert "is answering here" in " ".join(str(note.content) for note in app.chat.transcript.query(Note))
            await say(pilot, "And then?")
            await until(pilot, lambda: bool(app.chat.transcript.query(ErrorCard)))
            assert app.chat.composer.text == "And then?"
            other.finish()
            await pilot.press("enter")
            await until(pilot, lambda: [role for role, _, _ in kept(store)] == ["user", "assistant"] * 2)
            assert kept(store)[1] == ("assistant", "Half of it, and all.", "stop")
            assert shown(app)[1] == "Half of it, and all."
