"""How a setting is declared: once, beside the field of the dataclass that holds it.

    temperature: float = setting(0.8, "--temp", group=SAMPLING, low=0, help="Temperature; 0 takes the likeliest token.")

The option with its help, the key in config.toml, the check, /set and the field in the form of the chat follow from it.

A setting as a form shows and changes it: its name, kind and value, and where that value came from.

The command line makes these from its options, so that a form needs no option.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from localspec.errors import UsageError
from localspec.settings.sizes import length

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


T = TypeVar("T")
NOTHING = ("none", "auto", "random", "off")  # words for a value that may be missing
_DECLARED = "declaration"  # the key in a field's metadata
_UNBOUNDED = 1e6  # a greater limit guards the program and tells a person nothing
_KINDS: dict[type, Kind] = {bool: "switch", int: "integer", float: "number"}
_EXPECTED = {"switch": "on or off", "integer": "an integer", "number": "a number"}
_METAVARS = {"integer": "N", "number": "F"}


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that stand together: below `title` in the help, below `form` in the form of the chat."""

    title: str
    form: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One declared setting.

    `flags` are the option's names: errors use the first, and `key` is the first long one. `aliases` work unlisted.
    Numbers lie within `low`..`high`, and `is_above` excludes `low` itself. `choices` are the only texts allowed, or,
    beside `read`, some of them; those of an axis (`is_axis`) are read from its register.

    `read` turns a text into a value, or raises ValueError; `metavar` then says in errors which texts it takes. `judge`
    raises UsageError for a value that has no range. A repeated option gives one item each time, and `read` and `spell`
    are of items.

    `nothing` spells None. `default_help` stands for the default in the help where the value itself says too little.
    """

    flags: tuple[str, ...]
    group: Group
    help: str
    aliases: tuple[str, ...] = ()
    metavar: str = ""
    low: float = -math.inf
    high: float = math.inf
    is_above: bool = False
    choices: tuple[str, ...] = ()
    is_axis: bool = False
    is_repeated: bool = False
    is_length: bool = False  # an integer of tokens, where 8k is 8192
    read: Callable[[str], Any] | None = None
    spell: Callable[[Any], str] = str
    judge: Callable[[Any], None] | None = None
    nothing: str = "none"
    default_help: str = ""
    in_chat: bool = True  # whether /set changes it
    # What follows from the field itself.
    field: str = ""
    default: Any = None
    kind: Kind = "text"

    @property
    def flag(self) -> str:
        """Return the option's name in errors."""
        return self.flags[0]

    @property
    def key(self) -> str:
        """Return the name in config.toml, the environment, /set and the form: the option's long name."""
        return next(flag for flag in self.flags if flag.startswith("--")).removeprefix("--")

    @property
    def is_line(self) -> bool:
        """Whether an item may hold blanks, so that a chat reads one item and the form none."""
        return self.metavar.endswith("TEXT")

    @property
    def in_form(self) -> bool:
        """Whether the form of the chat shows it."""
        return self.in_chat and not self.is_line

    def is_called(self, name: str) -> bool:
        """Whether a person may mean this setting by `name`, with or without leading dashes."""
        spellings = (self.field, *self.flags, *self.aliases)
        return name.lstrip("-") in {each.lstrip("-") for each in spellings}

    @property
    def shown_metavar(self) -> str | None:
        """Return the option's placeholder in the help; None leaves it to the choices."""
        return self.metavar or _METAVARS.get(self.kind)

    @property
    def full_help(self) -> str:
        """Return the help text with the default and the range."""
        low, high = f"{self.low:g}", f"{self.high:g}"
        is_told = max(abs(self.low), abs(self.high)) < _UNBOUNDED
        limits = (f"above {low}, at most {high}" if self.is_above else f"from {low} to {high}") if is_told else ""
        default = self.default_help or (self.spelled(self.default) if self._has_default else "")
        notes = "; ".join([*([f"default: {default}"] if default else []), *([limits] if limits else [])])
        return f"{self.help}  [{notes}]" if notes else self.help

    @property
    def _has_default(self) -> bool:
        """Whether the default is worth a word: a switch shows it by its flags, and "none" says nothing."""
        return self.kind != "switch" and self.spelled(self.default) != "none"

    @property
    def option_default(self) -> Any:
        """Return the default of the command's parameter, None for nothing."""
        if self.is_repeated or self.default == ():
            return None
        return self.nothing if self.default is None and self.nothing in self.choices else self.default

    def value(self, given: Any) -> Any:
        """Return the field's value for that of the command's parameter; raises UsageError."""
        if given is None:
            return () if self.default == () else None
        if self.is_repeated:
            return tuple(map(self._item, given)) or self.default
        return given if self.read is None else self._item(given)

    def typed(self, text: str) -> Any:
        """Return the value that a person typed in a chat; raises UsageError."""
        if self.is_repeated:
            items = [text] if self.is_line else text.split()
            return () if text.lower() == "none" else tuple(map(self._item, items))
        if self.default is None and self.read is None and text.lower() in NOTHING:
            return None
        return self._item(text)

    def spelled(self, value: Any) -> str:
        """Return a value as `typed` reads it."""
        if isinstance(value, tuple):
            return " ".join(map(self.spell, value)) or "none"
        return self.nothing if value is None else spelled(value)

    def check(self, value: Any) -> None:
        """Raise UsageError for a value out of its range. NaN and infinity are out of every range."""
        if value is None:
            return
        if self.judge is not None:
            self.judge(value)
        if self.choices and self.read is None and value not in self.choices:
            raise UsageError(f"{self.flag} {value!r} is not {' or '.join(self.choices)}", hint="localspec run --help")
        if isinstance(value, int | float) and self.kind != "switch":
            self.require_range(value)

    def require_range(self, value: float) -> None:
        """Raise UsageError for a number that is not within the limits."""
        in_range = self.low <= value <= self.high and value not in (math.inf, -math.inf)
        if not in_range or (self.is_above and value == self.low):
            left = "more than" if self.is_above else "at least"
            right = "" if self.high >= 2**31 - 1 else f" and at most {self.high:g}"
            raise UsageError(
                f"{self.flag} {value} is out of range: it must be {left} {self.low:g}{right}",
                hint="localspec run --help",
            )

    def _item(self, text: str) -> Any:
        """Return the one value that a text spells; raises UsageError."""
        try:
            if self.read is not None:
                return self.read(text)
            if self.kind == "switch":
                return {"on": True, "off": False}[text.lower()]
            if self.is_length:
                return length(text)
            return {"integer": int, "number": float}.get(self.kind, str)(text)
        except (ValueError, KeyError):
            expected = _EXPECTED.get(self.kind) or " or ".join(self.metavar.split("|"))
            raise UsageError(f"{self.flag} {text!r} is not {expected}", hint="localspec run --help") from None


