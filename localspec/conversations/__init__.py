"""Conversations, kept while they happen: trees of messages in one SQLite file that several processes may share.

`store.Store` is what others use; `records` what it hands out; `database` opens the file and says what is wrong with
it; `sending` makes a request's messages of a path; `export` writes a conversation for other programs and people.
"""

from importlib.util import find_spec

from localspec.errors import NotFoundError

if find_spec("_sqlite3") is None:
    raise NotFoundError(
        "this Python was built without SQLite, in which conversations are kept",
        hint="a Python that has it, as your system's, or one built anew where libsqlite3-dev is installed",
    )
