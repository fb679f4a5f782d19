"""How options are declared: in sections of the help text, from the environment, with other programs' spellings.

Every single-valued option can be set in the environment as LOCALSPEC_ and its long name (LOCALSPEC_TEMP=0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

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


class Option(click.Option):
    """An option that belongs to a `section` of the help; `aliases` work and are not listed."""

    def __init__(
        self, declarations: Sequence[str], *, section: str = "Options", aliases: Sequence[str] = (), **attributes: Any
    ) -> None:
        long = next(name for name in declarations if name.startswith("--")).split("/")[0].removeprefix("--")
        if not attributes.get("multiple"):
            # One variable for all commands; click's own scheme would want LOCALSPEC_RUN_TEMP.
            attributes.setdefault("envvar", f"LOCALSPEC_{long.upper().replace('-', '_')}")
        super().__init__([*declarations, *aliases], **attributes)
        self.section = section
        self._aliases = frozenset(aliases)

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


def option(*declarations: str, section: str, **attributes: Any) -> Callable[[F], F]:
    """Declare an `Option`: click.option with a section."""
    return click.option(*declarations, cls=Option, section=section, **attributes)


def stacked(decorators: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """Return one decorator that applies all, so that help lists them in this order."""

    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply
