"""The commands of the line chat that go about its conversations, and those that change what answers."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from localspec.chat.commands import TABLE
from localspec.conversations.store import Store
from localspec.errors import WorkerDiedError
from localspec.settings.request import LoadSettings, Request, Sampling
from tests.cli.talking import ANSWER, Talk


@pytest.fixture
def talk(capsys: pytest.CaptureFixture[str]) -> Talk:
    return Talk(capsys)


def test_settings_say_what_tells_their_origin(talk: Talk) -> None:
    shown = talk.say("/settings")
    assert "temp" in shown
    assert "localspec config show --origin says where each comes from" in shown


def test_help_names_every_command(talk: Talk) -> None:
    shown = talk.say("/help")
    for command in TABLE.commands:
        assert f"  {command.usage} " in shown
        assert all(f"/{alias}" in shown for alias in command.aliases)


def test_an_answer_is_kept_as_it_was_given(talk: Talk) -> None:
    talk.say("one")
    question, answer = talk.kept
    assert (question.finish, answer.finish, answer.text) == ("sent", "stop", ANSWER)
    assert answer.stats is not None
    assert answer.stats["timings"]["draft_n"] == 8
    assert "text" not in answer.stats


def test_an_answer_that_broke_off_is_kept_with_the_reason(talk: Talk) -> None:
    talk.worker.fails[2] = WorkerDiedError("the engine was killed (SIGKILL)")
    talk.say("one")
    assert [message.finish for message in talk.kept] == ["sent", "error"]
    talk.worker.fails[0] = WorkerDiedError("the engine was killed (SIGKILL)")
    talk.say("two")
    assert talk.said == ["one", "Once upon a time there", "two", ""], "an answer without a word is kept with its reason"
    assert [message.finish for message in talk.kept][-1] == "error"


def test_an_empty_answer_is_said_and_kept_and_not_sent(talk: Talk) -> None:
    talk.worker.passes = [""]
    talk.say("one")
    assert "the answer is empty; /regen" in talk.errors
    assert talk.said == ["one", ""]


def test_editing_begins_a_branch(talk: Talk) -> None:
    talk.say("one", "two", "/edit two, better")
    assert talk.sent == [("user", "one"), ("assistant", ANSWER), ("user", "two, better")]
    assert talk.said == ["one", ANSWER, "two, better", ANSWER]
    assert len(talk.store.messages(talk.chat.state.messages.key or "")) == 6


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


def test_an_attachment_goes_with_the_edit(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("notes")
    talk.say(f"/read {tmp_path}/n.txt", "explain", "/edit explain briefly")
    assert talk.sent == [("user", "```n.txt\nnotes\n```\n\nexplain briefly")]


def test_branches_are_listed_and_gone_to(talk: Talk) -> None:
    assert "no messages yet" in talk.say("/branch")
    talk.say("one", "two")
    talk.worker.passes = ["Other"]
    talk.say("/regen", "/edit two, better")
    first, second, third = talk.say("/branch").splitlines()[1:]
    assert first == f"   1. from message 3 of 4: two … {ANSWER}"
    assert second == "   2. from message 3 of 4: two … Other"
    assert third == "*  3. here, 4 messages"
    shown = talk.say("/branch 1")
    assert "You: two\nAssistant: Once upon" in shown
    assert talk.said == ["one", ANSWER, "two", ANSWER]
    talk.say("/branch 2", "three")
    assert talk.sent[-2:] == [("assistant", "Other"), ("user", "three")]
    talk.say("/branch 9", "/branch x")
    assert talk.errors.count("there is no branch") == 2


def test_what_was_taken_back_is_a_branch(talk: Talk) -> None:
    talk.say("one", "two")
    assert "undone: two (/branch restores it)" in talk.say("/undo")
    assert "  1. from message 3 of 4: two" in talk.say("/branch")
    talk.say("/branch 1")
    assert talk.said == ["one", ANSWER, "two", ANSWER]
    talk.say("/undo", "/undo")
    assert talk.said == []
    assert "nothing to undo" in talk.say("/undo")
    talk.say("anew")
    assert talk.sent == [("user", "anew")]


def test_conversations_are_listed_and_gone_on_with(talk: Talk) -> None:
    assert "there are no conversations yet" in talk.say("/list")
    assert "there are no conversations yet" in talk.say("/resume")
    talk.say("/system S", "first one", "/new", "/system none", "second one")
    shown = talk.say("/resume").splitlines()
    assert shown[1].startswith("  1. ")
    assert shown[1].endswith("second one (this one)")
    assert shown[2].endswith("first one")
    assert "/resume NUMBER" in shown[3]
    talk.say("/resume 2", "more")
    assert talk.sent == [("system", "S"), ("user", "first one"), ("assistant", ANSWER), ("user", "more")]
    talk.say(f"/resume {talk.store.conversations()[1].id}", "again")
    assert talk.sent[0] == ("user", "second one")
    talk.say("/resume zzzzzzzz", "and on")
    assert "there is no conversation" in talk.errors
    assert talk.sent[0] == ("user", "second one"), "a bad id changes nothing"


@pytest.mark.parametrize("number", ["0", "99999999999999999999", "9" * 5000])
def test_a_list_of_none_is_of_all_and_no_number_is_too_large(talk: Talk, number: str) -> None:
    talk.say(*(word for n in range(25) for word in (f"number {n}", "/new")))
    assert talk.say("/list").count(" number ") == 20
    assert talk.say(f"/list {number}").count(" number ") == 25
    assert talk.errors == ""


@pytest.mark.parametrize("line", ["/list foo", "/branch " + "9" * 5000, "/copy " + "9" * 5000])
def test_what_is_no_number_is_refused_in_one_line(talk: Talk, line: str) -> None:
    talk.say("a question")
    assert talk.say(line) == f"You: {line}\n", "the line as it was typed, and no answer"
    assert talk.errors.count("\n") == 1
    assert " — try: " in talk.errors


def test_searching(talk: Talk) -> None:
    talk.say("a needle", "/new", "hay")
    shown = talk.say("/search needle").splitlines()
    assert shown[1].endswith("You: a needle")
    talk.say("/resume 1", "more")
    assert talk.sent[0] == ("user", "a needle")
    assert "no match" in talk.say("/search needle and thread")
    talk.say("/search")
    assert "name the words to search for" in talk.errors


def test_forking(talk: Talk) -> None:
    talk.say("/fork")
    assert "nothing to fork" in talk.errors
    talk.say("one", "/fork", "two")
    assert talk.said == ["one", ANSWER, "two", ANSWER]
    assert sorted(each.n_messages for each in talk.store.conversations()) == [2, 4]


def test_deleting_and_bringing_back(talk: Talk) -> None:
    talk.say("/delete", "/undelete")
    assert talk.errors.count("localspec: ") == 2
    talk.say("one", "/new", "two", "/list")
    assert "deleting" in talk.say("/delete 2")
    assert [each.title for each in talk.store.conversations()] == ["two"]
    talk.say("/delete", "three")
    assert talk.sent == [("user", "three")], "what is deleted is left"
    talk.say("/undelete", "/new", "/undelete", "four")
    assert talk.sent[0] == ("user", "one"), "from nowhere one goes where it was"
    assert len(talk.store.conversations()) == 3
    shown = talk.say("/new", "five", "/list", "/delete 2", "/undelete", "six")
    assert "is restored" in shown
    assert talk.sent[0] == ("user", "five"), "where something was said one stays"


@pytest.mark.parametrize("command", ["/delete", "/resume"])
def test_a_number_counts_only_after_a_list(talk: Talk, command: str) -> None:
    """And a part of an ID must be long: 2 is the end of some ID."""
    talk.say("one", "/new", "two", "/new")
    ids = [each.id for each in talk.store.conversations()]
    for typed, told in (
        ("2", "2 is the number of a list, and none was shown yet"),
        (ids[0][-1:] + "v", "is too short for the ID of a conversation"),
        (ids[0][-5:] + "", "is too short for the ID of a conversation" if not ids[0][-5:].isdecimal() else "no list"),
    ):
        talk.say(f"{command} {typed}")
        assert told in talk.errors
    talk.say("/list", f"{command} 3")
    assert "the list has no number 3" in talk.errors
    assert [each.id for each in talk.store.conversations()] == ids
    assert f"{ids[1]} “one”, 2 messages" in talk.say("/list", "/delete 2")


@pytest.mark.parametrize("command", ["/delete", "/resume"])
def test_several_numbers_are_refused_with_what_to_type(talk: Talk, command: str) -> None:
    talk.say("one", "/list", f"{command} 1 2 3")
    assert talk.errors == "localspec: '1 2 3' is not one number or ID — try: 1, one at a time\n"
    assert len(talk.store.conversations()) == 1


def test_undo_names_what_brings_a_deleted_conversation_back(talk: Talk) -> None:
    assert "/undelete brings back a deleted conversation" in talk.say("one", "/delete", "/undo")
    assert "/branch restores it); /undelete brings back a deleted" in talk.say("two", "/undo")


@pytest.mark.parametrize("typed", ["/commands", "/reset", "/clera"])
def test_an_unknown_command_names_help(talk: Talk, typed: str) -> None:
    talk.say(typed)
    assert f"there is no command {typed}" in talk.errors
    assert "/help" in talk.errors
    assert "// " in talk.errors


def test_a_setting_typed_as_a_command_names_set(talk: Talk) -> None:
    talk.say("/method", "/top-k 5")
    assert "there is no command /method. Did you mean /set method?" in talk.errors
    assert "there is no command /top-k. Did you mean /set top-k?" in talk.errors


def test_a_file_that_a_setting_lacks_is_told_as_it_is_typed_here(talk: Talk) -> None:
    talk.say("/set schema nofile.json")
    assert "there is no file nofile.json — try: --schema FILE" in talk.errors


def test_titles(talk: Talk) -> None:
    talk.say("/title")
    assert "no messages yet" in talk.errors
    assert "title: one" in talk.say("one", "/title")
    assert "title: Kings" in talk.say("/title Kings")


def test_exports(talk: Talk, tmp_path: Path) -> None:
    talk.say(f"/export {tmp_path}/x.md")
    assert "nothing to export" in talk.errors
    talk.say("one", "/regen", *[f"/export {tmp_path}/x{ending}" for ending in (".md", ".html", ".json", "")])
    assert talk.errors == ""
    assert "## You\n\none\n" in (tmp_path / "x.md").read_text()
    assert (tmp_path / "x").read_text() == (tmp_path / "x.md").read_text()
    assert (tmp_path / "x.html").read_text().startswith("<!DOCTYPE html>")
    assert len(json.loads((tmp_path / "x.json").read_text())["messages"]) == 3
    talk.say(f"/export {tmp_path}/x.md", "/export", f"/export {tmp_path}/x.pdf")
    assert talk.errors.count("localspec: ") == 3


def test_what_was_loaded_is_kept_too(talk: Talk, tmp_path: Path) -> None:
    talk.say("/system S", "one", f"/save {tmp_path}/c.json", "/new", "/system none", f"/load {tmp_path}/c.json")
    assert talk.said == ["one", ANSWER]
    assert [each.system for each in talk.store.conversations()] == ["S", "S"]


def test_another_pair_answers_without_leaving(talk: Talk) -> None:
    talk.say("one")
    assert "pair: other+small" in talk.say("/model other+small")
    talk.say("two")
    assert [load.name for load in talk.worker.loads] == ["pair", "other+small"]
    assert talk.worker.n_closed == 1, "two pairs would not fit"
    assert talk.sent == [("user", "one"), ("assistant", ANSWER), ("user", "two")]
    assert "pair: other+small" in talk.say("/pair")
    assert talk.store.conversations()[0].pair.startswith("other+")


def test_a_pair_that_cannot_be_taken_changes_nothing(talk: Talk) -> None:
    talk.chat.state.request = Request(sampling=Sampling(seed=1))
    talk.say("one", "/set method draft-model", "/model /gone.gguf", "/model alone+none", "two")
    assert "/gone.gguf does not exist" in talk.errors
    assert "draft" in talk.errors.splitlines()[1]
    assert len(talk.worker.loads) == 1
    assert talk.chat.state.settings == LoadSettings("/t.gguf", "/d.gguf", "pair")


def test_another_draft_drafts(talk: Talk) -> None:
    assert "draft: /d.gguf" in talk.say("/draft")
    talk.say("/draft none", "one")
    assert talk.worker.loads[-1].draft is None
    talk.say("/draft tiny", "two")
    assert talk.worker.loads[-1].draft == "tiny"


def test_a_draft_that_nothing_uses_is_not_loaded(talk: Talk) -> None:
    """A method that uses it brings it back; one that was loaded stays."""
    talk.say("/set method suffix", "one")
    assert "the draft is not loaded: --method suffix uses none" in talk.errors
    assert [each.draft for each in talk.worker.loads] == [None]
    talk.say("/set method draft-model", "two", "/k 0", "three", "/set method suffix", "four")
    assert "not loaded" not in talk.errors
    assert [each.draft for each in talk.worker.loads] == [None, "/d.gguf"]


def test_an_axis_without_effect_is_told_once(talk: Talk) -> None:
    talk.say("/set verify traversal", "/set temp 0.5")
    assert talk.errors.count("--verify has no effect: on a chain it is --verify block") == 1


def test_a_setting_without_effect_is_told_once(talk: Talk) -> None:
    talk.say("/temp 0", "/set top-k 5", "one")
    assert talk.errors.count("--top-k has no effect: --temp 0 takes the likeliest token") == 1
    talk.say("/temp 0.5", "/set top-k 6", "/seed 3")
    assert "no effect" not in talk.errors
    talk.say("/temp 0", "two")
    assert talk.errors.count("--top-k has no effect") == 1


def test_the_first_token_is_counted_from_enter(talk: Talk) -> None:
    talk.worker.load_pause = 0.05
    talk.say("one")
    assert talk.chat.stats is not None
    assert talk.chat.stats.first_token_ms is not None
    assert talk.chat.stats.first_token_ms >= 3 * 50.0, "three steps of a load"


def test_a_race_keeps_nothing(talk: Talk) -> None:
    talk.say("/race")
    assert "no message to race" in talk.errors
    assert talk.say("one", "/race 0", "/race six") is not None
    assert "'six' is no number of rounds, from 1 to 1000 — try: /race 6" in talk.errors
    shown = talk.say("/race", "two")
    assert "tok/pass" in shown
    assert "\n  plain " in shown
    assert "\n  auto " in shown, "what was asked"
    assert [request.cold for request in talk.worker.requests[1:5]] == [True] * 4, "warmed up, then each of both"
    assert [request.messages for request in talk.worker.requests[1:5]] == [talk.worker.requests[0].messages] * 4
    assert talk.said == ["one", ANSWER, "two", ANSWER]
    assert len(talk.worker.loads) == 1


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


def test_another_draft_keeps_the_context_that_was_set(talk: Talk) -> None:
    talk.say("/ctx 512", "/draft none")
    assert talk.chat.state.settings.ctx == 512


def test_retry_is_regen_and_a_failed_answer_has_no_figures(talk: Talk) -> None:
    talk.say("one", "/retry")
    assert talk.said == ["one", ANSWER]
    assert len(talk.chat.state.messages.paths()) == 2
    talk.worker.max_messages = 0
    assert "the last answer has no figures" in talk.say("two", "/stats")
