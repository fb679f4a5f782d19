"""Options as settings: the values in force without a command line, and where each of these comes from.

What shows or changes settings, `localspec config` and the form of the chat, reads them here.
"""

import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from localspec.cli.app import cli, commands
from localspec.cli.file_names import located
from localspec.cli.option_sources import (
    ONCE,
    Configurable,
    complaint,
    given,
    models_own,
    of_model,
    option_in_file,
    options_of,
    origin,
)
from localspec.cli.params import Command
from localspec.errors import LocalspecError, UsageError
from localspec.models.ollama import in_pair
from localspec.models.store import parse_pair
from localspec.settings.config_file import Key, mistake, read_configuration
from localspec.settings.declaration import Setting
from localspec.settings.request import LoadSettings

GENERAL = (("run",), ("chat",))  # whose options are shown where no command is named


def described(path: Key = ()) -> list[Setting]:
    """Return the settings of the command at `path`; of all commands together for (), and what is set for single ones.
    Raises UsageError for an unknown command and for a value that cannot be meant."""
    everything = dict(commands())
    if path and path not in everything:
        raise UsageError(f"there is no command '{' '.join(path)}' with options", hint="localspec --help")
    if path:
        settings = settings_of(path, [each for each in options_of(everything[path]).values() if not each.hidden])
    else:
        general = {key: each for at in GENERAL for key, each in options_of(everything[at]).items() if not each.is_own}
        settings = [*settings_of((), general.values()), *_singled_out(everything)]
    return [each for each in settings if each.name not in ONCE or each.origin.kind != "default"]


def _singled_out(everything: dict[Key, click.Command]) -> Iterable[Setting]:
    file = read_configuration()
    for path, command in everything.items():
        for key, option in options_of(command).items():
            if (*path, key) in file or os.environ.get(option.variables(path)[0]):
                (setting,) = settings_of(path, [option])
                yield replace(setting, name=".".join((*path, key)), section=f"For {' '.join(path)} alone")


def settings_of(path: Key, options: Iterable[Configurable]) -> list[Setting]:
    ctx = None
    for name in ("localspec", *path[:-1]) if path else ():
        ctx = click.Context(cli if ctx is None else click.Group(name), ctx, name)
    name = path[-1] if path else "localspec"
    made = Command(name, params=[*options], add_help_option=False).make_context(name, [], ctx)
    with suppress(LocalspecError):
        pair = parse_pair(made.params.get("model"), None)
        of_model(made, in_pair(LoadSettings(str(pair.target), name=pair.name)))
    return in_force(made)


def in_force(ctx: click.Context) -> list[Setting]:
    return [_setting(ctx, option) for option in options_of(ctx.command).values()]


def _setting(ctx: click.Context, option: Configurable) -> Setting:
    default, value = option.get_default(ctx), {**ctx.params, **models_own(ctx)[1]}.get(str(option.name))
    return Setting(
        name=option.key,
        section=option.section,
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


def check_file() -> None:
    for key, value in read_configuration().items():
        option = option_in_file(key)
        raw = given(key, value, option)
        try:
            _converted(option, raw)
        except UsageError as error:
            raise mistake(key, error.message) from None


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
    try:
        converted = option.type_cast_value(click.Context(Command(option.name)), value)
    except click.BadParameter as error:
        raise UsageError(complaint(error), hint=option.example) from None
    if option.check is not None:
        option.check(converted)
    return converted
