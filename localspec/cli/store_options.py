"""The store of conversations as a command finds it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from localspec.cli.console import Console
from localspec.cli.model_option import with_pair_of_conversation
from localspec.conversations.current import Current
from localspec.conversations.records import Conversation
from localspec.conversations.store import Store
from localspec.errors import IncompatibleError, IntegrityError, NotFoundError, ResourceError, UsageError
from localspec.models.reference import reference
from localspec.settings.request import LoadSettings, conversations_file


@contextmanager
def kept_store(*, is_changed: bool = False) -> Iterator[Store]:
    """Open what is kept, to look at it, or to change it: where that cannot be, it is an error at the end.

    Where nothing was kept yet nothing is made.
    """
    path = conversations_file()
    with Store.open(path if os.path.exists(path) else None) as store:
        yield store
        trouble = store.trouble()
        if trouble is not None and is_changed:
            raise ResourceError(trouble.message, hint="free some space there, or check who may write: ls -l")


def store_for_talking(values: dict[str, Any], console: Console) -> Store:
    """Open the store in which a conversation is to be kept, unless --no-save.

    What is wrong with the file is a warning: nobody is kept from talking. It is an error where something in it was
    asked for.
    """
    path = conversations_file()
    if not values["save"]:
        return Store.copied(path)
    try:
        return Store.open(path)
    except (IntegrityError, IncompatibleError) as error:
        if is_going_on(values):
            raise
        console.warn(f"nothing is saved: {error.message}{error.advice}")
        return Store.open(None)


def is_going_on(values: dict[str, Any]) -> bool:
    """Whether the options ask for a conversation that exists; raises UsageError where they ask for two."""
    if values["is_continued"] and values["session"]:
        raise UsageError("--continue and --session both choose a conversation", hint="leave one of the two out")
    return bool(values["is_continued"] or values["session"])


def wanted(store: Store, values: dict[str, Any]) -> Conversation | None:
    """Return the conversation that --continue or --session means, None without them.

    Its pair becomes the value of --model, unless another was typed.
    """
    if not is_going_on(values):
        return None
    if values["session"]:
        found = store.find(values["session"])
    else:
        latest = store.conversations(1)
        if not latest:
            raise NotFoundError("there is no conversation to continue", hint="localspec chat")
        found = latest[0]
    values.update(with_pair_of_conversation(values, found.pair))
    return found


def place(store: Store, settings: LoadSettings, system: str | None, found: Conversation | None) -> Current:
    """Return where the talking goes on: in `found`, answered by this pair, or in a new conversation."""
    pair = reference(settings)
    current = Current(store, pair, system)
    if found is not None:
        current.resume(found)
        if found.pair != pair:
            current.switch_pair(pair)
        if system is not None and system != found.system:
            current.system = system
    return current
