"""Options that can be set outside the command line: their keys, their variables, and what config.toml says of them.

An option that is not on the command line is looked up in the preset, in the environment, as LOCALSPEC_COMMAND_OPTION
and then as LOCALSPEC_OPTION, and then in config.toml.
"""

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from localspec.cli.file_names import kept, located
from localspec.errors import LocalspecError, NotFoundError, UsageError, near_name
from localspec.models.ollama import OllamaModel
from localspec.settings.config_file import TABLE, Configuration, Key, config_file, mistake, read_configuration
from localspec.settings.declaration import Kind, Option, Origin, declared, out_of_range, spelled
from localspec.settings.presets import find_preset
from localspec.settings.request import Request, Sampling
from localspec.settings.sizes import length
from localspec.settings.values import sample

# What a person should say each time: what removes, replaces or downloads unasked, and what only a program reads.
ONCE = frozenset({"yes", "force", "replace", "dry-run", "json", "events"})
WITHOUT_FILE = frozenset({("config",), ("completions",)})  # which must work on any file
TOLERANT = frozenset({("doctor",)})  # which reports its errors
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_FOUND = "localspec.settings.config_file"  # where a context keeps the keys that hold for it, by option
_PRESET = "localspec.settings.presets"  # and what the preset says
_MODELS_OWN = "localspec.models.ollama"  # and what the model itself begins with: its name, and values by field
_TAKEN: dict[Kind, tuple[str, Any]] = {  # what config.toml may have for a kind, in words and as types
    "switch": ("true or false", bool),
    "integer": ("an integer", int),
    "number": ("a number", int | float),
    "choice": ("a text", str),
    "text": ("a text or a number", str | int | float),
    "texts": ("a text or a list of texts", str | int | float),
}
AnyError = TypeVar("AnyError", bound=LocalspecError)


class Switch(click.types.BoolParamType):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not on or off", param, ctx)


class Number(click.types.FloatParamType):
    """A number from `low` to `high`, or above `low`; NaN only without limits. `read` makes it of a text."""

    def __init__(
        self,
        low: float = -math.inf,
        high: float = math.inf,
        *,
        is_above: bool = False,
        read: Callable[[str], float] = float,
        noun: str = "a number",
    ) -> None:
        self.low, self.high, self.is_above, self.read, self.noun = low, high, is_above, read, noun

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = self.read(str(value))
            if number != number and self.low > -math.inf:
                raise ValueError  # NaN, which a setting judges itself
        except ValueError:
            self.fail(f"{value!r} is not {self.noun}", param, ctx)
        if number < self.low or number > self.high or (self.is_above and number == self.low):
            self.fail(out_of_range(number, self.low, self.high, is_above=self.is_above), param, ctx)
        return number


Integer = partial(Number, read=int, noun="an integer")
Length = partial(Number, read=length, noun="a number of tokens, such as 8192 or 8k")


def complaint(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):  # click compares with the dashes, which are alike in all
        known = {option.lstrip("-"): option for option in error.possibilities or ()}
        name = error.option_name.lstrip("-").replace("_", "-")
        near = [known[option] for option in ([name] if name in known else difflib.get_close_matches(name, known))]
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    option, said = getattr(error, "param", None), error.message
    if isinstance(option, click.Option) and not isinstance(error, click.MissingParameter):
        said = f"{option.opts[0]} {said}"
    elif not (isinstance(option, click.Argument) and isinstance(option.type, click.Choice)):
        said = error.format_message()
    said = said.strip().rstrip(".")
    return said[:1].lower() + said[1:]


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
        super().__init__([*declarations, *aliases], **attributes)
        self.type = Switch() if self.is_bool_flag else self.type
        long = next(name for name in declarations if name.startswith("--"))
        self.key = long.split("/")[0].removeprefix("--")
        # One variable for all commands; click's own scheme has LOCALSPEC_RUN_TEMP only.
        self.variable = f"LOCALSPEC_{capitals(self.key)}"
        self.section, self.aliases, self.is_own = section, frozenset(aliases), is_own
        self.check, self.names, self.declaration = check, names, declaration

    @property
    def kind(self) -> Kind:
        if self.multiple or self.is_flag:
            return "texts" if self.multiple else "switch"
        if isinstance(self.type, Number):
            return "number" if self.type.read is float else "integer"
        return "choice" if isinstance(self.type, click.Choice) else "text"

    @property
    def example(self) -> str:
        if self.declaration is not None:
            return self.declaration.example
        known = self.default if isinstance(self.default, str | int | float) else None
        if isinstance(self.type, Number) and self.kind == "integer" and known is None:
            known = max(1, self.type.low)
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
        if ctx.default_map is None and not ctx.resilient_parsing:
            ctx.default_map = defaults(ctx)
        value, source = super().consume_value(ctx, opts)
        preset = ctx.meta.get(_PRESET, {})
        if source is ParameterSource.COMMANDLINE or ctx.resilient_parsing or self.key not in preset:
            return value, source
        return preset[self.key], ParameterSource.DEFAULT_MAP

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
                ctx.meta[_PRESET] = of_preset(ctx, value) if isinstance(value, str) else {}
            if self.check is not None and origin(ctx, self).kind != "default" and not ctx.resilient_parsing:
                self.check(value)
        except click.BadParameter as error:
            place = origin(ctx, self)
            if not place.where:
                raise
            raise UsageError(f"{complaint(error)} (it is set in {place})", hint=place.cure) from None
        except LocalspecError as error:
            raise in_command(ctx, error) from error.__cause__
        return value, rest

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        opts, self.opts = self.opts, [name for name in self.opts if name not in self.aliases]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = opts


