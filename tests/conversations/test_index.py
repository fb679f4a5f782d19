"""The index of words grows without keeping other processes from the file."""

import sqlite3
import time
from pathlib import Path

import pytest

from localspec.conversations import search
from localspec.conversations.store import Store

N = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.db"


def with_messages(path: Path) -> str:
    with Store.open(path) as store:
        home = store.create("p").id
        for number in range(N):
            store.add_message(home, None, "user", f"needle {number}")
    return home


def test_others_write_while_the_first_search_makes_the_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as there is more to take in, and what they write or take away meanwhile does not disturb it."""
    with_messages(path)
    monkeypatch.setattr(search, "_HELD", 0.0, raising=False)
    passed: list[float] = []

    def write_elsewhere(seconds: float) -> None:
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        other.execute("PRAGMA foreign_keys = ON")
        if passed:
            other.execute("UPDATE conversation SET updated = updated + 1")
        else:
            other.execute("DELETE FROM message WHERE text = 'needle 3'")
        other.close()
        passed.append(seconds)

    with Store.open(path) as store:
        monkeypatch.setattr(time, "sleep", write_elsewhere)
        hits = store.search("needle")
        monkeypatch.undo()
        assert [hit.message.text for hit in hits] == ["needle 4", "needle 2", "needle 1", "needle 0"]
        assert store._file._db.execute("SELECT count(*) FROM words_docsize").fetchone()[0] == N - 1
    assert len(passed) == N - 1
    assert set(passed) == {0.15}, "SQLite looks every tenth of a second whether it is let in"


def test_a_file_that_is_held_meanwhile_is_searched_without_the_rest(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_messages(path)
    monkeypatch.setattr(search, "_HELD", 0.0)
    monkeypatch.setattr("localspec.conversations.database.PATIENCE", 0.1)
    with Store.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        monkeypatch.setattr(time, "sleep", lambda seconds: other.execute("BEGIN IMMEDIATE"))
        assert len(store.search("needle")) == N
        other.close()
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        assert len(store.search("needle")) == N
        assert store.is_saved
