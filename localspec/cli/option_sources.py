"""Options that can be set outside the command line: their keys, their variables, and what config.toml says of them."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from localspec.cli.config_names import BadSettingError, capitals, cure, kept, located, path_of, perhaps, preset_entries
from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.settings.config_file import MAX_PARTS, TABLE, Configuration, Entry, Key, read_configuration
from localspec.settings.declaration import Kind, Option, Origin, spelled
from localspec.settings.values import sample

# What a person should say each time: what removes, replaces or downloads unasked, and what only a program reads.
ONCE = frozenset({"yes", "force", "replace", "dry-run", "json", "events"})
WITHOUT_FILE = frozenset({("config",), ("completions",)})  # which must work on any file
TOLERANT = frozenset({("doctor",)})  # which reports its errors
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_FOUND = "localspec.settings.config_file"  # where a context keeps what was read
_PRESET = "localspec.settings.presets.presets"  # and what the preset says
_TAKEN: dict[Kind, tuple[str, Any]] = {  # what config.toml may have for a kind, in words and as types
    "switch": ("true or false", bool),
    "integer": ("an integer", int),
    "number": ("a number", int | float),
    "choice": ("a text", str),
    "text": ("a text or a number", str | int | float),
    "texts": ("a text or a list of texts", str | int | float),
}
PRESET_HELP = "localspec config preset save --help"  # lists what a preset may have
Told = TypeVar("Told", bound=LocalspecError)


class Configurable(click.Option):
    """An option with a `key`, its long name, in config.toml and, in capitals, in the environment.

    `section`: that of the help; `aliases` work unlisted. `is_own`: other commands mean something else by that name, so
    it is set for its own command alone. `check` judges a value as far as that goes without the others and raises
    UsageError; `names` are values it may have, for completion. `declaration` is that of the setting, where it is one.
    """

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        section: str = "Options",
        aliases: Sequence[str] = (),
        is_own: bool = False,
        check: Callable[[Any], object] | None = None,
        names: Callable[[], Iterable[str]] | None = None,
        declaration: Option | None = None,
        **attributes: Any,
    ) -> None:
        long = next(name for name in declarations if name.startswith("--"))
        self.key = long.split("/")[0].removeprefix("--")
        # One variable for all commands; click's own scheme has LOCALSPEC_RUN_TEMP only.
        self.variable = f"LOCALSPEC_{capitals(self.key)}"
        super().__init__([*declarations, *aliases], envvar=None if is_own else self.variable, **attributes)
        self.section = section
        self.aliases = frozenset(aliases)
        self.is_own = is_own
        self.check = check
        self.names = names
        self.declaration = declaration

    @property
    def kind(self) -> Kind:
        if self.multiple:
            return "texts"
        if self.is_flag:
            return "switch"
        if isinstance(self.type, click.Choice):
            return "choice"
        if isinstance(self.type, click.types.IntParamType):
            return "integer"
        return "number" if isinstance(self.type, click.types.FloatParamType) else "text"

    @property
    def example(self) -> str:
        if self.declaration is not None:
            return self.declaration.example
        known = self.default if isinstance(self.default, str | int | float) else None
        known = max(1, getattr(self.type, "min", 1)) if known is None and self.kind == "integer" else known
        usual = {"switch": "on", "choice": next(iter(getattr(self.type, "choices", ())), "")}
        return f"{self.opts[0]} {usual.get(self.kind, spelled(known) or sample(self.metavar or 'N'))}"

    def variables(self, path: Key) -> list[str]:
        if path[:1] == (TABLE,):
            return []  # the settings of a preset have a file alone
        own = "_".join(["LOCALSPEC", *map(capitals, path), capitals(self.key)])
        return [own] if self.is_own else [own, self.variable]

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return next(filter(None, map(os.environ.get, self.variables(path_of(ctx)))), None)

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return what the environment says; of an option that may be repeated, a value a line."""
        text = self.resolve_envvar_value(ctx)
        return text.splitlines() if self.multiple and text is not None else super().value_from_envvar(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if self.names is None:
            return super().shell_complete(ctx, incomplete)
        try:
            return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]
        except (LocalspecError, OSError):
            return []  # a completion cannot show errors

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """Return the value and where it was found; config.toml is read when the first option wants it."""
        if ctx.default_map is None and not ctx.resilient_parsing:
            ctx.default_map = defaults(ctx)
        value, source = super().consume_value(ctx, opts)
        if source is ParameterSource.COMMANDLINE or ctx.resilient_parsing:
            return value, source
        preset = ctx.meta.get(_PRESET, {})
        return (preset[self.key][0], ParameterSource.DEFAULT_MAP) if self.key in preset else (value, source)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value as click reads it, what a pipe of the shell holds as a file; --file reads pipes itself."""
        if self.kind in ("text", "texts") and self.key not in ("file", "model", "draft") and not ctx.resilient_parsing:
            value = kept(value, self.opts[0])
        return super().type_cast_value(ctx, value)

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Read and check the value; one that cannot be meant is told with the place it was found in."""
        try:
            value, rest = super().handle_parse_result(ctx, opts, args)
            if self.key == "preset" and self.is_eager and not ctx.resilient_parsing:  # that of bench is another
                take_preset(ctx, value if isinstance(value, str) else None)
            if self.check is not None and origin(ctx, self).kind != "default" and not ctx.resilient_parsing:
                self.check(value)
        except click.BadParameter as error:
            place = origin(ctx, self)
            if not place.where:
                raise
            message = f"{error.message.rstrip('.')} (it is set in {place.where})"
            raise BadSettingError(message, ctx, self, cure(place)) from None
        except LocalspecError as error:
            raise in_command(ctx, error) from error.__cause__
        return value, rest

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        opts, self.opts = self.opts, [name for name in self.opts if name not in self.aliases]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = opts

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return click's extras without ranges: an error names them when they matter."""
        return {key: each for key, each in super().get_help_extra(ctx).items() if key != "range"}