def path_of(ctx: click.Context) -> Key:
    return () if ctx.parent is None else (*path_of(ctx.parent), str(ctx.command.name))


def capitals(name: str) -> str:
    return name.upper().replace("-", "_")


def options_of(command: click.Command) -> dict[str, Configurable]:
    return {param.key: param for param in command.params if isinstance(param, Configurable)}


def typed(ctx: click.Context) -> Iterator[Configurable]:
    for option in options_of(ctx.command).values():
        if ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE:
            yield option


def defaults(ctx: click.Context) -> dict[str, Any]:
    """Return what config.toml says for this command, by parameter, for click's default map. Raises UsageError for a
    file, or a part of it that concerns this command, which cannot be meant."""
    path, options = path_of(ctx), options_of(ctx.command)
    if path[:1] in WITHOUT_FILE:
        return {}
    try:
        file = read_configuration()
        keys = ctx.meta[_FOUND] = keys_for(file, path, options)
    except LocalspecError:
        if path[:1] in TOLERANT:
            return {}
        raise
    return {str(options[name].name): given(key, file[key], options[name]) for name, key in keys.items()}


def of_preset(ctx: click.Context, name: str) -> dict[str, Any]:
    """Return what the preset `name` says for this command, by key; raises NotFoundError and UsageError. A preset that
    names a model has a say about its draft too: that of config.toml belongs to another model."""
    try:
        preset = find_preset(name)
    except NotFoundError as error:
        from localspec.bench.contenders import PRESETS  # late: little goes wrong

        if name in PRESETS:
            error.message += ": one of bench has that name"
            error.hint = f"localspec bench --preset {name}, or localspec config set bench.preset {name}"
        raise
    values, options = {"draft": None} if "model" in preset else {}, options_of(ctx.command)
    for key, value in preset.items():
        option_in_file((TABLE, name, key))
        if key in options:
            values[key] = given((TABLE, name, key), value, options[key])
    return values


def is_from_preset(ctx: click.Context, name: str) -> bool:
    if ctx.get_parameter_source("preset") is not ParameterSource.COMMANDLINE:
        return False
    return name in ctx.meta.get(_PRESET, {}) and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP


def keys_for(file: Configuration, path: Key, options: Mapping[str, Configurable]) -> dict[str, Key]:
    """Return the keys of the file that hold for a command, by option: its own table's over those at the top. Raises
    UsageError for a key at the top that no command has, or one in the command's table that it has not."""
    from localspec.cli.app import COMMANDS

    keys: dict[str, Key] = {}
    for key in sorted(file, key=len):
        table, name = key[:-1], key[-1]
        if table in ((), path) and name in options and not (options[name].is_own and not table):
            keys[name] = key
            if name in ONCE:
                refused = once(options[name], table)
                raise mistake(key, refused.message, refused.hint)
        elif not table or table[: len(path)] == path or table[0] not in (*COMMANDS, TABLE):
            option_in_file(key)
    return keys


def option_in_file(key: Key) -> Configurable:
    try:
        return option_at(key)
    except UsageError as error:
        raise mistake(key, error.message) from None


def option_at(key: Key) -> Configurable:
    """Return the option that a key stands for; raises UsageError with the nearest one. Imports every command."""
    from localspec.cli.app import commands

    *tables, name = key
    everything, path, spelt = dict(commands()), tuple(tables), " ".join(tables)
    if path[:1] == (TABLE,):
        group = everything["config", "preset"]
        assert isinstance(group, click.Group)
        own = {each: option for each, option in options_of(group.commands["save"]).items() if each not in ONCE}
        options = own if len(path) == 2 else {}
        refusal, hint = f"a preset has no setting '{name}'", "localspec config preset save --help"
    elif not path:
        options = {}
        for command in everything.values():  # the first that has it says what it may be: localspec run
            options = {each: option for each, option in options_of(command).items() if not option.is_own} | options
        owners = [".".join((*at, name)) for at, command in everything.items() if name in options_of(command)]
        if owners and name not in options:
            which = " and ".join(f"'{owner}'" for owner in owners)
            raise UsageError(f"'{name}' means something else to each command: {which}", hint="localspec config --help")
        refusal, hint = f"there is no option '{name}'", "localspec config show"
    elif path in everything:
        options = options_of(everything[path])
        refusal, hint = f"localspec {spelt} has no option '{name}'", f"localspec {spelt} --help"
    else:
        near = _perhaps(spelt, [" ".join(at) for at in everything])
        raise UsageError(f"there is no command '{spelt}' to set anything for{near}", hint="localspec --help")
    if name not in options:
        short = next((each for each, option in options.items() if f"-{name}" in option.opts), "")  # which is no key
        raise UsageError(refusal + (f": -{name} is '{short}'" if short else _perhaps(name, options)), hint=hint)
    return options[name]


