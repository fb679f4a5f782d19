"""What `localspec explain` says of a name that people type or read: options, commands, exit codes, fields of JSON.

Nothing is written here for it: options say it in the help, commands in theirs, errors and fields in their types.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, get_args, get_origin, get_type_hints, is_typeddict

import click

from localspec.chat.commands import TABLE
from localspec.cli.option_sources import ONCE, Configurable
from localspec.errors import exit_codes
from localspec.ui import json_fields
from localspec.ui.settings import SETTINGS

MOST = 4  # commands that are named of those that have an option
_ALL = "localspec"
_CODE = re.compile(r"(?:exit[ -])?(?:code[ -])?(\d{1,3})")
_LAST_WORD = re.compile(r"\W+")


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
    """Return all that has this name, spelt with or without dashes, a slash or LOCALSPEC_; [] for nothing."""
    exact = [*_options(name), *_commands(name), *_codes(name), *_chat_commands(name), *_fields(name)]
    return list(dict.fromkeys(exact)) or list(dict.fromkeys(_values(name)))


def known() -> list[str]:
    options = (name for _, option in _every_option() for name in _names(option))
    commands = (" ".join(path) for path, _ in _every_command())
    fields = (name for _, name, _ in _every_field())
    kinds = (kind for kind, _ in exit_codes().values())
    chat = (name for each in TABLE.commands for name in (each.name, *each.aliases))
    return list(dict.fromkeys(filter(None, (*options, *commands, *fields, *kinds, *chat))))


def _options(name: str) -> Iterator[Named]:
    """Yield what an option's help says, once for all commands where it says the same."""
    wanted = _plain(name)
    said: dict[tuple[str, str, str], list[str]] = {}
    for path, option in _every_option():
        if wanted in _names(option):
            is_hidden, option.hidden = option.hidden, False
            record = option.get_help_record(click.Context(click.Command(path)))
            option.hidden = is_hidden
            assert record is not None, "it is shown"
            said.setdefault((*record, _places(option)), []).append(path)
    for (typed, text, places), paths in said.items():
        others = f" and {len(paths) - MOST} more" if len(paths) > MOST else ""
        yield Named(f"{typed}: option of localspec {', '.join(paths[:MOST])}{others}", text, places, is_option=True)


def _places(option: click.Option) -> str:
    if not isinstance(option, Configurable):
        return ""
    chat = f"; in a chat /set {option.key}" if option.key in SETTINGS else ""
    if option.is_own:
        return f"in a chat /set {option.key}" if chat else ""
    in_file = "" if option.key in ONCE else f"in config.toml {option.key}; "
    return f"{in_file}in the environment {option.variable}{chat}"


def _commands(name: str) -> Iterator[Named]:
    for path, command in _every_command():
        if " ".join(path) == name.removeprefix(f"{_ALL} ") or (len(path) > 1 and path[-1] == name):
            typed = " ".join((_ALL, *path))
            yield Named(f"{typed}: command", command.get_short_help_str(1000), f"{typed} --help tells all")


def _codes(name: str) -> Iterator[Named]:
    number = _CODE.fullmatch(name.lower())
    for code, (kind, meaning) in exit_codes().items():
        if (number is not None and int(number[1]) == code) or _plain(name) == _plain(kind or "-"):
            title = f"exit code {code}" + (f", kind {kind} in --json" if kind else "")
            yield Named(title, meaning)


def _chat_commands(name: str) -> Iterator[Named]:
    for each in TABLE.commands:
        if _plain(name.removeprefix("/")) in (each.name, *each.aliases):
            yield Named(f"{each.usage}: command of the chats", each.description)


def _fields(name: str) -> Iterator[Named]:
    for kind, field, meaning in _every_field():
        if _plain(field) == _plain(name):
            yield Named(f"{field}: field of --json or --events", f"{meaning}. {_about(kind)}", "docs/json.md has all")


def _values(name: str) -> Iterator[Named]:
    for kind, field, meaning in _every_field():
        listed = re.search(r"(?:[\w.]+, )+[\w.]+(?: or \w+)?", meaning)
        if listed is not None and name.lower() in _LAST_WORD.split(listed[0]):
            yield Named(f"{name}: a value of {field} in --json or --events", f"{field}: {meaning}. {_about(kind)}")


def _about(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _every_option() -> Iterator[tuple[str, click.Option]]:
    for path, command in _every_command():
        for option in command.params:
            if isinstance(option, click.Option) and option.help:  # one of an earlier version may have none
                yield " ".join(path), option


def _every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    from localspec.cli.app import commands  # late: the table of commands names this module's

    for path, command in commands():
        yield path, command
        for name, inner in getattr(command, "commands", {}).items():
            yield (*path, name), inner


def _every_field() -> Iterator[tuple[type, str, str]]:
    for kind in vars(json_fields).values():
        if is_typeddict(kind):
            for name, hint in get_type_hints(kind, include_extras=True).items():
                inner = hint if get_origin(hint) is Annotated else get_args(hint)[0]
                yield kind, name, str(get_args(inner)[1])


def _names(option: click.Option) -> set[str]:
    names = {*option.opts, *option.secondary_opts}
    if isinstance(option, Configurable):
        names |= {option.key} | ({option.declaration.name} if option.declaration is not None else set())
    return {_plain(each) for each in names}


def _plain(name: str) -> str:
    return name.lower().removeprefix("localspec_").lstrip("-").replace("_", "-").replace(" ", "-")
