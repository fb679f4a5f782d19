"""Finding conversations: by a part of their id, by words of their title, and by words that were said.

The index of words is SQLite's own (FTS5, by groups of three characters, so that it finds parts of words in every
script). The search itself brings it up to date, so a chat without searches does not wait for it. Without FTS5 every
text is scanned, and only letters of ASCII match in either case.
"""

import re
import sqlite3
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from localspec.conversations import rows
from localspec.conversations.database import transact
from localspec.conversations.records import LENGTH, MIN_ID, Conversation, Hit, as_typed
from localspec.conversations.rows import BARE_MESSAGE, CONVERSATION
from localspec.errors import NotFoundError, UsageError
from localspec.sanitize import one_line

_GRAM = 3  # characters; the index knows no shorter word
_MOST_WORDS, _MOST = 100, 10_000  # words and characters of a query; SQLite refuses more than it can nest or compare
_BEFORE, _AFTER = 30, 60  # characters of an excerpt around what was found
_TITLED = """SELECT id, title, (SELECT substr(text, 1, 200) FROM message
    WHERE conversation = found.id AND role = 'user' ORDER BY id LIMIT 1) AS words
    FROM conversation AS found WHERE deleted_at IS NULL{} ORDER BY updated DESC, id DESC"""
_INDEX = """CREATE VIRTUAL TABLE IF NOT EXISTS words
    USING fts5(text, content='message', content_rowid='id', tokenize='trigram')"""
_LACKING = "finish IS NOT NULL AND id NOT IN (SELECT id FROM words_docsize)"  # of `message`
_N_LACKING = """SELECT (SELECT count(*) FROM message) - (SELECT count(*) FROM message WHERE finish IS NULL)
    - (SELECT count(*) FROM words_docsize)"""  # from indices alone: no text is read
_HELD = 0.5  # seconds for which others cannot write while the index grows, well below their patience
_PAUSE = 0.15  # seconds for which they can: SQLite looks every tenth of a second whether it is let in


def by_id(db: sqlite3.Connection, typed: str, *, is_deleted: bool) -> Conversation:
    """Return the conversation whose id, or only whose id's beginning or end, is `typed`: MIN_ID characters or more.
    Raises NotFoundError or UsageError."""
    meant = as_typed(typed)
    if 0 < len(meant) < MIN_ID:
        hint = f"{MIN_ID} characters or more of the ID that begins its line in localspec logs"
        raise UsageError(f"{one_line(typed)!r} is too short for the ID of a conversation", hint=hint)
    for pattern in (f"{meant}%", f"%{meant}") if meant else ():
        sql = f"{CONVERSATION} WHERE id LIKE ? AND (deleted_at IS NOT NULL) = ? ORDER BY id DESC LIMIT 3"
        conversations = [rows.conversation(row) for row in db.execute(sql, (pattern, is_deleted))]
        if len(conversations) == 1:
            return conversations[0]
        if conversations:
            names = " and ".join(each.id for each in conversations[:2])
            hint = f"all {LENGTH} characters of one of them"
            raise UsageError(f"{typed!r} is not one conversation: {names} are both meant", hint=hint)
    kind = "deleted conversation" if is_deleted else "conversation"
    raise NotFoundError(f"there is no {kind} {one_line(typed)!r}", hint="localspec logs")


def titled(db: sqlite3.Connection, query: str) -> list[Conversation]:
    """Return the conversations whose title has every word of `query`, the last used first. Raises UsageError."""
    return [_home(db, row["id"]) for row in _titles(db, query)]


def _titles(db: sqlite3.Connection, query: str) -> Iterator[sqlite3.Row]:
    words = _words(query)
    values = [f"%{_escaped(word)}%" for word in words if word.isascii()]  # of these alone SQLite knows both cases
    others = [word.casefold() for word in words if not word.isascii()]
    for row in db.execute(_TITLED.format(r" AND title LIKE ? ESCAPE '\'" * len(values)), values):
        if all(word in row["title"].casefold() for word in others):
            yield row


