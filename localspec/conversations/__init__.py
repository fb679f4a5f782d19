"""Conversations, written while they happen: trees of messages in one SQLite file that several processes may share.

Other rooms use `store.Store`, which returns `records`. `database` opens the file and translates its errors. `sending`
makes the messages of a request from a path, and `export` writes a conversation as Markdown, HTML or JSON.
"""

from importlib.util import find_spec

from localspec.errors import NotFoundError

if find_spec("_sqlite3") is None:
    raise NotFoundError(
        "this Python was built without SQLite, in which conversations are kept",
        hint="your system's python3, or apt install libsqlite3-dev and build this Python again",
    )
