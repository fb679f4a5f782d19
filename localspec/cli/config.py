"""`localspec config` and its presets: what is set, where, and changing config.toml without losing a comment."""

import os
import shlex
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from localspec.cli.app import commands
from localspec.cli.console import Console, in_room, is_terminal, write_out
from localspec.cli.engine_options import engine_options
from localspec.cli.option_sources import ONCE, once, option_at, options_of, typed
from localspec.cli.options import collected, preset_settings
from localspec.cli.output import write_json, write_result
from localspec.cli.params import Command, CommandGroup, json_option, option
from localspec.cli.settings import is_typed
from localspec.cli.settings_table import check_file, described, read_words, settings_of
from localspec.errors import DeclinedError, LocalspecError, NotFoundError, ResourceError, UsageError, near_name
from localspec.models.store import parse_pair
from localspec.sanitize import one_line
from localspec.settings.config_file import TABLE, Key, assign, config_file, read_configuration, remove
from localspec.settings.declaration import spelled
from localspec.settings.presets import check_name, find_preset, presets
from localspec.settings.request import Request, Sampling, Speculation
from localspec.ui.columns import aligned
from localspec.ui.inputs import text_or_file
from localspec.ui.settings import effect_remarks, with_template


@click.group(cls=CommandGroup, no_args_is_help=False, invoke_without_command=True)
@json_option
@click.pass_context
def preset(ctx: click.Context, as_json: bool) -> int:
    """Settings kept together under a name; alone, list them.

    A preset may hold model, draft, system message, template, and all settings of the next answer.

    localspec run -P NAME and chat -P NAME take them, and /preset NAME in a chat. Options that are typed win over the
    preset, and the preset wins over all else. LOCALSPEC_PRESET=NAME, or preset = "NAME" in config.toml, takes one
    always.

    In config.toml a preset is the table [presets.NAME]. Its keys can be changed one by one, and it can be removed:
    localspec config set presets.NAME.temp 0.2, localspec config unset presets.NAME
    """
    if ctx.invoked_subcommand is not None:
        return 0
    rows = [(name, one_line(_typed(settings))) for name, settings in sorted(presets().items())]
    text = "\n".join(in_room(rows, right=())) or "no presets yet: localspec config preset save NAME -m PAIR --temp 0.2"
    return write_result({"file": str(config_file()), "presets": presets()}, text, as_json=as_json)


@preset.command(cls=Command)
@click.argument("name")
@engine_options
@preset_settings
@option("--replace", is_flag=True, section="Output", help="Replace a preset of that name.")
@json_option
@click.pass_context
def save(ctx: click.Context, /, name: str, replace: bool, as_json: bool, **values: Any) -> int:
    """Keep the options that are typed here as the preset NAME."""
    check_name(name)
    settings = {}
    for each in typed(ctx):
        if str(each.name) in values:
            value = ctx.params[str(each.name)]
            settings[each.key] = read_words(each, [str(word) for word in (value if each.multiple else [value])])
    if not settings:
        hint = f"localspec config preset save {name} -m PAIR --temp 0.2"
        raise UsageError("a preset needs at least one setting", hint=hint)
    known = presets().get(name)
    if known is not None and not replace:
        raise UsageError(f"there is a preset {name!r} already", hint="--replace, or another name")
    if known is not None:
        remove((TABLE, name))
    for key, value in settings.items():
        assign((TABLE, name, key), value)
    wire = {"file": str(config_file()), "preset": name, "settings": settings}
    code = write_result(wire, f"saved {name}: {one_line(_typed(settings))}", as_json=as_json)
    if missing := _missing(settings):
        ctx.obj.warn(f"{missing.message}{missing.advice}")
    request = Request(sampling=collected(Sampling, values), speculation=collected(Speculation, values))
    for remark in effect_remarks(request, is_typed, has_draft=settings.get("draft") != "none"):
        ctx.obj.warn(remark)
    return code


def _missing(settings: dict[str, Any]) -> LocalspecError | None:
    model, draft = settings.get("model"), settings.get("draft")
    try:
        if (model, draft) != (None, None):
            parse_pair(model, draft)
        if "preset" in settings:
            find_preset(settings["preset"])
        if settings.get("template") is not None:
            with_template(Request(), settings["template"])
        for name, value in settings.items():
            text_or_file(f"--{name}", value if isinstance(value, str) else None)
    except LocalspecError as error:
        return error
    return None


def _typed(settings: dict[str, Any]) -> str:
    words: list[str] = []
    for key, value in settings.items():
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        else:
            for each in value if isinstance(value, list) else [value]:
                words += [f"--{key}", str(each)]
    return shlex.join(words)


