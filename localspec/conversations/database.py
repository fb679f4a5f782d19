"""Opens the file of the conversations, brings it to this version, and translates SQLite's errors.

A file that is damaged, of another program or of a newer localspec is an error and is not changed. A file that cannot be
written (no space, no permission, locked by another process) raises `Unsaved`, and the store goes on in memory. Any
other error of SQLite is a bug.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from localspec.errors import IncompatibleError, IntegrityError, LocalspecError, ResourceError

PATIENCE = 5.0  # seconds to wait for another process's transaction
MEMORY = ":memory:"

Result = TypeVar("Result")

# One entry a version; a file of an older one gets those that it lacks. Times are seconds since 1970.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE conversation (
            id TEXT PRIMARY KEY NOT NULL,
            title TEXT NOT NULL,
            pair TEXT NOT NULL,
            system TEXT,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            deleted_at REAL,
            leaf INTEGER REFERENCES message(id) ON DELETE SET NULL
        )""",
        # AUTOINCREMENT: the number of a message that is gone is never another's, which the index of words relies on.
        # `writer` is the process whose answer this is, while it comes (`rows.this_process`). `parent` does not cascade:
        # messages go with their conversation, and a long one would be deeper than SQLite follows.
        """CREATE TABLE message (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation TEXT NOT NULL REFERENCES conversation(id) ON DELETE CASCADE,
            parent INTEGER REFERENCES message(id) DEFERRABLE INITIALLY DEFERRED,
            role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
            text TEXT NOT NULL,
            created REAL NOT NULL,
            finish TEXT,
            stats TEXT,
            attachments TEXT NOT NULL,
            writer INTEGER
        )""",
        "CREATE INDEX message_conversation ON message(conversation)",
        "CREATE INDEX message_parent ON message(parent)",
        "CREATE INDEX message_writer ON message(writer) WHERE finish IS NULL",
        "CREATE INDEX conversation_updated ON conversation(updated)",
    ),
)
VERSION = len(MIGRATIONS)

# Other programs number their files too, so the tables are looked for as well.
_WHOSE = """SELECT user_version, (SELECT count(*) FROM sqlite_schema),
    (SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('conversation', 'message'))
    FROM pragma_user_version"""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNWRITABLE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PROTOCOL,  # a network's file system
    sqlite3.SQLITE_NOLFS,
)


class Unsaved(ResourceError):
    """The file cannot be written. `is_busy`: another process has locked it for a while."""

    is_busy = False


def connect(path: Path | None) -> sqlite3.Connection:
    """Open the file at `path`, making it and its folder if need be; None is a database in memory. Transactions are the
    caller's own. Raises IntegrityError, IncompatibleError or Unsaved."""
    with translated(path):
        if path is not None:
            _prepare(path)
        db = _connection(MEMORY if path is None else str(path))
        try:
            _migrate(db, path)
        except BaseException:
            db.close()
            raise
        return db


def read_only(path: Path) -> sqlite3.Connection:
    with translated(path):
        # In a folder that cannot be written SQLite cannot keep what its readers share: the file is taken as it is.
        for mode in ("mode=ro", "mode=ro&immutable=1"):
            db = _connection(f"{path.absolute().as_uri()}?{mode}")
            try:
                if db.execute("PRAGMA user_version").fetchone()[0] == VERSION:
                    db.execute("SELECT count(*) FROM message").fetchone()
                    return db
            except sqlite3.OperationalError:
                db.close()
                continue
            db.close()
            break
    raise Unsaved(f"cannot read {path}", hint="--no-save")


@contextmanager
def translated(path: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unsaved(path, error.strerror or str(error)) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF  # the primary one
        if code in _DAMAGED:
            raise _damaged(path, str(error)) from error
        if code not in _UNWRITABLE:
            raise
        unsaved = _unsaved(path, str(error))
        unsaved.is_busy = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        raise unsaved from error


def transact(
    db: sqlite3.Connection, act: Callable[[sqlite3.Connection], Result], committed: Callable[[], object] = lambda: None
) -> Result:
    """Run `act` in a transaction. `committed` is called once it is committed, perhaps twice.

    The lock is taken at the start, so that no reader has to become a writer. Ctrl+C is raised when a statement returns,
    also the one that took the lock or committed, so SQLite is asked for its state. A context manager would not do:
    Ctrl+C could come before its `try`.
    """
    is_whole = False
    try:
        db.execute("BEGIN IMMEDIATE")
        result = act(db)
        is_whole = True
        db.execute("COMMIT")
        committed()
    except BaseException as error:
        if is_whole and not db.in_transaction and not isinstance(error, sqlite3.Error):
            committed()
        roll_back(db)
        raise
    return result


def roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def _connection(name: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        name, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=name.startswith("file:")
    )
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA foreign_keys = ON")
    return db


def _prepare(path: Path) -> None:
    """Make the folder and the file for their owner alone; SQLite gives its other files the same mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.exists(path) and not path.is_file():
        raise _unsaved(path, "it is not a regular file")
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _migrate(db: sqlite3.Connection, path: Path | None) -> None:
    version = _version(db, path)
    _use_write_ahead_log(db)
    if version == VERSION:
        return

    def migrate(db: sqlite3.Connection) -> None:
        for statements in MIGRATIONS[_version(db, path) :]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")

    transact(db, migrate)


def _version(db: sqlite3.Connection, path: Path | None) -> int:
    # In one statement, so as of one moment: between two, another process may have made the tables.
    version, tables, ours = map(int, db.execute(_WHOSE).fetchone())
    if (version != 0 or tables) and (version <= 0 or ours < 2):
        raise _damaged(path, "it belongs to another program")
    if version > VERSION:
        message = f"{path} was written by a newer localspec (its version is {version}, this one knows {VERSION})"
        raise IncompatibleError(message, hint="pip install -U localspec, or --no-save to leave it alone")
    return version


def _use_write_ahead_log(db: sqlite3.Connection) -> None:
    """Let readers and one writer work at once. Where the file system cannot do that, SQLite's journal stays."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:  # another process does the same now: SQLite does not wait for that
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _unsaved(path: Path | None, reason: str) -> Unsaved:
    return Unsaved(f"conversations are not saved: {path}: {reason}", hint="/save FILE keeps this one")


def _damaged(path: Path | None, reason: str) -> LocalspecError:
    message = f"the conversations in {path} cannot be read: {reason}"
    return IntegrityError(message, hint=f"mv '{path}' '{path}.damaged' begins anew; --no-save does without")
