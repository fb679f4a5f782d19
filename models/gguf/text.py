"""Text from files made safe to show: paths, keys, token texts in messages."""

from __future__ import annotations

import os


def shown(text: str | bytes | os.PathLike[str], limit: int = 120) -> str:
    r"""Return text fit for a one-line message: nothing that moves a cursor, changes direction or breaks the line.

    Bytes are read as UTF-8, and what is not valid or not printable appears as an escape (``\n``, ``\x1b``,
    ``\u202e``). Longer text keeps its end, which is where a path names its file.
    """
    raw = os.fspath(text)
    line = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    if len(line) > limit:
        line = "…" + line[-limit:]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def quoted(text: bytes, limit: int = 40) -> str:
    """Return a token's text between quotes, escaped like `shown`, cut at its end when long."""
    cut = text[:limit] + b"..." if len(text) > limit else text
    return f"'{shown(cut, limit=4 * limit)}'"
