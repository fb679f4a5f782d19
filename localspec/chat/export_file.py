"""Writing a conversation to a file, in the form that the file's name or an option asks for."""

from __future__ import annotations

import json
import os
from pathlib import Path

from localspec.conversations.export import FORMATS, markdown, page, to_wire
from localspec.conversations.store import Store
from localspec.errors import UsageError
from localspec.ui.files import write_whole


def exported(store: Store, conversation: str, leaf: int | None, form: str) -> str:
    """Return a conversation as md, html or json: the path to `leaf`, in JSON the whole tree."""
    found = store.get(conversation)
    if form == "json":
        return json.dumps(to_wire(found, store.messages(conversation)), indent=1) + "\n"
    return (page if form == "html" else markdown)(found, store.path(leaf))


def write_export(
    store: Store, conversation: str, leaf: int | None, path: Path, form: str | None, *, hint: str, force: bool = False
) -> None:
    """Write a conversation to `path`, which must not exist unless `force`; `form` None is what its name ends in."""
    form = form or form_of(path)
    if os.path.exists(path) and not (force and path.is_file()):
        raise UsageError(f"{path} exists", hint=hint)
    write_whole(path, exported(store, conversation, leaf, form), hint=hint)


def form_of(path: Path) -> str:
    """Return the form that a file's name asks for, Markdown where it does not say."""
    ending = path.suffix.lower().removeprefix(".")
    ending = {"markdown": "md", "txt": "md", "htm": "html", "": "md"}.get(ending, ending)
    if ending not in FORMATS:
        raise UsageError(f"{path.name} ends in none of .md, .html and .json", hint="--format md, or another name")
    return ending
