"""Declares options: their section in the help, other programs' spellings, and where their values come from.

An option that is not on the command line is looked up in the environment, as LOCALSPEC_COMMAND_OPTION and then as
LOCALSPEC_OPTION, and then in config.toml; see `option_sources`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from localspec.cli.habits import checked
from localspec.cli.option_sources import Configurable, defaults, in_command, of_preset, origin, take_preset
from localspec.errors import UsageError
from localspec.settings.sizes import length

MAX_SENTENCE = 1000  # characters of a sentence in the list of commands: none is cut
TYPED = "localspec.cli.params"  # where a context keeps its words
F = TypeVar("F", bound=Callable[..., Any])


class Positive(click.FloatRange):
    """A number above 0 and at most `max`; click's own range lets NaN through."""

    def __init__(self, max: float) -> None:
        super().__init__(min=0, max=max, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number or fail with click's words."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Length(click.types.IntParamType):
    """A number of tokens: 8192, or 8k."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number or fail with click's words."""
        try:
            return length(str(value))
        except ValueError:
            self.fail(f"{value!r} is no number of tokens, such as 8192 or 8k", param, ctx)


def complaint(error: click.ClickException) -> str:
    """Return click's complaint; that about an option's value in the words that the chats have for it."""
    option = error.param if isinstance(error, click.BadParameter) else None
    if not isinstance(option, click.Option) or isinstance(error, click.MissingParameter):
        return error.format_message().strip().rstrip(".")
    told = re.sub(r"a valid float(?: range)?", "a number", error.message)
    told = re.sub(r"a valid integer(?: range)?", "an integer", told)
    return f"{option.opts[0]} {told}".strip().rstrip(".")


class SectionOption(Configurable):
    """An option that belongs to a `section` of the help; `aliases` work and are not listed."""

    def __init__(
        self, declarations: Sequence[str], *, section: str = "Options", aliases: Sequence[str] = (), **attributes: Any
    ) -> None:
        super().__init__([*declarations, *aliases], **attributes)
        self.section = section
        self._aliases = frozenset(aliases)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """Return the value and where it was found; config.toml is read when the first option wants it."""
        if ctx.default_map is None and not ctx.resilient_parsing:
            ctx.default_map = defaults(ctx)
        value, source = super().consume_value(ctx, opts)
        if source is ParameterSource.COMMANDLINE or ctx.resilient_parsing:
            return value, source
        preset = of_preset(ctx, self)
        return (value, source) if preset is None else (preset[0], ParameterSource.DEFAULT_MAP)

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
            place = origin(ctx, self).where
            if not place:
                raise
            raise click.BadParameter(f"{error.message.rstrip('.')} (it is set in {place})", ctx, self) from None
        except UsageError as error:
            raise in_command(ctx, error) from error.__cause__
        return value, rest

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return click's record without the aliases."""
        opts, self.opts = self.opts, [name for name in self.opts if name not in self._aliases]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = opts

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return click's extras without ranges: an error names them when they matter."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


class Command(click.Command):
    """A command whose help lists options by section, in the order of their declaration."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, which are kept as they were typed; raises UsageError for another program's meaning."""
        ctx.meta[TYPED] = list(args)
        try:
            return super().parse_args(ctx, args if ctx.resilient_parsing else checked(self, args))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click names no command where an option lacks its value
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an error about a value that is not from the command line tells where it was found."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise in_command(ctx, error) from error.__cause__

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one table per section, all with columns of the same width."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Argument):
                continue  # the usage line and the text above speak of it
            record = param.get_help_record(ctx)
            if record is not None:
                section = getattr(param, "section", "Help")
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records, col_max=32)


class CommandGroup(click.Group):
    """A group of commands whose help has the first sentence of each, whole."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say what was probably meant."""
        name = args[0]
        if name not in self.commands and not (name.startswith("-") or ctx.resilient_parsing):
            hint = self.meant(name)
            near = difflib.get_close_matches(name, self.commands, n=1)
            hint = hint or (f"{ctx.command_path} {near[0]}" if near else f"{ctx.command_path} --help")
            raise UsageError(f"{ctx.info_name} has no command {name!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def meant(self, name: str) -> str:
        """Return what to type for a word that is no command, "" where nobody knows."""
        return ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; click would cut sentences."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(MAX_SENTENCE)) for name, one in sorted(self.commands.items())]
            )


def option(*declarations: str, section: str, **attributes: Any) -> Callable[[F], F]:
    """Declare a `SectionOption`: click.option with a section."""
    return click.option(*declarations, cls=SectionOption, section=section, **attributes)


def stacked(decorators: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """Return one decorator that applies all, so that help lists them in this order."""

    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply
