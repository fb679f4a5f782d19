"""Answers a shell that completes a word. Imports no engine and nothing of the hub."""

import os
from collections.abc import Iterator
from contextlib import suppress

import click
from click.shell_completion import CompletionItem, shell_complete

from localspec.errors import LocalspecError
from localspec.sanitize import one_line
from localspec.settings.folders import conversations_file

RECENT = 50  # conversations to choose from
VARIABLE = "_LOCALSPEC_COMPLETE"  # click's scheme: the shell calls localspec with it


def answer(cli: click.Command) -> int | None:
    instruction = os.environ.get(VARIABLE)
    return None if not instruction else shell_complete(cli, {}, "localspec", VARIABLE, instruction)


def pair_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the pairs that begin with what was typed; what is none of them is left to the shell, as a file."""
    items = [CompletionItem(name) for name in sorted(_pairs()) if name.startswith(incomplete)]
    return items or [CompletionItem(incomplete, type="file")]


def warm_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from localspec.worker.engines import engines_in_memory

    try:
        names = {str((facts["settings"] or {}).get("name")) for facts in engines_in_memory()}
    except LocalspecError:
        return []  # a completion cannot show errors
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def explained_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from localspec.speculation import axis_names
    from localspec.ui.glossary import TERMS

    names = {name for axis in ("method", "tree", "length", "verify") for name in axis_names(axis)} | TERMS.keys()
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete.lower())]


def conversation_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from localspec.conversations.store import Store

    path = conversations_file()
    if not os.path.exists(path):
        return []
    try:
        with Store.open(path) as store:
            stored = store.conversations(RECENT)
    except LocalspecError:
        return []  # a completion cannot show errors
    return [CompletionItem(each.id, help=one_line(each.title)) for each in stored if each.id.startswith(incomplete)]


def _pairs() -> Iterator[str]:
    from localspec.models.catalog import load_catalog
    from localspec.models.foreign import foreign_models
    from localspec.models.gguf.kinds import KINDS
    from localspec.models.store import BUNDLED, bundled_head

    yield from BUNDLED
    yield from (f"{name}+{kind}" for name in BUNDLED for kind in KINDS if bundled_head(name, kind))
    with suppress(LocalspecError):  # a completion cannot show errors in the user's catalogue
        yield from load_catalog().names()
    yield from (model.name for model in foreign_models())
