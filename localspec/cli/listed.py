"""Conversations by their numbers in the list that `localspec logs` showed last on a terminal.

A number stands for what a person saw, also once other conversations were used. Nothing else gives it a meaning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from localspec.conversations.records import MIN_ID, Conversation
from localspec.conversations.store import Store
from localspec.errors import ResourceError, UsageError
from localspec.settings.folders import state_folder
from localspec.ui.files import write_whole


def remember(shown: Sequence[Conversation]) -> None:
    """Keep which conversations a list has shown, the first as number 1; where that cannot be, numbers mean nothing."""
    path = state_folder("listed.json")
    with suppress(OSError, ResourceError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, json.dumps([each.id for each in shown]), hint="")


def find(store: Store, typed: str, *, is_deleted: bool = False) -> Conversation:
    """Return the conversation of an ID, or of a part of one, or of a number in the list that was shown last.

    Raises as `Store.find`, and UsageError for a number that no list has shown.
    """
    if not (typed.isdecimal() and len(typed) < MIN_ID):
        return store.find(typed, is_deleted=is_deleted)
    try:
        shown = json.loads(state_folder("listed.json").read_text("utf-8"))
        known = str(shown[int(typed) - 1]) if int(typed) else ""
    except (OSError, ValueError, LookupError, TypeError):
        known = ""
    if not known:
        raise UsageError(f"no list has shown a conversation {typed}", hint="localspec logs, or its ID")
    return store.find(known, is_deleted=is_deleted)
