"""Options that can be set outside the command line: by which key, by which variables, and how a value is judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from localspec.errors import LocalspecError
from localspec.settings.config_file import Key
from localspec.settings.setting import Kind

Check = Callable[[Any], object]
Names = Callable[[], Iterable[str]]


class Configurable(click.Option):
    """An option with a `key`, its long name, in config.toml and, in capitals, in the environment.

    `is_own`: other commands mean something else by that name, so it is set for its own command alone. `check` judges a
    value as far as that goes without the others and raises UsageError; `names` are values it may have, for completion.
    """

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        is_own: bool = False,
        check: Check | None = None,
        names: Names | None = None,
        **attributes: Any,
    ) -> None:
        long = next(name for name in declarations if name.startswith("--"))
        self.key = long.split("/")[0].removeprefix("--")
        # One variable for all commands; click's own scheme has LOCALSPEC_RUN_TEMP only.
        self.variable = f"LOCALSPEC_{_capitals(self.key)}"
        super().__init__([*declarations], envvar=None if is_own else self.variable, **attributes)
        self.is_own = is_own
        self.check = check
        self.names = names

    @property
    def kind(self) -> Kind:
        """What kind of value it takes."""
        if self.multiple:
            return "texts"
        if self.is_flag:
            return "switch"
        if isinstance(self.type, click.Choice):
            return "choice"
        if isinstance(self.type, click.types.IntParamType):
            return "integer"
        return "number" if isinstance(self.type, click.types.FloatParamType) else "text"

    def variables(self, path: Key) -> list[str]:
        """Return the environment variables that set it for the command at `path`, the one that wins first."""
        own = "_".join(["LOCALSPEC", *map(_capitals, path), _capitals(self.key)])
        return [own] if self.is_own else [own, self.variable]

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return what the environment says; an empty variable says nothing."""
        return next(filter(None, map(os.environ.get, self.variables(path_of(ctx)))), None)

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return what the environment says; of an option that may be repeated, a value a line."""
        text = self.resolve_envvar_value(ctx)
        return text.splitlines() if self.multiple and text is not None else super().value_from_envvar(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names it may have, or what click knows."""
        if self.names is None:
            return super().shell_complete(ctx, incomplete)
        try:
            return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]
        except (LocalspecError, OSError):
            return []  # nobody could be told


def path_of(ctx: click.Context) -> Key:
    """Return the names of the command and the groups it is in, aliases resolved; () for localspec itself."""
    if ctx.parent is None:
        return ()
    return (*path_of(ctx.parent), str(ctx.command.name))


def options_of(command: click.Command) -> dict[str, Configurable]:
    """Return the options that can be set outside the command line, by key."""
    return {param.key: param for param in command.params if isinstance(param, Configurable)}


def _capitals(name: str) -> str:
    return name.upper().replace("-", "_")
