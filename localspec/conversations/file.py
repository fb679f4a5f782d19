"""The open file: transactions, and a copy in memory where the file cannot be written."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from localspec.conversations import database, rows
from localspec.conversations.answer_stream import AnswerStream
from localspec.conversations.database import Unsaved
from localspec.errors import LocalspecError

Result = TypeVar("Result")


class File:
    """One connection, which threads use one at a time. `path` is None in memory, from the start or after an error.
    Raises IntegrityError and IncompatibleError for a file that must not be touched."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.trouble: LocalspecError | None = None
        self._lock = threading.RLock()
        self._stream = AnswerStream(self._flush_soon)
        self._is_closed = False
        try:
            self._db = database.connect(path)
        except Unsaved as trouble:
            self._db = database.connect(None)
            self.path, self.trouble = None, trouble
            _copy_what_can_be_read(path, self._db)

    @classmethod
    def copied(cls, path: Path) -> File:
        """Return a copy in memory of what can be read of the file at `path`; errors of reading are ignored."""
        file = cls(None)
        with contextlib.suppress(LocalspecError):
            _copy_what_can_be_read(path, file._db)
        return file

    def read(self, ask: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._lock:
            self._flush_soon()
            with database.translated(self.path):
                return ask(self._db)

    def write(self, act: Callable[[sqlite3.Connection], Result], *, waits: bool = True) -> Result:
        """Run `act` in a transaction after the text that has come; in memory where the file cannot be written. `waits`
        for the disk. Otherwise a power failure may undo the transaction; the death of this process does not."""
        with self._lock:
            taken = self._stream.take()
            try:
                try:
                    return self._try(act, taken, waits=waits)
                except Unsaved as trouble:
                    self._go_on_in_memory(trouble)
                return self._try(act, taken, waits=waits)
            except BaseException:
                self._stream.put_back(taken)
                raise

    def append(self, message: int, text: str) -> None:
        self._stream.add(message, text)

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._stream.close()
            self._is_closed = True
            try:
                self.write(lambda db: None)
            finally:
                self._db.close()

    def _try(self, act: Callable[[sqlite3.Connection], Result], taken: dict[int, str], *, waits: bool) -> Result:
        def both(db: sqlite3.Connection) -> Result:
            for message, text in taken.items():
                db.execute("UPDATE message SET text = text || ? WHERE id = ?", (rows.text(text), message))
            return act(db)

        with database.translated(self.path):
            database.roll_back(self._db)  # Ctrl+C may have come twice, also in a rollback
            self._db.execute(f"PRAGMA synchronous = {'FULL' if waits else 'NORMAL'}")
            return database.transact(self._db, both, taken.clear)

    def _flush_soon(self) -> None:
        with self._lock:
            taken = {} if self._is_closed else self._stream.take()
            if not taken:
                return
            try:
                self._try(lambda db: None, taken, waits=False)
            except BaseException as trouble:
                self._stream.put_back(taken)
                if not isinstance(trouble, LocalspecError):
                    raise
                if isinstance(trouble, Unsaved) and not trouble.is_busy:
                    self._go_on_in_memory(trouble)

    def news(self) -> LocalspecError | None:
        trouble, self.trouble = self.trouble, None
        return trouble

    def _go_on_in_memory(self, trouble: Unsaved) -> None:
        if self.path is None:
            raise trouble
        copied = database.connect(None)
        with database.translated(self.path):
            self._db.backup(copied)
        self._db.close()
        self._db, self.path, self.trouble = copied, None, trouble


def _copy_what_can_be_read(path: Path | None, into: sqlite3.Connection) -> None:
    if path is None or not path.is_file():
        return
    try:
        file = database.read_only(path)
    except Unsaved:
        return
    with contextlib.closing(file), database.translated(path):
        file.backup(into)