def _keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    keys = set()
    for path, command in commands():
        for key, declared in options_of(command).items():
            if key not in ONCE and not declared.hidden:
                keys |= {".".join((*path, key))} | (set() if declared.is_own else {key})
    return [CompletionItem(key) for key in sorted(keys) if key.startswith(incomplete)]


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
@json_option
def show(words: tuple[str, ...], has_origin: bool, as_json: bool) -> int:
    """Show the values in force: for all commands, or as COMMAND sees them.

    Without COMMAND these are the settings of localspec run and chat, and what is set for single commands.
    """
    check_file()
    settings = described(words)
    if as_json:
        write_json({"file": str(config_file()), "settings": [each.to_wire() for each in settings]})
        return 0
    section = ""
    rows: list[tuple[str, ...]] = []
    for each in settings:
        if each.section != section:
            section = each.section
            rows += [("",), (section.partition(" (")[0] + ":",)]
        origin = [str(each.origin)] if has_origin else []
        rows.append((f"  {each.name}", one_line(spelled(each.value)) or "–", *origin))
    write_out("\n".join(aligned(rows[1:], right=(), most=40)) + "\n")
    return 0


@config.command(cls=Command)
@click.argument("key", shell_complete=_keys)
@option("--origin", "has_origin", is_flag=True, section="Output", help="Show its origin.")
@json_option
def get(key: str, has_origin: bool, as_json: bool) -> int:
    """Print the value of KEY in force, or an empty line."""
    path = tuple(key.split("."))
    (setting,) = settings_of(path[:-1], [option_at(path)])
    text = one_line(spelled(setting.value)) + (f"\t{one_line(str(setting.origin))}" if has_origin else "")
    return write_result(setting.to_wire(), text, as_json=as_json)


@config.command("set", cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("key", shell_complete=_keys)
@click.argument("values", nargs=-1, required=True, metavar="VALUE...")
@json_option
@click.pass_obj
def set_value(console: Console, /, key: str, values: tuple[str, ...], as_json: bool) -> int:
    """Write KEY = VALUE into config.toml, once it is checked.

    An option that may be repeated takes several values. Whatever else is in the file stays as it is.
    """
    read_configuration()  # a file that is not TOML cannot be changed: it says so
    path = tuple(key.split("."))
    option = option_at(path)
    if option.key in ONCE:
        raise once(option, path[:-1])
    if len(values) > 1 and not option.multiple:
        raise UsageError(f"{key} takes one value, {len(values)} were given", hint=f"localspec config set {key} VALUE")
    try:
        value = read_words(option, values)
    except LocalspecError as error:
        flag, _, value = error.hint.partition(" ")
        value = value if flag in option.opts else option.example.partition(" ")[2]
        raise type(error)(error.message, hint=f"localspec config set {key} {value}") from None
    others = list(presets()) if path[:1] == (TABLE,) else []
    assign(path, value)
    _done(as_json, path, value)
    if path[:1] == (TABLE,) and path[1] not in others:
        close = near_name(path[1], others)
        near = f"; did you mean '{close}'?" if close else ""
        console.warn(f"'{path[1]}' is a new preset{near} (to remove it: localspec config unset presets.{path[1]})")
    is_judged = path[-1] != "draft" and not (path[-1] == "preset" and option.is_own)  # that of a pair, that of bench
    if is_judged and (missing := _missing({path[-1]: value})):
        console.warn(f"{missing.message}{missing.advice}")
    return 0


@config.command(cls=Command)
@click.argument("key", shell_complete=_keys)
@json_option
def unset(key: str, as_json: bool) -> int:
    """Remove KEY from config.toml, also an unknown one.

    presets.NAME is a whole preset, and the command that restores it is printed.
    """
    path, file = tuple(key.split(".")), read_configuration()
    held = presets().get(path[1]) if path[:1] == (TABLE,) and len(path) == 2 else None
    if path not in file and held is None:
        keys = {".".join(each): each[-1] for each in file if path[0] == TABLE or each[0] != TABLE}
        keys |= {f"{TABLE}.{name}": name for name in presets()}
        near = next((each for each, last in keys.items() if last == key), "") or near_name(key, keys)
        hint = f"localspec config unset {near}" if near else "localspec config show --origin"
        raise NotFoundError(f"'{key}' is not set in {config_file()}", hint=hint)
    remove(path)
    if held is not None and not as_json:
        write_out(f"removed; to restore it: localspec config preset save {path[1]} {one_line(_typed(held))}\n")
    _done(as_json, path, None)
    return 0


@config.command(cls=Command)
@json_option
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
@json_option
def path(as_json: bool) -> int:
    """Print where config.toml is, or would be."""
    file = config_file()
    return write_result({"file": str(file), "exists": os.path.exists(file)}, str(file), as_json=as_json)


config.add_command(preset)


def _done(as_json: bool, key: Key, value: Any) -> None:
    if as_json:
        write_json({"file": str(config_file()), "key": ".".join(key), "value": value})
