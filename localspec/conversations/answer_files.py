"""Earlier answers as files, for drafts that are copied from them (`--corpus answers`).

The folder has a file for each conversation with the text of its answers, the latest conversations first, MOST_BYTES in
all. A conversation that was deleted or not saved has none. The engine reads the folder as it reads any other.
"""

import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from localspec.conversations.database import read_only
from localspec.errors import LocalspecError
from localspec.settings.folders import answers_folder, conversations_file, drop_texts, replacing

MOST_BYTES = 16 << 20  # bytes of answers
PATIENCE = 0.3  # seconds that an answer waits for the files; what comes later is for the next one

_CONVERSATIONS = "SELECT id, updated FROM conversation WHERE deleted_at IS NULL ORDER BY updated DESC, id DESC"
_ANSWERS = """SELECT text FROM message
    WHERE conversation = ? AND role = 'assistant' AND finish IS NOT NULL AND text != '' ORDER BY id"""


def bring_up_to_date(corpus: Sequence[str], began: float) -> None:
    """Write the files in a thread, if they are among the sources of a corpus. A conversation that has gone on since
    `began`, in seconds since 1970, keeps the file that it has: what it says is in the context already, and each answer
    would change the index. Where nothing can be read, nothing is copied."""
    if str(answers_folder()) not in corpus:
        return
    thread = threading.Thread(target=_write, args=(conversations_file(), answers_folder(), began), daemon=True)
    thread.start()
    thread.join(PATIENCE)


def _write(source: Path, folder: Path, began: float) -> None:
    written: set[Path] = set()
    with suppress(OSError, sqlite3.Error):
        with suppress(LocalspecError), closing(read_only(source)) as db:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            written = _written(db, folder, began)
        stale = [file for file in folder.glob("*") if file not in written]
        if stale and not written:
            drop_texts()  # the index has them too
            return
        for file in stale:
            file.unlink()


def _written(db: sqlite3.Connection, folder: Path, began: float) -> set[Path]:
    files: set[Path] = set()
    left = MOST_BYTES
    for name, updated in db.execute(_CONVERSATIONS).fetchall():
        file = folder / f"{name}.txt"
        if updated >= began and not file.exists():
            continue
        if updated < began and not (file.exists() and abs(file.stat().st_mtime - updated) < 1e-3):
            text = "\n\n".join(row[0] for row in db.execute(_ANSWERS, (name,)))
            with replacing(file) as out:
                out.write(text.encode())
                out.flush()
                os.utime(out.fileno(), (updated, updated))
        left -= file.stat().st_size
        if left < 0:
            break
        files.add(file)
    return files
