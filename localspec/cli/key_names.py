"""Names of settings and of the commands that they are for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import click

from localspec.settings.config_file import Key


def path_of(ctx: click.Context) -> Key:
    """Return the names of the command and the groups it is in, aliases resolved; () for localspec itself."""
    if ctx.parent is None:
        return ()
    return (*path_of(ctx.parent), str(ctx.command.name))


def capitals(name: str) -> str:
    """Return a name as a variable of the environment has it."""
    return name.upper().replace("-", "_")


def perhaps(name: str, known: Mapping[str, click.Option] | Iterable[str]) -> str:
    """Return which of the known names was probably meant, as it follows the sentence that refuses `name`."""
    if isinstance(known, Mapping):  # a short flag is no key
        long = [each for each, option in known.items() if f"-{name}" in option.opts]
        if long:
            return f": -{name} is '{long[0]}'"
    near = difflib.get_close_matches(name.lower().replace("_", "-"), list(known), n=1)
    return f", perhaps '{near[0]}' was meant" if near else ""
