"""The commands of the line chat that go about its conversations, and those that change what answers."""

import shlex
import sys
from pathlib import Path

import pytest

from localspec.conversations.store import Store
from tests.cli.talking import ANSWER, Talk


@pytest.fixture
def talk(capsys: pytest.CaptureFixture[str]) -> Talk:
    return Talk(capsys)


def test_editing_in_an_editor(talk: Talk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "editor.py"
    script.write_text("import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text().upper())")
    monkeypatch.setenv("VISUAL", f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}")
    monkeypatch.setattr("localspec.cli.line_chat.is_terminal", lambda stream: True)
    talk.say("one", "/edit")
    assert talk.sent == [("user", "ONE")]
    assert "nothing was changed" in talk.say("/edit")
    monkeypatch.setenv("VISUAL", "/nonexistent/editor")
    talk.say("/edit")
    assert "the editor /nonexistent/editor failed" in talk.errors


@pytest.mark.parametrize("editor", ["false", "rm", "vim 'unclosed"])
def test_an_editor_that_fails_costs_neither_chat_nor_message(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, editor: str
) -> None:
    monkeypatch.setenv("VISUAL", editor)
    monkeypatch.setattr("localspec.cli.line_chat.is_terminal", lambda stream: True)
    talk.say("one", "/edit", "two")
    assert f"the editor {editor}" in talk.errors
    assert "/edit WORDS" in talk.errors
    assert [text for role, text in talk.sent if role == "user"] == ["one", "two"]


@pytest.mark.parametrize("number", ["0", "99999999999999999999", "9" * 5000])
def test_a_list_of_none_is_of_all_and_no_number_is_too_large(talk: Talk, number: str) -> None:
    talk.say(*(word for n in range(25) for word in (f"number {n}", "/new")))
    assert talk.say("/list").count(" number ") == 20
    assert talk.say(f"/list {number}").count(" number ") == 25
    assert talk.errors == ""


def test_the_first_token_is_counted_from_enter(talk: Talk) -> None:
    talk.worker.load_pause = 0.05
    talk.say("one")
    assert talk.chat.stats is not None
    assert talk.chat.stats.first_token_ms is not None
    assert talk.chat.stats.first_token_ms >= 3 * 50.0, "three steps of a load"


def test_copying(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr("localspec.ui.programs.copy", lambda text, send: copied.append(text) or "copied")
    talk.say("/copy")
    assert "nothing to copy" in talk.errors
    talk.worker.passes = ["Look:\n```py\nx = 1\n```\nor\n~~~\ny = 2\n"]
    talk.say("one")
    talk.worker.passes = ["\x1b[31mred"]
    talk.say("two", "/copy", "/copy 2", "/copy code", "/copy 3", "/copy all")
    assert copied[:2] == ["\x1b[31mred", "Look:\n```py\nx = 1\n```\nor\n~~~\ny = 2\n"], "as it was written"
    assert "\x1b" not in copied[2]
    assert "no code in the last answer" in talk.errors
    assert "no answer '3'" in talk.errors
    talk.say("/undo", "/copy code")
    assert copied[-1] == "y = 2\n"


def test_nobody_learns_of_a_chat_that_is_not_saved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with Store.open(path) as store:
        kept = store.create("/t.gguf+/d.gguf", title="before").id
    before = path.read_bytes()
    with Store.copied(path) as store:
        talk = Talk(capsys, store)
        assert kept in talk.say("/list"), "what was kept can be gone on with"
        talk.say("/resume 1", "secret", "/list")
        assert talk.errors == ""
    assert path.read_bytes() == before
    assert b"secret" not in b"".join(each.read_bytes() for each in tmp_path.iterdir())


def test_trouble_with_saving_is_told_once_and_the_chat_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Store.open(tmp_path / "c.db") as store:
        talk = Talk(capsys, store)
        talk.say("one")
        pages = store._file._db.execute("PRAGMA page_count").fetchone()[0]
        store._file._db.execute(f"PRAGMA max_page_count = {pages}")
        talk.worker.passes = ["long " * 5000]
        talk.say("two", "three")
        assert talk.errors.count("conversations are not saved") == 1
        assert "full; /save FILE keeps this one" in talk.errors
        talk.say("four")
        assert talk.errors == ""
        assert len(talk.said) == 8


def test_two_chats_on_one_conversation_see_each_others_branches(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They were seen when the conversation was opened again, and not before."""
    with Store.open(tmp_path / "c.db") as here, Store.open(tmp_path / "c.db") as there:
        first, second = Talk(capsys, here), Talk(capsys, there)
        first.say("one", "two")
        key = first.chat.state.messages.key
        second.say(f"/resume {key}", "/edit three", "/undo", "/edit four")
        listed = first.say("/branch")
        assert listed.count("another localspec has added 4 messages here: /branch lists the branches") == 1
        assert [text in listed for text in ("*  1. here, 4 messages", "three", "four")] == [True] * 3
        assert first.said == ["one", ANSWER, "two", ANSWER], "the path stays"
        assert "another localspec" not in first.say("five", "/branch")
        assert "another localspec has added 2 messages" in second.say("six")
        assert [text for role, text in second.sent if role == "user"] == ["four", "six"]
        assert "from message 1 of 6: one" in second.say("/branch")
