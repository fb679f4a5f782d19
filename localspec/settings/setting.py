"""A setting as a form shows and changes it: its name, kind and value, and where that value came from.

The command line makes these from its options, so that a form needs no option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

OriginKind = Literal["default", "config", "environment", "command line"]
Kind = Literal["switch", "integer", "number", "choice", "text", "texts"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from. `where` is FILE:LINE, the name of the variable, or "" where there is no place."""

    kind: OriginKind = "default"
    where: str = ""

    def __str__(self) -> str:
        return self.where or self.kind


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `name` is its key in config.toml; `choices` are its values; of a text, some.

    `value` and `default` are None where nothing is set. `read` turns what was typed into a value, or raises UsageError.
    """

    name: str
    section: str
    help: str
    kind: Kind
    choices: tuple[str, ...]
    default: Any
    value: Any
    origin: Origin
    read: Callable[[str], Any] = field(compare=False)

    def to_wire(self) -> dict[str, Any]:
        """Return the setting as a JSON object."""
        names = ("name", "section", "help", "kind", "choices", "default", "value")
        origin = {"kind": self.origin.kind, "where": self.origin.where or None}
        return {**{name: getattr(self, name) for name in names}, "origin": origin}


def spelled(value: Any) -> str:
    """Return a value as it may be typed; "" for nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)
