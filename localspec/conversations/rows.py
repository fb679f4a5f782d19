"""Rows of the file and the records made of them."""

import json
import os
import re
import sqlite3
from pathlib import Path

from localspec.conversations.records import INTERRUPTED, Attachment, Conversation, StoredMessage, by_names

_FILES = re.compile(r'\A\s*(?:@(?:"[^"\n]+"|\S+)\s+)+(?=\S)')  # mentioned before anything else
_BYTE = re.compile(r"\\u(dc[89a-f][0-9a-f])")  # as Python holds a byte of a file's name that is no UTF-8
_NUMBERS = 1 << 24  # more than there are numbers of processes
TITLE = 60  # characters of a title that was taken from a message

MESSAGE = "SELECT id, conversation, parent, role, text, created, finish, stats, attachments, writer FROM message"
BARE_MESSAGE = MESSAGE.replace("stats", "NULL AS stats")  # its figures are the most of it
CONVERSATION = """SELECT id, title, pair, system, created, updated, deleted_at, leaf,
    (SELECT count(*) FROM message WHERE message.conversation = conversation.id) AS n_messages
    FROM conversation"""
# When a conversation is used: now, or just behind the last use where the clock was set back by less than a day since.
USED = """ifnull(
    (SELECT max(updated) + 1e-6 FROM conversation WHERE updated > :now AND updated < :now + 86400.0), :now)"""
# A parent is older than its children, so the order of the ids is that of the path.
PATH = f"""WITH RECURSIVE line(node, above) AS (
        SELECT id, parent FROM message WHERE id = ?
        UNION ALL SELECT message.id, message.parent FROM message JOIN line ON message.id = line.above)
    {MESSAGE} WHERE id IN (SELECT node FROM line) ORDER BY id"""


def conversation(row: sqlite3.Row) -> Conversation:
    values = dict(row)
    return Conversation(**{**values, "pair": _pair(values["pair"])})


def message(row: sqlite3.Row) -> StoredMessage:
    values = dict(row)
    stats, attached = values["stats"], json.loads(values["attachments"])
    values["stats"] = None if stats is None else json.loads(stats)
    values["attachments"] = tuple(Attachment(each["name"], each["text"]) for each in attached)
    is_open = values["finish"] is None and _is_writing(values["writer"])
    values["writer"] = values["writer"] % _NUMBERS if is_open else None
    return StoredMessage(**values)


def copy(db: sqlite3.Connection, row: sqlite3.Row, conversation: str, parent: int | None) -> int:
    made = db.execute(
        "INSERT INTO message (conversation, parent, role, text, created, finish, stats, attachments)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (conversation, parent, row["role"], row["text"], row["created"], row["finish"] or INTERRUPTED, row["stats"],
         row["attachments"]),
    ).lastrowid  # fmt: skip
    assert made is not None
    return made


def end_abandoned(db: sqlite3.Connection) -> None:
    for key, writer in db.execute("SELECT id, writer FROM message WHERE finish IS NULL").fetchall():
        if not _is_writing(writer):
            db.execute("UPDATE message SET finish = ? WHERE id = ?", (INTERRUPTED, key))


def text(value: str) -> str:
    """Return what SQLite can hold of a text: half a surrogate pair is no character, and NUL would end it for some."""
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def reference(pair: str) -> str:
    """Return what SQLite can hold of a pair: bytes of a file's name that are no UTF-8 are spelled, as in \\udcff."""
    return text(pair.encode("utf-8", "backslashreplace").decode("utf-8"))


def _pair(reference: str) -> str:
    return _BYTE.sub(lambda match: chr(int(match[1], 16)), reference)


def optional_text(value: str | None) -> str | None:
    return None if value is None else text(value)


def title_of(message_text: str) -> str:
    line = " ".join(text(message_text[: 100 * TITLE]).split())
    return line if len(line) <= TITLE else line[: TITLE - 1].rstrip() + "…"


def title_of_message(message_text: str) -> str:
    """Return the title that a first message gives: without the files that stand in front of the question."""
    return title_of(by_names(_FILES.sub("", message_text[: 100 * TITLE], count=1)))


def this_process() -> int:
    """Return this process as the column `writer` names it: when it began, in front of its number. Numbers are used
    again, in a container by the next process already. Clocks are set, so the time since the system began tells them
    apart. Earlier versions wrote the number alone."""
    return _began(os.getpid()) * _NUMBERS + os.getpid()


def _is_writing(writer: int | None) -> bool:
    began, process = divmod(writer or 0, _NUMBERS)
    if began < 0 or not process:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        pass
    return began in (0, _began(process) or began)


def _began(process: int) -> int:
    """Return when a process began, in ticks since the system did; 0 where there is no /proc."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
