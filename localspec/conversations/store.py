"""The conversations on disk, written while they happen. Only a `Store` writes the file; processes may share it.

A conversation is a tree. Answering again adds a sibling of the answer, editing adds a sibling of the message, and
nothing is removed. The path from a beginning to a leaf is shown.

Invariants: a method that returns has written. Only the text of an answer that is still coming may lack its last half
second where the process is killed (`answer_stream`), and more where the power fails. If the file cannot be written, the
store goes on in memory with everything that it had, and `trouble` returns the reason once.

Threads: any thread may call any method; calls take turns. `append_text` returns at once. The others mostly take less
than a millisecond, but may wait for the disk, and up to `database.PATIENCE` seconds for another process. The loop that
draws a screen must leave them to a thread.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from localspec.conversations import rows, search
from localspec.conversations.file import File
from localspec.conversations.records import ASSISTANT, SENT, USER, Attachment, Conversation, Hit, StoredMessage, new_id
from localspec.conversations.rows import CONVERSATION, MESSAGE
from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.sanitize import one_line
from localspec.settings.folders import drop_texts

KEPT_DELETED = 7 * 86400.0  # seconds in which a deletion can be undone


class Store:
    """The conversations of one file, or of memory. Make one with `open`; it is a context manager."""

    def __init__(self, file: File, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    @classmethod
    def open(cls, path: Path | None, *, clock: Callable[[], float] = time.time) -> Store:
        """Open the conversations at `path`, made if there are none; None keeps them in memory and saves nothing. Raises
        IntegrityError for a damaged or foreign file and IncompatibleError for one of a newer version. Where the file
        cannot be written, the store works on a copy in memory; see `trouble`."""
        store = cls(File(path), clock)
        store._tidy()
        return store

    @classmethod
    def copied(cls, path: Path, *, clock: Callable[[], float] = time.time) -> Store:
        """Return a store in memory that begins with what can be read of the file at `path`, and never changes it."""
        return cls(File.copied(path), clock)

    @property
    def is_saved(self) -> bool:
        return self._file.path is not None

    def trouble(self) -> LocalspecError | None:
        """Return the reason why nothing is saved any more, once; None while it is saved, or after that."""
        return self._file.news()

    def create(self, pair: str, *, system: str | None = None, title: str = "") -> Conversation:
        now = self._clock()

        def insert(db: sqlite3.Connection) -> str:
            while True:
                made = new_id(now)
                if db.execute("SELECT 1 FROM conversation WHERE id = ?", (made,)).fetchone() is None:
                    break
            values = {"title": rows.text(title), "pair": rows.reference(pair), "system": rows.optional_text(system)}
            db.execute(
                "INSERT INTO conversation (id, title, pair, system, created, updated)"
                f" VALUES (:id, :title, :pair, :system, :now, {rows.USED})",
                {"id": made, "now": now, **values},
            )
            return made

        return self.get(self._file.write(insert))

    def add_message(
        self,
        conversation: str,
        parent: int | None,
        role: str,
        text: str = "",
        *,
        attachments: Iterable[Attachment] = (),
    ) -> StoredMessage:
        """Add a message below `parent` (None: a beginning) and look at it. A user's is complete; an assistant's is open
        for `append_text` until `finish`. A message restores a deleted conversation. Raises NotFoundError for one that
        was deleted for good."""
        now, is_open = self._clock(), role == ASSISTANT
        attached = json.dumps([{"name": each.name, "text": each.text} for each in attachments])
        finish = None if is_open else SENT
        values = (conversation, parent, role, rows.text(text), now, finish, attached, rows.this_process())

        def insert(db: sqlite3.Connection) -> int:
            _check(db, conversation, parent)
            made = db.execute(
                "INSERT INTO message (conversation, parent, role, text, created, finish, attachments, writer)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            ).lastrowid
            assert made is not None
            sql = f"UPDATE conversation SET leaf = :leaf, updated = {rows.USED}, deleted_at = NULL WHERE id = :id"
            db.execute(sql, {"leaf": made, "now": now, "id": conversation})
            if role == USER:
                title = rows.title_of_message(text)
                db.execute("UPDATE conversation SET title = ? WHERE id = ? AND title = ''", (title, conversation))
            return made

        # Waiting for the disk would delay the first word of an answer, which has no text yet.
        return self.message(self._file.write(insert, waits=not is_open))

    def append_text(self, message: int, text: str) -> None:
        if text:
            self._file.append(message, text)

    def finish(self, message: int, reason: str, stats: dict[str, Any] | None = None) -> StoredMessage:
        encoded = None if stats is None else json.dumps(stats)

        def update(db: sqlite3.Connection) -> None:
            db.execute("UPDATE message SET finish = ?, stats = ? WHERE id = ?", (reason, encoded, message))
            db.execute(
                f"UPDATE conversation SET updated = {rows.USED}"
                " WHERE id = (SELECT conversation FROM message WHERE id = :id)",
                {"now": self._clock(), "id": message},
            )

        self._file.write(update)
        return self.message(message)

    def get(self, conversation: str) -> Conversation:
        row = self._file.read(lambda db: db.execute(f"{CONVERSATION} WHERE id = ?", (conversation,)).fetchone())
        if row is None:
            raise _unknown(conversation)
        return rows.conversation(row)

    def find(self, typed: str, *, is_deleted: bool = False) -> Conversation:
        """Return the conversation whose id a person typed, or its beginning or end where only one has it. Deleted ones
        are found with `is_deleted`, and only they. Raises NotFoundError for none, UsageError for several and for a part
        that is too short."""
        return self._file.read(lambda db: search.by_id(db, typed, is_deleted=is_deleted))

    def conversations(self, limit: int = -1) -> list[Conversation]:
        sql = f"{CONVERSATION} WHERE deleted_at IS NULL ORDER BY updated DESC, id DESC LIMIT ?"
        most = min(limit, sys.maxsize)  # SQLite takes no number of more than 64 bits
        selected = self._file.read(lambda db: db.execute(sql, (most,)).fetchall())
        return [rows.conversation(row) for row in selected]

    def message(self, message: int) -> StoredMessage:
        messages = self._messages(f"{MESSAGE} WHERE id = ?", message)
        if not messages:
            raise NotFoundError(f"there is no message {message}", hint="localspec logs")
        return messages[0]

    def messages(self, conversation: str, after: int = 0) -> list[StoredMessage]:
        return self._messages(f"{MESSAGE} WHERE conversation = ? AND id > ? ORDER BY id", conversation, after)

    def path(self, leaf: int | None) -> list[StoredMessage]:
        return self._messages(rows.PATH, leaf)

    def set_leaf(self, conversation: str, leaf: int | None) -> None:
        """Look at another path; None is before the first message. Nothing is lost."""

        def update(db: sqlite3.Connection) -> None:
            _check(db, conversation, leaf)
            db.execute("UPDATE conversation SET leaf = ? WHERE id = ?", (leaf, conversation))

        self._file.write(update)

    def rename(self, conversation: str, title: str) -> None:
        self._set(conversation, "title", rows.title_of(title))

    def set_system(self, conversation: str, system: str | None) -> None:
        self._set(conversation, "system", rows.optional_text(system))

    def set_pair(self, conversation: str, pair: str) -> None:
        self._set(conversation, "pair", rows.reference(pair))

    def search(self, query: str, limit: int = 20) -> list[Hit]:
        """Return titles that a person gave, then messages in which every word of `query` occurs, each the latest first.
        Deleted ones are left out. The messages have no figures. -1 is all."""
        return self._file.read(lambda db: search.hits(db, rows.text(query), min(limit, sys.maxsize)))

    def titled(self, query: str) -> list[Conversation]:
        return self._file.read(lambda db: search.titled(db, rows.text(query)))

    def entitled(self, words: str, error: LocalspecError, hint: str) -> Conversation:
        """Return the conversation with these words in its title. Raises `error` for none, UsageError for several."""
        titled = self.titled(words)
        if not titled:
            raise error
        if len(titled) > 1:
            raise UsageError(f"{len(titled)} conversations have {one_line(words)!r} in their title", hint=hint)
        return titled[0]

    def fork(self, message: int) -> Conversation:
        """Begin a conversation that has said what was said up to `message`; the old one stays as it is."""
        here = self.message(message)
        old = self.get(here.conversation)
        made = self.create(old.pair, system=old.system, title=old.title)

        def copy(db: sqlite3.Connection) -> None:
            parent = None
            for row in db.execute(rows.PATH, (message,)).fetchall():
                parent = rows.copy(db, row, made.id, parent)
            db.execute("UPDATE conversation SET leaf = ? WHERE id = ?", (parent, made.id))

        self._file.write(copy)
        return self.get(made.id)

    def delete(self, conversation: str, *, now: bool = False) -> None:
        """Delete a conversation: for a week `undelete` brings it back, unless it is to go `now`."""
        if now:
            self._file.write(lambda db: search.remove(db, "id = ?", (conversation,)))
        else:
            self._set(conversation, "deleted_at", self._clock())
        if self.is_saved:
            drop_texts()  # now nobody writes its answers into a file again

    def undelete(self, conversation: str | None = None) -> Conversation:
        """Bring a deleted conversation back, None the last one. Raises NotFoundError if there is none."""
        sql = f"{CONVERSATION} WHERE deleted_at IS NOT NULL AND id = ifnull(?, id) ORDER BY deleted_at DESC LIMIT 1"
        row = self._file.read(lambda db: db.execute(sql, (conversation,)).fetchone())
        if row is None:
            raise NotFoundError("no conversation was deleted in the last week", hint="localspec logs")
        self._set(row["id"], "deleted_at", None)
        return self.get(row["id"])

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _messages(self, sql: str, *values: object) -> list[StoredMessage]:
        return [rows.message(row) for row in self._file.read(lambda db: db.execute(sql, values).fetchall())]

    def _tidy(self) -> None:
        before = self._clock() - KEPT_DELETED
        is_open, is_old = "message WHERE finish IS NULL", "conversation WHERE deleted_at < ?"
        if self._file.read(lambda db: db.execute(f"SELECT 1 FROM {is_open} LIMIT 1").fetchone()):
            self._file.write(rows.end_abandoned)
        if self._file.read(lambda db: db.execute(f"SELECT 1 FROM {is_old} LIMIT 1", (before,)).fetchone()):
            self._file.write(lambda db: search.remove(db, "deleted_at < ?", (before,)))

    def _set(self, conversation: str, column: str, value: object) -> None:
        def update(db: sqlite3.Connection) -> None:
            _check(db, conversation, None)
            db.execute(f"UPDATE conversation SET {column} = ? WHERE id = ?", (value, conversation))

        self._file.write(update)


def _check(db: sqlite3.Connection, conversation: str, message: int | None) -> None:
    if db.execute("SELECT 1 FROM conversation WHERE id = ?", (conversation,)).fetchone() is None:
        raise _unknown(conversation)
    sql = "SELECT 1 FROM message WHERE id = ? AND conversation = ?"
    if message is not None and db.execute(sql, (message, conversation)).fetchone() is None:
        raise NotFoundError(f"conversation {conversation} has no message {message}", hint="localspec logs")


def _unknown(conversation: str) -> NotFoundError:
    return NotFoundError(f"there is no conversation {conversation}", hint="localspec logs")