def hits(db: sqlite3.Connection, query: str, limit: int) -> list[Hit]:
    """Return at most `limit` hits, -1 all: titles with every word of `query`, then messages; raises UsageError."""
    given = (row for row in _titles(db, query) if rows.title_of_message(row["words"] or "") != row["title"])
    named = list(islice(given, None if limit < 0 else limit))
    by_title = [Hit(_home(db, row["id"]), None, excerpt(row["title"], query)) for row in named]
    return by_title + _messages(db, query, limit if limit < 0 else limit - len(by_title))


def _home(db: sqlite3.Connection, key: str) -> Conversation:
    return rows.conversation(db.execute(f"{CONVERSATION} WHERE id = ?", (key,)).fetchone())


def _messages(db: sqlite3.Connection, query: str, limit: int) -> list[Hit]:
    words = _words(query)
    conditions = ["conversation IN (SELECT id FROM conversation WHERE deleted_at IS NULL)"]
    values: list[object] = []
    long = [word for word in words if len(word) >= _GRAM]
    if long and _index(db):
        conditions.append("id IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(" ".join('"{}"'.format(word.replace('"', '""')) for word in long))
        words = [word for word in words if word not in long]
    for word in words:
        conditions.append(r"text LIKE ? ESCAPE '\'")
        values.append(f"%{_escaped(word)}%")
    sql = f"{BARE_MESSAGE} WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
    messages = [rows.message(row) for row in db.execute(sql, (*values, limit))]
    homes = {key: _home(db, key) for key in {each.conversation for each in messages}}
    return [Hit(homes[each.conversation], each, excerpt(each.text, query)) for each in messages]


def _words(query: str) -> list[str]:
    words = list(dict.fromkeys(query.split()))
    if not words:
        raise UsageError("name the words to search for", hint="localspec logs search WORDS")
    if len(words) > _MOST_WORDS or len(query) > _MOST:
        most = f"{_MOST_WORDS} words and {_MOST} characters"
        raise UsageError(f"this is too much to search for: at most {most}", hint="fewer words")
    return words


def excerpt(text: str, query: str, before: int = _BEFORE, after: int = _AFTER) -> str:
    at = place(text, query) or 0
    start, end = max(0, at - before), at + after
    line = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"


def place(text: str, query: str) -> int | None:
    match = pattern(query).search(text)
    return None if match is None else match.start()


def pattern(query: str) -> re.Pattern[str]:
    # Not in text.casefold(), whose places are others: ß is two characters there.
    return re.compile("|".join(map(re.escape, query.split())), re.IGNORECASE)


def remove(db: sqlite3.Connection, which: str, values: Sequence[object]) -> None:
    if _has_index(db):
        db.execute(
            f"""INSERT INTO words(words, rowid, text) SELECT 'delete', id, text FROM message WHERE id IN
                (SELECT id FROM words_docsize) AND conversation IN (SELECT id FROM conversation WHERE {which})""",
            values,
        )
    db.execute(f"DELETE FROM conversation WHERE {which}", values)


def _index(db: sqlite3.Connection) -> bool:
    """Make the index, or bring it up to date; False where this SQLite has no FTS5 or the file cannot be written. The
    first time may take long. The lock is released now and then, so that other processes can write meanwhile."""
    try:
        transact(db, lambda db: db.execute(_INDEX))
        if not db.execute(_N_LACKING).fetchone()[0]:
            return True
        lacking = deque(id for (id,) in db.execute(f"SELECT id FROM message WHERE {_LACKING} ORDER BY id"))
        while lacking:
            transact(db, lambda db: _catch_up(db, lacking))
            if lacking:
                time.sleep(_PAUSE)
    except sqlite3.OperationalError:
        return False
    return True


def _catch_up(db: sqlite3.Connection, lacking: deque[int]) -> None:
    until = time.monotonic() + _HELD
    insert = f"INSERT INTO words(rowid, text) SELECT id, text FROM message WHERE id = ? AND {_LACKING}"
    while lacking:
        db.execute(insert, (lacking.popleft(),))
        if time.monotonic() >= until:
            return


def _has_index(db: sqlite3.Connection) -> bool:
    try:
        db.execute("SELECT count(*) FROM words_docsize").fetchone()
        db.execute("SELECT rowid FROM words LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        return False
    return True


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