def _perhaps(name: str, known: Iterable[str]) -> str:
    near = near_name(name.lower().replace("_", "-"), known)
    return f", perhaps '{near}' was meant" if near else ""


def once(option: Configurable, path: Key) -> UsageError:
    value = None if option.kind == "switch" else option.metavar
    typed = f"--{option.key}" if value is None else f"--{option.key} {value}"
    message = f"'{option.key}' is for one command line and no setting"
    return UsageError(message, hint=f"{typed}, or {option.variables(path)[0]}={value or 1}")


def given(key: Key, value: Any, option: Configurable) -> Any:
    """Return a value of the file as click reads it, files by absolute names; raises UsageError for another type."""
    kind = option.kind
    values = value if kind == "texts" and isinstance(value, list) else [value]
    noun, types = _TAKEN[kind]
    if not all(isinstance(each, types) and isinstance(each, bool) == (kind == "switch") for each in values):
        spelt = str(value).lower() if isinstance(value, bool) else repr(value)
        raise mistake(key, f"{'.'.join(key)} = {spelt} is not {noun}")
    if kind not in ("text", "texts"):
        return value
    texts = [located(option.key, option.metavar or "", str(each), config_file().parent) for each in values]
    return texts if kind == "texts" else texts[0]


def origin(ctx: click.Context, option: Configurable) -> Origin:
    source = ctx.get_parameter_source(str(option.name))
    model, values = models_own(ctx)
    if option.name in values:
        return Origin("model", model)
    if source is ParameterSource.DEFAULT_MAP:
        preset = (TABLE, ctx.params["preset"], option.key) if option.key in ctx.meta.get(_PRESET, {}) else ()
        return Origin("config", ".".join(preset or ctx.meta[_FOUND][option.key]))
    if source is ParameterSource.ENVIRONMENT:
        return Origin("environment", next(name for name in option.variables(path_of(ctx)) if os.environ.get(name)))
    return Origin("command line" if source is ParameterSource.COMMANDLINE else "default")


def of_model(ctx: click.Context, model: OllamaModel | None) -> dict[str, Any]:
    """Return what Ollama gives to a model, by field, where nothing else sets that: `origin` knows it from here on.

    What has another meaning here is left out, such as -1 for no limit.
    """
    values: dict[str, Any] = {}
    given = {} if model is None else {name.replace("_", "-"): value for name, value in model.parameters.items()}
    for each in (*declared(Sampling), *declared(Request)) if given else ():
        value = next((value for name, value in given.items() if each.is_called(name)), None)
        is_open = ctx.get_parameter_source(each.name) is ParameterSource.DEFAULT
        if value is not None and is_open and ctx.params.get(each.name) == each.default:
            with suppress(UsageError, ValueError):
                texts = value if isinstance(value, list) else [value]
                values[each.name] = tuple(map(str, texts)) if each.is_repeated else each.read(str(value))
    if model is not None and model.system and ctx.params.get("system", "") is None:
        values["system"] = model.system
    ctx.meta[_MODELS_OWN] = "" if model is None else model.name, values
    return values


def models_own(ctx: click.Context) -> tuple[str, dict[str, Any]]:
    """Return the name of the model whose own settings these are, "" for none, and their values by field."""
    own: tuple[str, dict[str, Any]] = ctx.meta.get(_MODELS_OWN, ("", {}))
    return own


def in_command(ctx: click.Context, error: AnyError) -> AnyError:
    """Return the error with the places of options that it names and nobody typed, and what takes them out there."""
    named, places = set(_OPTION.findall(error.message)), list[Origin]()
    for option in options_of(ctx.command).values():
        value = ctx.params.get(str(option.name))
        is_told = isinstance(value, str) and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", error.message)
        if named & set(option.opts) or (is_told and isinstance(error, NotFoundError)):
            place = origin(ctx, option)
            places += [place] if place.where and place.kind != "model" and place not in places else []
    if places:
        error.message += f" (it is set in {', '.join(dict.fromkeys(map(str, places)))})"
        cures = ", or ".join(place.cure for place in places)
        other = f"{error.hint} To take it out: {cures}."
        error.hint = other if error.is_sentence else ", or ".join(filter(None, (error.hint, cures)))
    return error
