"""Declares options and commands."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click

from localspec.cli.console import Console
from localspec.cli.habits import refuse_numbers
from localspec.cli.option_sources import Configurable, capitals, in_command, options_of, path_of
from localspec.errors import IncompatibleError, NetworkError, NotFoundError, UsageError, near_name
from localspec.settings.removed import check_removed

MAX_SENTENCE = 1000  # characters of a sentence in the list of commands: none is cut
TYPED = "localspec.cli.params"  # where a context keeps its words
F = TypeVar("F", bound=Callable[..., Any])


_PREFIX = "LOCALSPEC_"
_OTHERS = {f"{_PREFIX}{each}" for each in ("HOME", "DEBUG", "NO_HISTORY", "VERIFIER_KEY")}  # which are no options


class Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, which are kept as they were typed; raises UsageError for another program's meaning."""
        ctx.meta[TYPED] = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            if isinstance(error, click.NoSuchOption):
                check_removed(f"{self.name} {error.option_name}")
            error.ctx = error.ctx or ctx  # click names no command where an option lacks its value
            raise
        if not ctx.resilient_parsing:
            refuse_numbers(ctx.params)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        for warning in () if ctx.params.get("quiet") or not isinstance(ctx.obj, Console) else unknown_variables(ctx):
            ctx.obj.warn(warning)
        try:
            return super().invoke(ctx)
        except (UsageError, NotFoundError, NetworkError, IncompatibleError) as error:
            if "missing" in error.detail:
                from localspec.models.lookup import name_local  # late: it looks at what is here

                name_local(error)
            raise in_command(ctx, error) from error.__cause__

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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


def unknown_variables(ctx: click.Context) -> Iterator[str]:
    """Yield a sentence for each variable LOCALSPEC_... that sets nothing; each command judges its own and general ones.
    Imports every command where one of them is not of this command."""
    from localspec.cli.app import COMMANDS, commands

    path = path_of(ctx)
    own = {each for option in options_of(ctx.command).values() for each in option.variables(path)}
    others = tuple(f"{_PREFIX}{capitals(name)}_" for name in COMMANDS if name not in path)
    left = [each for each in sorted(os.environ) if each.startswith(_PREFIX) and each not in own | _OTHERS]
    left = [each for each in left if not each.startswith(others)]
    if not left:
        return
    known = {each for at, own in commands() for option in options_of(own).values() for each in option.variables(at)}
    keys = [each.removeprefix(_PREFIX) for each in sorted(known | _OTHERS)]
    for variable in (each for each in left if each not in known):
        near = near_name(variable.removeprefix(_PREFIX), keys)
        yield f"{variable} sets nothing" + (f", perhaps {_PREFIX}{near} was meant" if near else "")


class CommandGroup(click.Group):
    """A group of commands whose help has the first sentence of each, whole; `aliases` work unlisted."""

    def __init__(self, name: str | None = None, *, aliases: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self._aliases = aliases or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return super().get_command(ctx, self._aliases.get(name, name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not (name.startswith("-") or ctx.resilient_parsing):
            check_removed(f"{self.name} {name}")
            hint = self.meant(name)
            near = near_name(name, [*self.commands, *self._aliases]) or "--help"
            command = self._aliases.get(near, near)
            hint = hint or f"{ctx.command_path} {command}"
            raise UsageError(f"{ctx.info_name} has no command {name!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def meant(self, name: str) -> str:
        return ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(MAX_SENTENCE)) for name, command in sorted(self.commands.items())]
            )


def option(*declarations: str, section: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*declarations, cls=Configurable, section=section, **attributes)


def stacked(decorators: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


json_option = option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
