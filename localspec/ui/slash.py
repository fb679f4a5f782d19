"""Reading a /command of a chat: the same way in the line chat and in the full-screen one."""

from __future__ import annotations

import difflib
from collections.abc import Container, Mapping
from typing import TypeVar

from localspec.errors import UsageError

T = TypeVar("T")


def is_command(text: str, several: Container[str] = ()) -> bool:
    """Whether a message is a command: one line, or several that begin with the name of one of `several`.

    Source code begins with a slash as often as not.
    """
    return not text.startswith("//") and _has_slash(text, several)


def literal(text: str, several: Container[str] = ()) -> str:
    """Return what is said by a message that is no command: // is one slash where that would begin one."""
    return text[1:] if text.startswith("//") and _has_slash(text[1:], several) else text


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


def _has_slash(text: str, several: Container[str]) -> bool:
    return text.startswith("/") and ("\n" not in text.strip() or text[1:].split(" ", 1)[0].lower() in several)
