"""Ctrl+C at every place of a transaction."""

import sqlite3
import time
from pathlib import Path
from typing import Any, cast

import pytest

from localspec.conversations import answer_stream, database
from localspec.conversations.store import Store


class Interrupted:
    """A connection on which Ctrl+C comes, once each, as the statements that begin with `words` are done."""

    def __init__(self, db: sqlite3.Connection, *words: str, is_before: bool = False) -> None:
        self._db, self._words, self._is_before = db, list(words), is_before

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        is_hit = bool(self._words) and statement.startswith(self._words[0])
        if is_hit:
            self._words.pop(0)
            if self._is_before:
                raise KeyboardInterrupt
        done = self._db.execute(statement, *values)
        if is_hit:
            raise KeyboardInterrupt
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@pytest.mark.parametrize(
    ("words", "is_before"),
    [
        (["PRAGMA synchronous"], False),
        (["BEGIN"], True),
        (["BEGIN"], False),
        (["UPDATE message SET text"], False),
        (["COMMIT"], True),
        (["COMMIT"], False),
        (["COMMIT", "ROLLBACK"], True),
    ],
    ids=["before it", "lock not taken", "lock taken", "in it", "not yet for good", "for good", "twice"],
)
@pytest.mark.parametrize("how", ["finish", "message"])
def test_an_interrupt_in_a_transaction_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], is_before: bool, how: str
) -> None:
    """Nor does it keep the file from this process or another one, whether it came as one wrote or as one read."""
    path = tmp_path / "conversations.db"
    monkeypatch.setattr(answer_stream, "INTERVAL", 3600.0)
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    with Store.open(path) as store:
        home = store.create("p").id
        answer = store.add_message(home, None, "assistant").id
        store._file._stream._next = time.monotonic() + 3600
        store.append_text(answer, "once")
        db = store._file._db
        store._file._db = cast("sqlite3.Connection", Interrupted(db, *words, is_before=is_before))
        with pytest.raises(KeyboardInterrupt):
            store.finish(answer, "stop") if how == "finish" else store.message(answer)
        store._file._db = db
        if "ROLLBACK" not in words:
            with Store.open(path) as other:
                other.create("q")
                assert other.is_saved
        store.append_text(answer, " more")
        assert store.finish(answer, "stop").text == "once more"
        assert store.is_saved
    with Store.open(path) as store:
        assert store.message(answer).text == "once more"
