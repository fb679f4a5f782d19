"""What was written and not sent survives the end of the process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from textual.events import Key

from localspec.chat.conversation_writer import recover, write
from localspec.conversations.store import Store
from localspec.settings.folders import state_folder
from localspec.tui.app import LocalspecApp
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, opened, say, say_until_held
from tests.tui.test_terminal import chat, has


def left_by_ended(*texts: str, conversation: str | None = None) -> None:
    for text in texts:
        begin = "import os; from localspec.chat.conversation_writer import write"
        code = f"{begin}; write('old', 'older'); write({text!r}, {conversation!r}); os.kill(0, 9)"
        subprocess.run([sys.executable, "-c", code], check=False, start_new_session=True)


def kept(app: LocalspecApp) -> str:
    """Return what is kept for the conversation that is open."""
    file = state_folder("unsent") / f"{os.getpid()}.{app.chat_state.session}"
    return file.read_text() if file.exists() else ""


def test_a_kill_loses_neither_what_is_written_nor_what_waits(tmp_path: Path) -> None:
    terminal = chat(tmp_path, FAKE_PAUSE="0.2", FAKE_PASSES='["word "]')
    terminal.type("half a question")
    kept = (tmp_path / "state" / "unsent").glob
    terminal.wait_for(lambda: [file.read_text().strip() for file in kept("[0-9]*")] == ["half a question"])
    terminal.signal(signal.SIGKILL)
    terminal.wait()
    again = chat_with(tmp_path, "half a question")
    again.type("\x03")
    again.wait_for(lambda: not list((tmp_path / "state" / "unsent").glob("*")))
    again.type("\x11")
    assert again.wait() == 0


def chat_with(tmp_path: Path, text: str):
    from tests.cli.harness import Terminal

    env = {"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_NO_HISTORY": "1"}
    terminal = Terminal(["chat"], env=env, columns=120, rows=40)
    terminal.wait_for(lambda: has(terminal, f"› {text}") and has(terminal, "is back"))
    return terminal


async def test_what_waits_and_what_is_written_are_kept_until_they_are_sent(tmp_path: Path) -> None:
    worker = ScriptedWorker(hold_at=1)
    async with opened(worker, store=Store.open(tmp_path / "kept.db")) as (pilot, app):
        await say_until_held(pilot, worker, "one")
        await say(pilot, "two")
        app.chat.composer.insert("three")
        await until(pilot, lambda: kept(app) == "two\nthree\n")
        (own,) = state_folder("unsent").glob("*")
        assert own.stat().st_mode & 0o777 == 0o600
        worker.go.set()
        await until(pilot, lambda: len(worker.requests) == 2 and app.chat_state.answering is None)
        app.chat.composer.fill("")
        await until(pilot, lambda: not own.exists())


async def test_a_file_that_waits_for_the_message_is_kept_as_a_mention(tmp_path: Path) -> None:
    notes = tmp_path / "my notes.md"
    notes.write_text("Tangerine.")
    async with opened(store=Store.open(tmp_path / "kept.db")) as (pilot, app):
        own = state_folder("unsent") / str(os.getpid())
        await say(pilot, f'/read "{notes}"')
        await until(pilot, lambda: own.exists() and own.read_text() == f'@"{notes}"\n')
        app.chat.composer.insert("What is it?")
        await until(pilot, lambda: own.read_text() == f'What is it?\n@"{notes}"\n')
    left = recover()
    write("")
    async with opened(store=Store.open(tmp_path / "kept.db")) as (pilot, app):
        await say(pilot, left)
        await until(pilot, lambda: app.chat_state.last_answer is not None)
        asked = app.chat_state.messages.path()[0]
        assert [(each.name, each.text) for each in asked.attachments] == [(str(notes), "Tangerine.")]


async def test_what_is_typed_just_before_the_end_is_kept(tmp_path: Path) -> None:
    async with opened(store=Store.open(tmp_path / "kept.db")) as (pilot, app):
        await pilot.press(*"half")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app.return_value == 0)
    assert (state_folder("unsent") / str(os.getpid())).read_text() == "half\n"


async def test_what_one_burst_typed_before_the_end_is_kept(tmp_path: Path) -> None:
    """Ctrl+Q stands in the same read as the text before it."""
    async with opened(store=Store.open(tmp_path / "kept.db")) as (pilot, app):
        for key in (*"half", "ctrl+q"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: app.return_value == 0)
    assert (state_folder("unsent") / str(os.getpid())).read_text() == "half\n"


async def test_what_was_being_written_before_an_edit_is_kept_too(tmp_path: Path) -> None:
    async with opened(store=Store.open(tmp_path / "kept.db")) as (pilot, app):
        await say(pilot, "one")
        await until(pilot, lambda: app.chat_state.answering is None and bool(app.chat.transcript.query("UserMessage")))
        app.chat.composer.fill("half")
        app.chat.transcript.query("UserMessage").first().focus()
        await pilot.press("e", "!")
        await until(pilot, lambda: kept(app) == "half\none!\n")


async def test_nothing_is_kept_where_nothing_is_to_be() -> None:
    left_by_ended("of another")
    async with opened() as (pilot, app):
        await pilot.press(*"secret")
        await until(pilot, lambda: app.chat.composer.text == "secret")
        assert not app.chat._unsent._is_due
        assert len(list(state_folder("unsent").glob("*"))) == 1, "and what another one has left stays there"


def test_what_belongs_to_another_conversation_waits_for_it() -> None:
    """A chat that begins takes all over; one that goes on with a conversation leaves the half-typed line of another."""
    left_by_ended("of none")
    left_by_ended("of the first", conversation="first")
    left_by_ended("of the second", conversation="second")
    folder = state_folder("unsent")
    assert recover("second").split("\n") == ["of none", "of the second"]
    names = sorted(each.name.partition(".")[::2] for each in folder.glob("*"))
    assert [each for _, each in names] in (["first", "second"], ["second", "first"])
    assert (folder / f"{os.getpid()}.second").read_text() == "of none\nof the second\n"
    assert recover().split("\n") == ["of the first", "of none", "of the second"]
    assert [each.name for each in folder.glob("*")] == [str(os.getpid())]
    write("later", "first")
    assert [(each.name, each.read_text()) for each in folder.glob("*")] == [(f"{os.getpid()}.first", "later\n")]
    write("")
    assert not list(folder.glob("*"))


def test_what_ended_processes_have_left_is_taken_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left_by_ended("one", "two\n")
    (state_folder("unsent") / str(os.getppid())).write_text("of a chat that goes on")
    (state_folder("unsent") / "0").write_text("no process of ours")
    assert recover().split("\n") == ["one", "two"]
    assert recover().split("\n") == ["one", "two"], "it is this process's own until it is sent"
    write("")
    assert recover() == ""
    assert len(list(state_folder("unsent").glob("*"))) == 2