def setting(default: T, flags: str, *, group: Group, help: str, aliases: str = "", **more: Any) -> T:
    """Return a dataclass field with this default that people can set; `more` are fields of `Declaration`."""
    made = Declaration(flags=tuple(flags.split()), aliases=tuple(aliases.split()), group=group, help=help, **more)
    return field(default=default, metadata={_DECLARED: made})


def declared(cls: type[Any]) -> tuple[Declaration, ...]:
    """Return the settings that a dataclass declares, in the order of its fields."""
    hints = get_type_hints(cls)
    found = []
    for each in fields(cls):
        if _DECLARED in each.metadata:
            declaration: Declaration = each.metadata[_DECLARED]
            hint = hints[each.name]
            named = next(iter(get_args(hint)), hint)  # int for `int | None`
            kind = "text" if declaration.read else _KINDS.get(named, "text")
            found.append(replace(declaration, field=each.name, default=each.default, kind=kind))
    return tuple(found)


def declaration(cls: type[Any], field: str) -> Declaration:
    """Return the declaration of one field of a dataclass."""
    return next(each for each in declared(cls) if each.field == field)


def check_declared(holder: Any) -> None:
    """Raise UsageError for the first declared setting of a dataclass that is out of its range."""
    for each in declared(type(holder)):
        each.check(getattr(holder, each.field))
