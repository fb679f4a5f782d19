"""Reading a /command of a chat: the same way in the line chat and in the full-screen one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from localspec.errors import UsageError

T = TypeVar("T")


def looked_up(line: str, commands: Mapping[str, T], aliases: Mapping[str, str]) -> tuple[T, str]:
    """Return the command that `line` names and its argument; raises UsageError for one that does not exist."""
    name, _, argument = line.strip()[1:].partition(" ")
    name = aliases.get(name.lower(), name.lower())
    command = commands.get(name)
    if command is None:
        near = difflib.get_close_matches(name, [*commands, *aliases], n=1)
        hint = f"/{near[0]}" if near else "/help"
        raise UsageError(f"there is no command /{name}", hint=f"{hint}, or // to send a slash")
    return command, argument.strip()