def options_of(command: click.Command) -> dict[str, Configurable]:
    return {param.key: param for param in command.params if isinstance(param, Configurable)}


def typed(ctx: click.Context) -> Iterator[Configurable]:
    for option in options_of(ctx.command).values():
        if ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE:
            yield option


def defaults(ctx: click.Context) -> dict[str, Any]:
    """Return what config.toml says for this command, by parameter, for click's default map.

    Raises UsageError for a file, or a part of it that concerns this command, which cannot be meant.
    """
    path = path_of(ctx)
    if path[:1] in WITHOUT_FILE:
        return {}
    try:
        entries = entries_for(file := read_configuration(), path, ctx.command)
    except LocalspecError:
        if path[:1] in TOLERANT:
            return {}
        raise
    ctx.meta[_FOUND] = {key: f"{file.file}:{entry.line}" for key, entry in entries.items()}
    options = options_of(ctx.command)
    return {str(options[key].name): given(file, entry, options[key]) for key, entry in entries.items()}


def take_preset(ctx: click.Context, name: str | None) -> None:
    """Keep what the preset `name` says for this command, None without one; raises NotFoundError and UsageError.

    A preset that names a model has a say about its draft too: that of config.toml belongs to another model.
    """
    ctx.meta[_PRESET] = {}
    if name is None:
        return
    file, options = read_configuration(), options_of(ctx.command)
    values: dict[str, tuple[Any, str]] = {}
    for key, entry in preset_entries(name, file).items():
        try:
            option_at(entry.path)
        except UsageError as error:
            raise file.mistake(entry, error.message) from None
        if key in options:
            values[key] = given(file, entry, options[key]), f"{file.file}:{entry.line}"
    if "model" in values and "draft" not in values:
        values["draft"] = None, values["model"][1]
    ctx.meta[_PRESET] = values


def is_from_preset(ctx: click.Context, name: str) -> bool:
    if ctx.get_parameter_source("preset") is not ParameterSource.COMMANDLINE:
        return False
    return name in ctx.meta.get(_PRESET, {}) and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP


def entries_for(file: Configuration, path: Key, command: click.Command) -> dict[str, Entry]:
    """Return the values of the file that hold for a command, by key: its own table's over those at the top.

    Raises UsageError for a key at the top that no command has, or one in the command's table that it has not.
    """
    from localspec.cli.app import COMMANDS

    options = options_of(command)
    entries: dict[str, Entry] = {}
    for entry in sorted(file.entries, key=lambda entry: len(entry.path)):
        table, key = entry.path[:-1], entry.path[-1]
        if table in ((), path) and key in options and not (options[key].is_own and not table):
            entries[key] = entry
            if key in ONCE:
                refused = once(options[key], table)
                raise file.mistake(entry, refused.message, refused.hint)
        elif not table or table[: len(path)] == path or table[0] not in (*COMMANDS, TABLE):
            try:
                option_at(entry.path)
            except UsageError as error:
                raise file.mistake(entry, error.message) from None
    return entries


