"""Going through a conversation in any order: what is sent alternates, what is looked at is a path, nothing is lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.chat.answer_writer import AnswerWriter
from localspec.chat.message_tree import MessageTree
from localspec.chat.state import ChatState
from localspec.conversations.records import ASSISTANT, USER
from localspec.conversations.store import Store
from localspec.engine.events import Committed, Finished, Piece, StepMs
from localspec.settings.request import LoadSettings, Request
from tests.cli.harness import ROOT

MOVES = st.sampled_from(["ask", "answer", "silence", "undo", "again", "edit", "switch", "choose", "begin", "resume"])
SETTINGS = LoadSettings("/t.gguf", name="p")


def move(state: ChatState, store: Store, name: str, number: int) -> None:
    """Make one step, as a renderer would; what is not possible here is left out."""
    messages, path = state.messages, state.messages.path()
    question = messages.question()
    if name == "ask":
        state.say(f"q{number}")
    elif name in ("answer", "silence") and path and path[-1].role == USER:
        writer = AnswerWriter(state)
        writer.begin(path[-1])
        text = f"a{number}" if name == "answer" else ""
        list(writer.recorded(iter([Finished("stop", text, 0.0, 0.0, 0)])))
        writer.finish("stop", {})
    elif name == "undo":
        state.undo()
    elif name == "again" and question is not None:
        state.go_to(state.ask_again(question))
    elif name == "edit" and question is not None:
        state.edit(question, f"e{number}")
    elif name == "switch" and messages.paths():
        state.go_to(messages.paths()[number % len(messages.paths())])
    elif name == "choose" and path:
        siblings = messages.siblings(path[number % len(path)])
        state.choose(siblings[number % len(siblings)])
    elif name == "begin":
        state.begin()
    elif name == "resume" and store.conversations():
        kept = store.conversations()
        found = kept[number % len(kept)]
        state.open(MessageTree.restored(found, store.messages(found.id)))


def test_a_file_that_is_attached_again_is_attached_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it holds now."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        Path(name).write_text(name)
    with Store.open(None) as store:
        state = ChatState.opened(store, SETTINGS, Request())
        state.attach("a.txt b.txt")
        Path("a.txt").write_text("other")
        state.attach("*.txt")
        assert [(each.name, each.text) for each in state.attached] == [("a.txt", "other"), ("b.txt", "b.txt")]
        state.attach("a.txt")
        assert [each.name for each in state.attached] == ["b.txt", "a.txt"]
        assert state.mentions == " ".join(f'@"{tmp_path}/{name}"' for name in ("a.txt", "b.txt", "*.txt"))
        state.detach()
        assert state.mentions == ""
        state.attach("b.txt")
        assert state.mentions == f'@"{tmp_path}/b.txt"'


@settings(max_examples=60)
@given(st.lists(MOVES, max_size=25))
def test_any_way_through(names: list[str]) -> None:
    with Store.open(None) as store:
        state, n_before = ChatState.opened(store, SETTINGS, Request(), system="S"), 0
        for number, name in enumerate(names):
            move(state, store, name, number)
            path, key = state.messages.path(), state.messages.key
            assert [entry.parent for entry in path] == [None, *[entry.id for entry in path]][: len(path)]
            if key is not None:
                kept = store.path(store.get(key).leaf)
                assert [(message.id, message.text) for message in kept] == [(entry.key, entry.text) for entry in path]
                again = MessageTree.restored(store.get(key), store.messages(key))
                assert [entry.content for entry in again.path()] == [entry.content for entry in path]
                assert len(again.paths()) == len(state.messages.paths())
            sent = state.request_after(state.messages.path(), "next").messages
            roles = [message.role for message in sent]
            assert roles[0] == "system"
            assert roles[1:] == [USER, ASSISTANT] * ((len(roles) - 2) // 2) + [USER]
            assert all(message.content for message in sent)
            n = sum(each.n_messages for each in store.conversations())
            assert n >= n_before, "nothing that was said is lost"
            n_before = n


def test_an_answer_keeps_its_tokens() -> None:
    """Also in the store; the same words that were read from a file have none."""
    out = (Piece(7, "a", "plain"), Piece(9, "b", "plain"))
    passed = Committed(0, 1, 0, 0, 0, out, "ab", StepMs(0.0, 0.0, 0.0, 0.0), is_probe=False, why="")
    with Store.open(None) as store:
        state = ChatState.opened(store, SETTINGS, Request())
        writer = AnswerWriter(state)
        writer.begin(state.say("q"))
        list(writer.recorded(iter([passed, Finished("stop", "", 0.0, 0.0, 0)])))
        writer.finish("stop", {})
        key = state.messages.key
        assert key is not None
        again = ChatState.opened(store, SETTINGS, Request(), former=store.get(key))
        for each in (state, again):
            assert [message.ids for message in each.request_for(each.say("next")).messages] == [(), (7, 9), ()]


def test_what_an_answer_was_given_without_holds_on_its_branch() -> None:
    """Also for a conversation that comes back, and not for a branch that began before."""
    with Store.open(None) as store:
        state = ChatState.opened(store, SETTINGS, Request())
        asked = []
        for left_out in ([], [0], None):
            asked.append(state.say("q"))
            writer = AnswerWriter(state)
            writer.begin(asked[-1])
            list(writer.recorded(iter([Finished("stop", "a", 0.0, 0.0, 0)])))
            writer.finish("stop", {"left_out": left_out})  # None: it failed before it began
        assert [state.request_for(each).left_out for each in asked] == [(), (), (0,)]
        key = state.messages.key
        assert key is not None
        again = ChatState.opened(store, SETTINGS, Request(), former=store.get(key))
        assert again.request_for(again.say("next")).left_out == (0,)
        path = again.messages.path()
        assert again.request_for(again.edit(path[2], "another")).left_out == ()


def test_a_python_without_sqlite_is_told_of() -> None:
    """One line and its exit code; what needs no conversations goes on working."""
    code = """
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "_sqlite3" else find_spec(name, package)
from localspec.cli.entry import outcome
sys.exit(outcome(sys.argv[1:]))
"""
    run = [sys.executable, "-c", code]
    done = subprocess.run([*run, "run", "hi"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr.startswith("localspec: this Python was built without SQLite")
    assert done.stderr.count("\n") == 1
    assert subprocess.run([*run, "methods"], cwd=ROOT, capture_output=True, timeout=60).returncode == 0
