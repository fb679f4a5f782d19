"""What `localspec explain` says of a name that people type or read: options, commands, exit codes, fields of JSON.

Nothing is written here for it: options say it in the help, commands in theirs, errors and fields in their types.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, get_args, get_origin, get_type_hints, is_typeddict

import click

from localspec.chat.commands import TABLE
from localspec.cli.option_sources import ONCE, Configurable
from localspec.errors import exit_codes
from localspec.ui import json_fields
from localspec.ui.settings import SETTINGS

MOST = 4  # commands that are named of those that have an option
_LISTED = re.compile(r"(?:[\w.]+, )+[\w.]+(?: or \w+)?")  # values of a field, in its meaning


@dataclass(frozen=True, slots=True)
class Named:
    """Something with a name: `title` says what it is, `text` what it does, and `more` where else it is found."""

    title: str
    text: str
    more: str = ""
    is_option: bool = False

    def to_wire(self) -> dict[str, str]:
        return {"title": self.title, "text": self.text, "more": self.more}


def named(name: str) -> list[Named]:
    """Return all that has this name, with or without dashes, a slash or LOCALSPEC_; else what has it as a value."""
    wanted = _plain(name)
    exact = [each for names, each in _everything() if wanted in names]
    return list(dict.fromkeys(exact)) or [
        Named(f"{name}: a value of {field} in --json or --events", f"{field}: {meaning}. {about}")
        for field, meaning, about in _fields()
        if (listed := _LISTED.search(meaning)) is not None and name.lower() in re.split(r"\W+", listed[0])
    ]


def known() -> list[str]:
    return list(dict.fromkeys(name for names, _ in _everything() for name in sorted(names)))


@cache
def _everything() -> list[tuple[set[str], Named]]:
    return [*_options(), *_commands(), *_codes(), *_chat_commands(), *_of_json()]


def _options() -> Iterator[tuple[set[str], Named]]:
    """Yield what an option's help says, once for all commands where it says the same."""
    said: dict[tuple[str, ...], tuple[set[str], list[str]]] = {}
    for path, command in _every_command():
        for option in command.params:
            record = option.get_help_record(click.Context(command)) if isinstance(option, click.Option) else None
            if isinstance(option, click.Option) and record is not None:  # one of an earlier version has no help
                names, paths = said.setdefault((*record, _places(option)), (set(), []))
                names |= {_plain(each) for each in (*option.opts, *option.secondary_opts)}
                if isinstance(option, Configurable):
                    names |= {option.key, _plain(option.declaration.name)} if option.declaration else {option.key}
                paths.append(" ".join(path))
    for (typed, text, places), (names, paths) in said.items():
        others = f" and {len(paths) - MOST} more" if len(paths) > MOST else ""
        title = f"{typed}: option of localspec {', '.join(paths[:MOST])}{others}"
        yield names, Named(title, text, places, is_option=True)


def _places(option: click.Option) -> str:
    if not isinstance(option, Configurable):
        return ""
    chat = f"in a chat /set {option.key}" if option.key in SETTINGS else ""
    in_file = "" if option.key in ONCE else f"in config.toml {option.key}; "
    return chat if option.is_own else "; ".join(filter(None, (f"{in_file}in the environment {option.variable}", chat)))


def _commands() -> Iterator[tuple[set[str], Named]]:
    for path, command in _every_command():
        typed = " ".join(("localspec", *path))
        about = Named(f"{typed}: command", command.get_short_help_str(1000), f"{typed} --help tells all")
        yield {"-".join(path), path[-1]} if len(path) > 1 else {path[0]}, about


def _codes() -> Iterator[tuple[set[str], Named]]:
    for code, (kind, meaning) in exit_codes().items():
        names = {f"{start}{code}" for start in ("", "code-", "exit-", "exit-code-")} | {_plain(kind or str(code))}
        yield names, Named(f"exit code {code}" + (f", kind {kind} in --json" if kind else ""), meaning)


def _chat_commands() -> Iterator[tuple[set[str], Named]]:
    for each in TABLE.commands:
        yield {each.name, *each.aliases}, Named(f"{each.usage}: command of the chats", each.description)


def _of_json() -> Iterator[tuple[set[str], Named]]:
    for field, meaning, about in _fields():
        title = f"{field}: field of --json or --events"
        yield {_plain(field)}, Named(title, f"{meaning}. {about}", "docs/json.md has all")


@cache
def _fields() -> list[tuple[str, str, str]]:
    """Return each field of JSON with its meaning, and what the object is that has it."""
    found = []
    for kind in filter(is_typeddict, vars(json_fields).values()):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            inner = hint if get_origin(hint) is Annotated else get_args(hint)[0]
            found.append((name, str(get_args(inner)[1]), " ".join((kind.__doc__ or "").split())))
    return found


def _every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    from localspec.cli.app import commands  # late: the table of commands names this module's

    for path, command in commands():
        yield path, command
        yield from (((*path, name), inner) for name, inner in getattr(command, "commands", {}).items())


def _plain(name: str) -> str:
    return re.sub(r"^localspec[ _]", "", name.lower()).lstrip("-/").replace("_", "-").replace(" ", "-")