def option_at(key: Key) -> Configurable:
    """Return the option that a key stands for; raises UsageError with the nearest one. Imports every command."""
    from localspec.cli.app import commands

    if len(key) > MAX_PARTS:
        raise UsageError(f"a key has more than {MAX_PARTS} parts", hint="localspec config show")
    everything = list(commands())
    *tables, name = key
    general: dict[str, Configurable] = {}
    for _, command in everything:  # the first that has it says what it may be: localspec run
        for each, option in options_of(command).items():
            if not option.is_own:
                general.setdefault(each, option)
    spelt = " ".join(tables)
    if tables[:1] == [TABLE]:
        presets = dict(everything)["config", "preset"]
        assert isinstance(presets, click.Group)
        own = {each: option for each, option in options_of(presets.commands["save"]).items() if each not in ONCE}
        if len(tables) == 2 and name in own:
            return own[name]
        raise UsageError(f"a preset has no setting '{name}'{perhaps(name, own)}", hint=PRESET_HELP)
    if not tables:
        if name in general:
            return general[name]
        owners = [path for path, command in everything if name in options_of(command)]
        if owners:
            which = " and ".join(f"'{'.'.join((*path, name))}'" for path in owners)
            raise UsageError(f"'{name}' means something else to each command: {which}", hint="localspec config --help")
        raise UsageError(f"there is no option '{name}'{perhaps(name, general)}", hint="localspec config show")
    command_there = next((command for path, command in everything if path == tuple(tables)), None)
    if command_there is None:
        near = perhaps(spelt, [" ".join(path) for path, _ in everything])
        raise UsageError(f"there is no command '{spelt}' to set anything for{near}", hint="localspec --help")
    options = options_of(command_there)
    if name not in options:
        near = perhaps(name, options)
        raise UsageError(f"localspec {spelt} has no option '{name}'{near}", hint=f"localspec {spelt} --help")
    return options[name]


def once(option: Configurable, path: Key) -> UsageError:
    value = None if option.kind == "switch" else option.metavar
    typed = f"--{option.key}" if value is None else f"--{option.key} {value}"
    variable = option.variables(path)[0]
    message = f"'{option.key}' is for one command line and no setting"
    return UsageError(message, hint=f"{typed}, or {variable}={value or 1}")


def given(file: Configuration, entry: Entry, option: Configurable) -> Any:
    """Return an entry's value as click is to read it, files by absolute names; raises UsageError for a wrong type."""
    kind, value = option.kind, entry.value
    values = value if kind == "texts" and isinstance(value, list) else [value]
    noun, types = _TAKEN[kind]
    if not all(isinstance(each, types) and isinstance(each, bool) == (kind == "switch") for each in values):
        spelt = str(value).lower() if isinstance(value, bool) else repr(value)
        raise file.mistake(entry, f"{entry.path[-1]} = {spelt} is not {noun}")
    if kind not in ("text", "texts"):
        return value
    texts = [located(option.key, option.metavar or "", str(each), file.file.parent) for each in values]
    return texts if kind == "texts" else texts[0]


def origin(ctx: click.Context, option: Configurable) -> Origin:
    source, preset = ctx.get_parameter_source(str(option.name)), ctx.meta.get(_PRESET, {})
    if source is ParameterSource.DEFAULT_MAP and option.key in preset:
        return Origin("config", preset[option.key][1])
    if source is ParameterSource.ENVIRONMENT:
        return Origin("environment", next(name for name in option.variables(path_of(ctx)) if os.environ.get(name)))
    if source is ParameterSource.DEFAULT_MAP:
        return Origin("config", ctx.meta[_FOUND][option.key])
    return Origin("command line" if source is ParameterSource.COMMANDLINE else "default")


def in_command(ctx: click.Context, error: Told) -> Told:
    """Return the error with the places of options that it names and nobody typed, and what takes them out there.

    An error of what is not found names a value, too.
    """
    named, origins = set(_OPTION.findall(error.message)), list[Origin]()
    for option in options_of(ctx.command).values():
        value = ctx.params.get(str(option.name))
        is_told = isinstance(value, str) and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", error.message)
        if named & set(option.opts) or (is_told and isinstance(error, NotFoundError)):
            origins.append(origin(ctx, option))
    if places := list(dict.fromkeys(each for each in origins if each.where)):
        error.message += f" (it is set in {', '.join(each.where for each in places)})"
        cures = ", or ".join(map(cure, places))
        other = f"{error.hint} To take it out: {cures}."
        error.hint = other if error.is_sentence else ", or ".join(filter(None, (error.hint, cures)))
    return error
