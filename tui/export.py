"""Writing a conversation to a file for other programs and people."""

from __future__ import annotations

import json
import os
from pathlib import Path

from localspec.conversations.export import markdown, page, to_wire
from localspec.conversations.store import Store
from localspec.errors import UsageError
from localspec.ui.files import write_whole

KINDS = (".md", ".html", ".json")


def suggested(conversation: str) -> Path:
    """Return a name for a file."""
    return Path(f"localspec-{conversation}.md")


def exported(store: Store, conversation: str, path: Path) -> None:
    """Write a conversation, of JSON the whole tree, else the path that is looked at.

    Raises UsageError for a name that says no kind or a file that is there already, ResourceError for one that cannot
    be written.
    """
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"{path} needs one of the endings .md, .html and .json", hint=f"{path.stem or 'chat'}.md")
    if os.path.exists(path):
        raise UsageError(f"{path} exists already", hint="another name")
    kept = store.get(conversation)
    if path.suffix.lower() == ".json":
        text = json.dumps(to_wire(kept, store.messages(conversation)), indent=1) + "\n"
    else:
        shape = markdown if path.suffix.lower() == ".md" else page
        text = shape(kept, store.path(kept.leaf))
    write_whole(path, text, hint="another name")
