"""Files of a conversation: the one that /save writes and /load reads, and documents for people (/export).

The first holds the turns of a path as JSON, which other programs can read and write.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from localspec.chat.message_tree import Node
from localspec.conversations.export import FORMATS, markdown, page, to_wire, without_folders
from localspec.conversations.records import USER
from localspec.conversations.store import Store
from localspec.errors import IntegrityError, NotFoundError, UsageError
from localspec.settings.text_files import did_you_mean
from localspec.ui.files import write_whole

SCHEMA = "localspec.chat/1"
MAX_FILE = 64 << 20  # bytes; a longer conversation fits no context


@dataclass(frozen=True, slots=True)
class Turn:
    user: str
    assistant: str | None


@dataclass(frozen=True, slots=True)
class Saved:
    system: str | None
    turns: tuple[Turn, ...]

    @property
    def n_messages(self) -> int:
        return sum(1 + (turn.assistant is not None) for turn in self.turns)


def turns(path: Sequence[Node]) -> tuple[Turn, ...]:
    made = []
    for i, message in enumerate(path):
        if message.role == USER:
            following = path[i + 1] if i + 1 < len(path) else None
            answer = following.text if following is not None and following.role != USER else None
            made.append(Turn(message.content, answer))
    return tuple(made)


def save(path: Path, saved: Saved, pair: str) -> None:
    """Write a file in one step; refuses to replace one that is not of this kind."""
    if os.path.exists(path) and not _is_ours(path):
        raise UsageError(f"{path} exists and is not a localspec chat", hint="/save with another name")
    text = json.dumps({"schema": SCHEMA, "pair": pair, **msgspec.to_builtins(saved)}, indent=1)
    write_whole(path, text + "\n", hint="/save with another name")


def load(path: Path) -> Saved:
    try:
        return msgspec.convert(_read(path), Saved)
    except msgspec.ValidationError:
        raise IntegrityError(f"{path} is a damaged localspec chat", hint="/load another file") from None


def exported(store: Store, conversation: str, leaf: int | None, form: str, *, has_paths: bool = False) -> str:
    """Return a conversation as md, html or json: the path to `leaf`, in JSON the whole tree."""
    record = store.get(conversation)
    if form == "json":
        made = to_wire(record, store.messages(conversation))
        return json.dumps(made if has_paths else without_folders(made), indent=1) + "\n"
    return (page if form == "html" else markdown)(record, store.path(leaf))


def write_export(
    store: Store,
    conversation: str,
    leaf: int | None,
    path: Path,
    form: str | None,
    *,
    hint: str,
    replacing: str = "",
    force: bool = False,
    has_paths: bool = False,
) -> None:
    """Write a conversation to `path`, which must not exist unless `force`; `form` None is what its name ends in."""
    form = form or form_of(path)
    if os.path.exists(path) and not (force and path.is_file()):
        raise UsageError(f"{path} exists", hint=replacing + hint)
    write_whole(path, exported(store, conversation, leaf, form, has_paths=has_paths), hint=hint)


def form_of(path: Path) -> str:
    ending = path.suffix.lower().removeprefix(".")
    ending = {"markdown": "md", "txt": "md", "htm": "html", "": "md"}.get(ending, ending)
    if ending not in FORMATS:
        raise UsageError(f"{path.name} ends in none of .md, .html and .json", hint=str(path.with_suffix(".md")))
    return ending


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE or not path.is_file():
            raise ValueError
        made = json.loads(path.read_text("utf-8"))
    except OSError as error:
        hint = did_you_mean(str(path), "/load FILE that /save wrote")
        raise NotFoundError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    except (ValueError, RecursionError):
        made = None
    if not isinstance(made, dict) or made.get("schema") != SCHEMA:
        raise IntegrityError(f"{path} is not a localspec chat", hint="/load FILE that /save wrote")
    return made


def _is_ours(path: Path) -> bool:
    try:
        return bool(_read(path))
    except (NotFoundError, IntegrityError):
        return False
