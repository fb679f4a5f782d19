"""Configurables as settings: the values in force without a command line, and where each of these comes from.

What shows or changes settings, `localspec config` and the form of the chat, reads them here.
"""

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from localspec.cli.app import cli, commands
from localspec.cli.config_names import located
from localspec.cli.option_sources import ONCE, Configurable, given, option_at, options_of, origin
from localspec.cli.params import Command, complaint
from localspec.errors import LocalspecError, UsageError
from localspec.settings.config_file import Key, read_configuration
from localspec.settings.declaration import Setting

GENERAL = ("run", "chat")  # whose options are shown where no command is named


def described(path: Key = ()) -> list[Setting]:
    """Return the settings of the command at `path`; of all commands together for (), and what is set for single ones.

    Raises UsageError for an unknown command and for a value that cannot be meant.
    """
    if path:
        listed = [option for option in options_of(_command(path)).values() if not option.hidden]
        return _without_once(settings_of(path, listed))
    general = {
        key: option for name in GENERAL for key, option in options_of(_command((name,))).items() if not option.is_own
    }
    return _without_once([*settings_of((), list(general.values())), *_singled_out()])


def settings_of(path: Key, options: Sequence[Configurable]) -> list[Setting]:
    ctx = _context(path, options)
    return [_setting(ctx, option, ctx.params[str(option.name)]) for option in options]


def in_force(ctx: click.Context) -> list[Setting]:
    options = options_of(ctx.command).values()
    return [_setting(ctx, option, ctx.params.get(str(option.name))) for option in options]


def check_file() -> None:
    """Raise UsageError for the first value in config.toml that cannot be meant, with its line."""
    file = read_configuration()
    for entry in file.entries:
        try:
            option = option_at(entry.path)
            _converted(option, given(file, entry, option))
        except UsageError as error:
            raise error if error.message.startswith(f"{file.file}:") else file.mistake(entry, error.message) from None


def read_words(option: Configurable, words: Sequence[str]) -> Any:
    """Return the value that words on a command line spell, as it is written into config.toml; raises UsageError."""
    if option.kind in ("text", "texts"):
        words = [located(option.key, option.metavar or "", word, Path.cwd()) for word in words]
    value = _converted(option, list(words) if option.multiple else words[0])
    if isinstance(value, tuple):
        return list(value)
    is_count = option.kind == "text" and str(value).isascii() and str(value).isdigit()
    return int(value) if is_count and str(int(value)) == value else value


def _read_line(option: Configurable, line: str) -> Any:
    try:
        words = shlex.split(line) if option.multiple else [line.strip()]
    except ValueError:
        raise UsageError(f"--{option.key} {line!r} has an open quotation mark", hint="quote it to the end") from None
    return read_words(option, words) if any(words) else None


def _converted(option: Configurable, value: Any) -> Any:
    ctx = click.Context(Command(option.name))
    try:
        converted = option.type_cast_value(ctx, value)
    except click.BadParameter as error:
        message = complaint(error)
        raise UsageError(message[:1].lower() + message[1:], hint=option.example) from None
    if option.check is not None:
        option.check(converted)
    return converted


def _context(path: Key, options: Sequence[Configurable]) -> click.Context:
    parent = click.Context(cli, info_name="localspec") if path else None
    for name in path[:-1]:
        parent = click.Context(click.Group(name), parent, name)
    name = path[-1] if path else "localspec"
    command = Command(name, params=list(options), add_help_option=False)
    try:
        return command.make_context(name, [], parent)
    except click.BadParameter as error:
        message = complaint(error)
        hint = getattr(error, "cure", "localspec config edit")
        raise UsageError(message[:1].lower() + message[1:], hint=hint) from None


def _setting(ctx: click.Context, option: Configurable, value: Any) -> Setting:
    default = option.get_default(ctx)
    return Setting(
        name=option.key,
        section=getattr(option, "section", ""),
        help=(option.help or "").partition("  [")[0],
        kind=option.kind,
        choices=_choices(option),
        default=default if isinstance(default, bool | int | float | str) else None,
        value=list(value) if isinstance(value, tuple) else value,
        origin=origin(ctx, option),
        read=partial(_read_line, option),
    )


def _choices(option: Configurable) -> tuple[str, ...]:
    if isinstance(option.type, click.Choice):
        return tuple(map(str, option.type.choices))
    try:
        return tuple(option.names()) if option.names is not None else ()
    except LocalspecError:
        return ()


def _singled_out() -> list[Setting]:
    file, settings = read_configuration(), []
    for path, command in commands():
        for key, option in options_of(command).items():
            if file.get((*path, key)) is None and not os.environ.get(option.variables(path)[0]):
                continue
            (setting,) = settings_of(path, [option])
            settings.append(replace(setting, name=".".join((*path, key)), section=f"For {' '.join(path)} alone"))
    return settings


def _without_once(settings: list[Setting]) -> list[Setting]:
    return [each for each in settings if each.name not in ONCE or each.origin.kind != "default"]


def _command(path: Key) -> click.Command:
    for each, command in commands():
        if each == path:
            return command
    raise UsageError(f"there is no command '{' '.join(path)}' with options", hint="localspec --help")
