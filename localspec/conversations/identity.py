"""Names of conversations: short enough to type, and in the order of their beginnings.

Six characters tell the second (until 2054), two are drawn. The alphabet is Crockford's, without i, l, o and u; what is
typed may have them, or capitals.
"""

from __future__ import annotations

import os

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
LENGTH = 8
MIN_ID = 6  # characters of an id that a person may type in place of all: fewer are hit by chance
_BEGINNING = 1577836800  # 2020-01-01, in seconds since 1970
_TYPED = str.maketrans("ilo", "110")


def new_id(now: float) -> str:
    """Return an id for a conversation that begins `now`, in seconds since 1970."""
    # Not `secrets`: it brings hashlib, and the chat's first picture waits for all that is imported.
    number = max(0, int(now) - _BEGINNING) % 32 ** (LENGTH - 2) * 32**2 + int.from_bytes(os.urandom(2), "big") % 32**2
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(LENGTH)))


def as_typed(text: str) -> str:
    """Return the id, or the part of one, that a person means by `text`; "" for what is none."""
    meant = text.strip().lower().translate(_TYPED)
    return meant if 0 < len(meant) <= LENGTH and all(letter in ALPHABET for letter in meant) else ""
