"""The tree of a conversation: paths, branches, what is sent, and what comes back from the store."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from localspec.chat.message_tree import MessageTree, Node
from localspec.conversations.records import ASSISTANT, USER, Attachment
from localspec.conversations.sending import to_send
from localspec.conversations.store import Store
from localspec.errors import NotFoundError
from localspec.ui.programs import edited


def talked(*texts: str, system: str | None = None) -> MessageTree:
    messages, parent = MessageTree(system), None
    for n, text in enumerate(texts):
        parent = messages.add(ASSISTANT if n % 2 else USER, text, parent=parent)
    return messages


def said(messages: MessageTree) -> list[str]:
    return [entry.text for entry in messages.path()]


def sent(messages: MessageTree, last: Node) -> list[str]:
    path = messages.path_to(messages.parent(last))
    return [message.content for message in to_send(path, messages.system, last.content)]


def test_a_branch_leads_back_to_where_it_was_left() -> None:
    messages = talked("a", "b", "c", "d")
    first = messages.path()[0]
    other = messages.add(USER, "A", parent=None)
    assert said(messages) == ["A"]
    messages.choose(first)
    assert said(messages) == ["a", "b", "c", "d"]
    assert messages.siblings(first) == [first, other]


@pytest.mark.parametrize("finish", ["interrupted", "timeout", "stop", "length"])
def test_a_question_without_an_answer_is_sent_with_the_next_one(finish: str) -> None:
    messages = talked("a", "", "b", "", "c", "d", "e", "", "f", system="s")
    for entry in messages.path():
        entry.finish = finish if entry.role == ASSISTANT else entry.finish
    assert sent(messages, messages.path()[-1]) == ["s", "a\n\nb\n\nc", "d", "e\n\nf"]
    assert sent(messages, messages.path()[4]) == ["s", "a\n\nb\n\nc"]


def test_a_question_that_was_never_answered_is_sent_with_its_files() -> None:
    messages = talked("a", "b")
    asked = messages.add(USER, "c", parent=messages.path()[-1])
    asked.attachments = (Attachment("notes.txt", "n"),)
    last = messages.add(USER, "d", parent=asked)
    made = to_send(messages.path_to(asked), None, last.content)
    assert [message.role for message in made] == [USER, ASSISTANT, USER]
    assert made[-1].content == f"{asked.content}\n\nd"
    assert made[-1].files == ("notes.txt",)


def test_a_question_that_failed_is_not_sent() -> None:
    """It may have been too long, and so would be every one after it."""
    messages = talked("a", "", "b", "", "c")
    messages.path()[3].finish = "error"
    assert sent(messages, messages.path()[-1]) == ["a\n\nc"]


def test_a_hidden_message_stays_a_branch() -> None:
    messages = talked("a", "b", "c")
    messages.go_to(messages.path()[1])
    assert said(messages) == ["a", "b"]
    messages.add(USER, "C", parent=messages.path()[-1])
    assert len(messages.siblings(messages.path()[-1])) == 2


def test_a_tree_comes_back_as_it_was_kept() -> None:
    store = Store.open(None)
    kept = store.create("pair", system="s")
    asked = store.add_message(kept.id, None, USER, "a")
    answers = [store.add_message(kept.id, asked.id, ASSISTANT) for _ in range(2)]
    for answer, reason in zip(answers, ("stop", "interrupted"), strict=True):
        store.append_text(answer.id, f"b{answer.id}")
        store.finish(answer.id, reason)
    store.set_leaf(kept.id, answers[0].id)
    messages = MessageTree.restored(store.get(kept.id), store.messages(kept.id))
    assert said(messages) == ["a", f"b{answers[0].id}"]
    assert [each.finish for each in messages.siblings(messages.path()[-1])] == ["stop", "interrupted"]
    assert messages.key == kept.id


def test_an_answer_that_another_process_still_writes_has_ended_here() -> None:
    store = Store.open(None)
    kept = store.create("pair")
    asked = store.add_message(kept.id, None, USER, "a")
    store.add_message(kept.id, asked.id, ASSISTANT)
    messages = MessageTree.restored(store.get(kept.id), store.messages(kept.id))
    assert [each.finish for each in messages.path()] == ["sent", "interrupted"]


@pytest.mark.parametrize("n_left", [0, 2, 4])
def test_what_was_taken_back_stays_so(n_left: int) -> None:
    store = Store.open(None)
    kept, line = store.create("pair"), list[int]()
    for n, text in enumerate(("a", "b", "c", "d")):
        made = store.add_message(kept.id, line[-1] if line else None, ASSISTANT if n % 2 else USER, text)
        line.append(store.finish(made.id, "stop").id if n % 2 else made.id)
    store.set_leaf(kept.id, [None, *line][n_left])
    messages = MessageTree.restored(store.get(kept.id), store.messages(kept.id))
    assert said(messages) == ["a", "b", "c", "d"][:n_left]
    again = messages.add(USER, "new", parent=messages.path()[-1] if n_left else None)
    assert len(messages.siblings(again)) == (1 if n_left == 4 else 2), "nothing is lost"


def test_the_editor_changes_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nprintf "more\\n" >> "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = sorted(os.listdir(tmp_path))
    assert edited("some ") == "some more"
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("editor", ["/no/such/editor", "false", "'unclosed", "rm"])
def test_an_editor_that_fails_is_an_error_with_the_next_step(editor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    with pytest.raises(NotFoundError) as caught:
        edited("text")
    assert "EDITOR=nano" in caught.value.hint


def test_no_room_for_what_is_edited_is_an_error_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(NotFoundError, match="the editor"):
        edited("text")


def test_what_is_left_as_it_was_is_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "true")
    assert edited("a line\n") == "a line\n"
