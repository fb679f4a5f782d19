"""`localspec config preset`: settings that are kept together under a name, for `run -P NAME` and `chat -P NAME`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from localspec.cli.console import write_out
from localspec.cli.file_names import located
from localspec.cli.option_sources import Configurable, typed
from localspec.cli.options import preset_settings
from localspec.cli.output import write_json
from localspec.cli.params import Command, CommandGroup, option
from localspec.errors import LocalspecError, UsageError
from localspec.models.store import parse_pair
from localspec.sanitize import one_line
from localspec.settings.config_file import assign, config_file, remove
from localspec.settings.presets import TABLE, check_name, find_preset, preset_names, presets
from localspec.settings.setting import spelled

_JSON = option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")


def _names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]


@click.group(cls=CommandGroup, no_args_is_help=False, invoke_without_command=True)
@click.pass_context
def preset(ctx: click.Context) -> int:
    """Settings kept together under a name.

    A preset may hold model, draft, system message, template, and all settings of the next answer.

    localspec run -P NAME and chat -P NAME take them, and /preset NAME in a chat. Options that are typed win over the
    preset, and the preset wins over all else. LOCALSPEC_PRESET=NAME, or preset = "NAME" in config.toml, takes one
    always.

    In config.toml a preset is the table [presets.NAME]. Its keys can be changed one by one:
    localspec config set presets.NAME.temp 0.2
    """
    if ctx.invoked_subcommand is None:
        code: int = ctx.invoke(list_presets, as_json=False)
        return code
    return 0


@preset.command(cls=Command)
@click.argument("name")
@preset_settings
@option("--replace", is_flag=True, section="Output", help="Replace a preset of that name.")
@_JSON
@click.pass_context
def save(ctx: click.Context, /, name: str, replace: bool, as_json: bool, **values: Any) -> int:
    """Keep the options that are typed here as the preset NAME."""
    check_name(name)
    kept = {each.key: _kept(each, ctx.params[str(each.name)]) for each in typed(ctx) if str(each.name) in values}
    if not kept:
        hint = f"localspec config preset save {name} -m PAIR --temp 0.2"
        raise UsageError("a preset needs at least one setting", hint=hint)
    known = presets().get(name)
    if known is not None and not replace:
        raise UsageError(f"there is a preset {name!r} already", hint="--replace, or another name")
    if known is not None:
        remove((TABLE, name))
    for key, value in kept.items():
        assign((TABLE, name, key), value)
    if as_json:
        write_json({"file": str(config_file()), "preset": name, "settings": kept})
    else:
        write_out(f"saved {name}: {one_line(_typed(kept))}\n")
    if missing := _missing(kept):
        ctx.obj.warn(f"{missing.message}{missing.advice}")
    return 0


def _missing(settings: dict[str, Any]) -> LocalspecError | None:
    """Return why the pair of a preset cannot be loaded now, None where it can; it may come later."""
    model, draft = settings.get("model"), settings.get("draft")
    try:
        parse_pair(model, draft)
    except LocalspecError as error:
        return error
    return None


@preset.command("list", cls=Command)
@_JSON
def list_presets(as_json: bool) -> int:
    """List the presets."""
    known = {name: {key: entry.value for key, entry in found.items()} for name, found in presets().items()}
    if as_json:
        write_json({"file": str(config_file()), "presets": known})
        return 0
    if not known:
        write_out("no presets yet: localspec config preset save NAME -m PAIR --temp 0.2\n")
    width = max(map(len, known), default=0)
    for name, settings in sorted(known.items()):
        write_out(f"{name.ljust(width)}  {one_line(_typed(settings))}\n")
    return 0


@preset.command(cls=Command)
@click.argument("name", shell_complete=_names)
@_JSON
def show(name: str, as_json: bool) -> int:
    """Show the settings of the preset NAME, each with the line that it stands in."""
    found = find_preset(name)
    if as_json:
        settings = {key: entry.value for key, entry in found.items()}
        write_json({"file": str(config_file()), "preset": name, "settings": settings})
        return 0
    width = max(map(len, found))
    for key, entry in found.items():
        write_out(f"{key.ljust(width)}  {one_line(spelled(entry.value))}  {config_file()}:{entry.line}\n")
    return 0


@preset.command(cls=Command)
@click.argument("name", shell_complete=_names)
@_JSON
def rm(name: str, as_json: bool) -> int:
    """Remove the preset NAME, and print the command that restores it."""
    settings = {key: entry.value for key, entry in find_preset(name).items()}
    remove((TABLE, name))
    if as_json:
        write_json({"file": str(config_file()), "preset": name, "settings": settings})
    else:
        write_out(f"removed; to restore it: localspec config preset save {name} {one_line(_typed(settings))}\n")
    return 0


def _kept(option: Configurable, value: Any) -> Any:
    """Return a value as it is written into config.toml: names of files absolute."""
    if option.kind not in ("text", "texts"):
        return value
    texts = value if isinstance(value, tuple) else (value,)
    made = [located(option.key, option.metavar or "", str(text), Path.cwd()) for text in texts]
    return made if option.multiple else made[0]


def _typed(settings: dict[str, Any]) -> str:
    """Return settings as options of a command line."""
    words: list[str] = []
    for key, value in settings.items():
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        else:
            for each in value if isinstance(value, list) else [value]:
                words += [f"--{key}", str(each)]
    return shlex.join(words)
