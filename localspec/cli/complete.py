"""Words that complete what is typed, and `localspec completions`: what a shell has to be told once, made by click.

Imports no engine and nothing of the hub.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

import click
from click.shell_completion import CompletionItem, get_completion_class

from localspec.cli.console import write_out
from localspec.cli.params import Command
from localspec.errors import LocalspecError
from localspec.sanitize import one_line
from localspec.settings.folders import conversations_file

RECENT = 50  # conversations to choose from


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
    from localspec.models.gguf.draft_kinds import KINDS
    from localspec.models.other_programs import foreign_models
    from localspec.models.store import BUNDLED, bundled_head

    yield from BUNDLED
    yield from (f"{name}+{kind}" for name in BUNDLED for kind in KINDS if bundled_head(name, kind))
    with suppress(LocalspecError):  # a completion cannot show errors in the user's catalogue
        yield from load_catalog().names()
    yield from (model.name for model in foreign_models())


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completions(shell: str) -> int:
    """Print what makes SHELL complete commands, options, pairs, methods and files.

    \b
    bash  localspec completions bash > ~/.local/share/bash-completion/completions/localspec
    zsh   localspec completions zsh > ~/.zfunc/_localspec   (with fpath+=~/.zfunc before compinit)
    fish  localspec completions fish > ~/.config/fish/completions/localspec.fish
    """
    from localspec.cli.app import COMPLETE, cli  # late: its table of commands names this module

    shell_class = get_completion_class(shell)
    assert shell_class is not None
    complete = shell_class(cli, {}, "localspec", COMPLETE)
    write_out(complete.source_template % complete.source_vars() + "\n")
    return 0
