"""Going through a conversation in any order: what is sent alternates, what is looked at is a path, nothing is lost."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.conversations.current import Current
from localspec.conversations.records import ASSISTANT, USER
from localspec.conversations.store import Store
from tests.cli.harness import ROOT

MOVES = st.sampled_from(["ask", "answer", "silence", "undo", "again", "fork", "switch", "begin", "resume"])


def move(current: Current, name: str, number: int) -> None:
    """Make one step, as a face would; what is not possible here is left out."""
    store, path = current.store, current.path()
    if name == "ask":
        current.ask(f"q{number}")
    elif name in ("answer", "silence") and path and path[-1].role == USER:
        made = store.add_message(current.id or "", current.leaf, ASSISTANT)
        if name == "answer":
            store.append_text(made.id, f"a{number}")
        current.leaf = store.finish(made.id, "stop").id
    elif name == "undo":
        current.before_question()
    elif name == "again":
        current.back_to_question()
    elif name == "fork":
        current.fork()
    elif name == "switch" and current.paths():
        ends = current.paths()
        current.go_to(ends[number % len(ends)].id)
    elif name == "begin":
        current.begin()
    elif name == "resume" and store.conversations():
        kept = store.conversations()
        current.resume(kept[number % len(kept)])


@settings(max_examples=60)
@given(st.lists(MOVES, max_size=25))
def test_any_way_through(names: list[str]) -> None:
    with Store.open(None) as store:
        current, n_before = Current(store, "p", "S"), 0
        for number, name in enumerate(names):
            move(current, name, number)
            path = current.path()
            assert [message.parent for message in path] == [None, *[message.id for message in path]][: len(path)]
            assert len({message.conversation for message in path}) <= 1
            if current.id is not None:
                assert store.get(current.id).leaf == current.leaf
            sent = current.to_send_with("next")
            roles = [message.role for message in sent]
            assert roles[0] == "system"
            assert roles[1:] == [USER, ASSISTANT] * ((len(roles) - 2) // 2) + [USER]
            assert all(message.content for message in sent)
            n = sum(each.n_messages for each in store.conversations())
            assert n >= n_before, "nothing that was said is lost"
            n_before = n


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
