"""`localspec config`: what is set, where it was set, and changing config.toml without losing a comment."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from localspec.cli.app import commands
from localspec.cli.console import Console, is_terminal, write_out
from localspec.cli.option_sources import ONCE, once, option_at, options_of
from localspec.cli.output import write_json
from localspec.cli.params import Command, CommandGroup, option
from localspec.cli.presets import preset
from localspec.cli.settings_table import check_file, described, read_words, settings_of
from localspec.errors import DeclinedError, NotFoundError, ResourceError, UsageError
from localspec.sanitize import one_line
from localspec.settings.config_file import Key, assign, config_file, read_configuration, remove
from localspec.settings.setting import Setting, spelled


def _keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the keys of config.toml that begin with what was typed."""
    found = set()
    for path, command in commands():
        for key, one in options_of(command).items():
            if key not in ONCE:
                found |= {".".join((*path, key))} | (set() if one.is_own else {key})
    return [CompletionItem(key) for key in sorted(found) if key.startswith(incomplete)]


_JSON = option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")


@click.group(cls=CommandGroup, no_args_is_help=False, invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> int:
    """Settings that are kept in config.toml.

    A key is the long name of an option: temp, top-k, model. At the top of the file it is for every command that has
    the option; in a table of a command's name, [run] or [early-exit.tune], for that one, and here its key is run.temp.
    The command line wins over the environment (LOCALSPEC_RUN_TEMP, then LOCALSPEC_TEMP), which wins over the file.

    A file that is named there is looked for from the folder of config.toml; localspec config set writes its full path.
    """
    if ctx.invoked_subcommand is None:
        code: int = ctx.invoke(show, words=(), has_origin=False, as_json=False)
        return code
    return 0


@config.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[COMMAND]")
@option("--origin", "has_origin", is_flag=True, section="Output", help="Show the origin of each value.")
@_JSON
def show(words: tuple[str, ...], has_origin: bool, as_json: bool) -> int:
    """Show the values in force: for all commands, or as COMMAND sees them.

    Without COMMAND these are the settings of localspec run and chat, and what is set for single commands.
    """
    check_file()
    settings = described(words)
    if as_json:
        write_json({"file": str(config_file()), "settings": [each.to_wire() for each in settings]})
        return 0
    section, rows = "", []
    for each in settings:
        if each.section != section:
            section = each.section
            rows += [("",) * (2 + has_origin), (section.partition(" (")[0] + ":",) + ("",) * (1 + has_origin)]
        rows.append((f"  {each.name}", _shown(each), *([str(each.origin)] if has_origin else [])))
    write_out("\n".join(one.rstrip() for one in _columns(rows[1:])) + "\n")
    return 0


@config.command(cls=Command)
@click.argument("key", shell_complete=_keys)
@option("--origin", "has_origin", is_flag=True, section="Output", help="Show its origin.")
@_JSON
def get(key: str, has_origin: bool, as_json: bool) -> int:
    """Print the value of KEY in force, or an empty line."""
    path = tuple(key.split("."))
    (setting,) = settings_of(path[:-1], [option_at(path)])
    if as_json:
        write_json(setting.to_wire())
        return 0
    text = one_line(spelled(setting.value))
    write_out(f"{text}\t{one_line(str(setting.origin))}\n" if has_origin else f"{text}\n")
    return 0


@config.command("set", cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("key", shell_complete=_keys)
@click.argument("values", nargs=-1, required=True, metavar="VALUE...")
@_JSON
def set_value(key: str, values: tuple[str, ...], as_json: bool) -> int:
    """Write KEY = VALUE into config.toml, once it is checked.

    An option that may be repeated takes several values. Whatever else is in the file stays as it is.
    """
    read_configuration()  # a file that is not TOML cannot be changed: it says so
    path = tuple(key.split("."))
    found = option_at(path)
    if found.key in ONCE:
        raise once(found, path[:-1])
    if len(values) > 1 and not found.multiple:
        raise UsageError(f"{key} takes one value, {len(values)} were given", hint=f"localspec config set {key} VALUE")
    value = read_words(found, values)
    _done(as_json, assign(path, value), path, value)
    return 0


@config.command(cls=Command)
@click.argument("key", shell_complete=_keys)
@_JSON
def unset(key: str, as_json: bool) -> int:
    """Remove KEY from config.toml, also an unknown one."""
    path: Key = tuple(key.split("."))
    if read_configuration().get(path) is None:
        near = difflib.get_close_matches(key, [".".join(one.path) for one in read_configuration().entries], n=1)
        raise NotFoundError(f"'{key}' is not set in {config_file()}", hint=f"localspec config unset {near[0]}"
                            if near else "localspec config show --origin")  # fmt: skip
    _done(as_json, remove(path), path, None)
    return 0


@config.command(cls=Command)
@_JSON
@click.pass_obj
def edit(console: Console, /, as_json: bool) -> int:
    """Open config.toml in $VISUAL or $EDITOR, and check it afterwards."""
    file = config_file()
    if not (os.environ.get("VISUAL") or os.environ.get("EDITOR") or is_terminal(sys.stdout)):
        raise DeclinedError("there is no terminal for an editor", hint="localspec config set KEY VALUE")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        click.edit(filename=str(file))
    except OSError as error:
        raise ResourceError(f"cannot write {file}: {error.strerror}", hint="LOCALSPEC_HOME=FOLDER") from error
    except click.ClickException as error:
        raise UsageError(error.message, hint="EDITOR=nano localspec config edit") from None
    check_file()
    if as_json:
        write_json({"file": str(file)})
    elif not console.quiet:
        console.say(f"{one_line(str(file))} has no errors" if os.path.exists(file) else "nothing was written", "dim")
    return 0


@config.command(cls=Command)
@_JSON
def path(as_json: bool) -> int:
    """Print where config.toml is, or would be."""
    if as_json:
        write_json({"file": str(config_file()), "exists": os.path.exists(config_file())})
    else:
        write_out(f"{config_file()}\n")
    return 0


config.add_command(preset)


def _shown(setting: Setting) -> str:
    text = one_line(spelled(setting.value))
    return text if text else "–"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows in columns, which the headings do not widen."""
    widths = [max((len(row[i]) for row in rows if row[0].startswith(" ")), default=0) for i in range(len(rows[0]))]
    widths = [min(width, 40) for width in widths]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _done(as_json: bool, file: Path, path: Key, value: Any) -> None:
    """Tell what the file says now."""
    if as_json:
        write_json({"file": str(file), "key": ".".join(path), "value": value})
