"""How an option is declared: once, by an `Option`.

A method, tree or rule has its options in a tuple (`-o key=value`, `name:key=value,...`). A setting is declared beside
the field of the dataclass that holds it:

    temperature: float = setting(0.8, "--temp", group=SAMPLING, low=0, help="Temperature; 0 takes the likeliest token.")

The option with its help, the key in config.toml, the check, /set and the field in the form of the chat follow from it.
A `Setting` is what a form shows of one: its kind and value, and where that value came from.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from localspec.errors import UsageError, near_name
from localspec.settings.sizes import length
from localspec.settings.values import sample

Value = bool | int | float | str  # of an option of a method, tree or rule
OriginKind = Literal["default", "config", "environment", "command line", "model"]
Kind = Literal["switch", "integer", "number", "choice", "text", "texts"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from.

    `where` is its key in config.toml, the name of the variable or of Ollama's model, or "" for no place.
    """

    kind: OriginKind = "default"
    where: str = ""

    def __str__(self) -> str:
        known = {"config": "config.toml", "model": f"Ollama's {self.where}"}
        return known.get(self.kind, self.where or self.kind)

    @property
    def cure(self) -> str:
        return f"unset {self.where}" if self.kind == "environment" else f"localspec config unset {self.where}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `name` is its key in config.toml; `choices` are its values; of a text, some. `value` and `default`
    are None where nothing is set. `read` turns what was typed into a value, or raises UsageError."""

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
        names = ("name", "section", "help", "kind", "choices", "default", "value")
        origin = {"kind": self.origin.kind, "where": self.origin.where or None}
        return {**{name: getattr(self, name) for name in names}, "origin": origin}


def spelled(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


T = TypeVar("T")
NOTHING = ("none", "auto", "random", "off")  # words for a value that may be missing
_DECLARED = "option"  # the key in a field's metadata
_FOUND: dict[type[Any], tuple[Any, ...]] = {}  # what `declared` returned
_UNBOUNDED = 1e6  # a greater limit guards the program and tells a person nothing
_KINDS: dict[type, Kind] = {bool: "switch", int: "integer", float: "number"}
_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
_EXPECTED = {"switch": "on or off", "integer": "an integer", "number": "a number"}


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that stand together: below `title` in the help, below `form` in the form of the chat."""

    title: str
    form: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that people can set. `name` is its key, of a setting the field that holds it.

    Its kind is that of `default`. Numbers lie within `low`..`high`, and `is_above` excludes `low` itself. `choices` are
    the only texts allowed, or, beside `parse`, some of them; those of an axis (`is_axis`) are read from its register.

    `parse` turns a text into a value, or raises ValueError; `metavar` then says in errors which texts it takes. `judge`
    raises UsageError for a value that has no range. A repeated option gives one item each time, and `parse` and `spell`
    are of items.

    `flags` are the command's spellings: errors use the first, and `key` is the first long one. `aliases` work unlisted.
    `nothing` spells None. `default_help` stands for the default in the help where the value itself says too little.
    """

    name: str
    default: Any
    help: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    _: KW_ONLY
    metavar: str = ""
    parse: Callable[[str], Any] | None = None
    is_above: bool = False
    # Of a setting alone.
    flags: tuple[str, ...] = ()
    group: Group = Group("")
    aliases: tuple[str, ...] = ()
    is_axis: bool = False
    is_repeated: bool = False
    is_length: bool = False  # an integer of tokens, where 8k is 8192
    spell: Callable[[Any], str] = str
    judge: Callable[[Any], None] | None = None
    nothing: str = "none"
    default_help: str = ""
    in_chat: bool = True  # whether /set changes it
    of_type: type | None = None  # that of the field, where it is not the default's

    @property
    def kind(self) -> Kind:
        return "text" if self.parse else _KINDS.get(self.of_type or type(self.default), "text")

    @property
    def flag(self) -> str:
        return self.flags[0]

    @property
    def key(self) -> str:
        return next(flag for flag in self.flags if flag.startswith("--")).removeprefix("--")

    @property
    def is_line(self) -> bool:
        """Whether an item may hold blanks, so that a chat reads one item and the form none."""
        return self.metavar.endswith("TEXT")

    @property
    def in_form(self) -> bool:
        return self.in_chat and not self.is_line

    def is_called(self, name: str) -> bool:
        spellings = (self.name, *self.flags, *self.aliases)
        return name.lstrip("-") in {each.lstrip("-") for each in spellings}

    @property
    def full_help(self) -> str:
        low, high = f"{self.low:g}", f"{self.high:g}"
        is_told = max(abs(self.low), abs(self.high)) < _UNBOUNDED
        limits = (f"above {low}, at most {high}" if self.is_above else f"from {low} to {high}") if is_told else ""
        has_default = self.kind != "switch" and self.spelled(self.default) != "none"  # a switch shows it by its flags
        default = self.default_help or (self.spelled(self.default) if has_default else "")
        notes = "; ".join([*([f"default: {default}"] if default else []), *([limits] if limits else [])])
        return f"{self.help}  [{notes}]" if notes else self.help

    @property
    def example(self) -> str:
        if self.kind in ("integer", "number"):
            usual = self.default if self.default is not None else 4096 if self.is_length else self.low + self.is_above
            return f"{self.flag} {spelled(usual)}"
        if self.kind == "switch":
            return f"{self.flag} on"
        if self.choices and self.spelled(self.default) in (*self.choices, self.nothing):
            return f"{self.flag} {self.spelled(self.default)}"
        return f"{self.flag} {sample(self.metavar)}"

    @property
    def range(self) -> str:
        if self.choices or self.metavar:
            return self.metavar or ", ".join(self.choices)
        if self.kind in ("switch", "text"):
            return "on or off" if self.kind == "switch" else "text"
        low = "" if self.low == -math.inf else f"from {self.low:g}"
        high = "" if self.high == math.inf else f"to {self.high:g}"
        return f"{low} {high}".strip() or "any number"

    def value(self, given: Any) -> Any:
        if given is None:
            return () if self.default == () else None
        if self.is_repeated:
            return tuple(map(self._item, given)) or self.default
        return given if self.parse is None else self._item(given)

    def typed(self, text: str) -> Any:
        if self.is_repeated:
            items = [text] if self.is_line else text.split()
            return () if text.lower() == "none" else tuple(map(self._item, items))
        if self.default is None and self.parse is None and text.lower() in NOTHING:
            return None
        return self._item(text)

    def spelled(self, value: Any) -> str:
        if isinstance(value, tuple):
            return " ".join(map(self.spell, value)) or "none"
        return self.nothing if value is None else spelled(value)

    def check(self, value: Any, called: str = "") -> None:
        """Raise UsageError for a value out of its range, by the option or by what it is `called`. NaN and infinity are
        out of every range."""
        if value is None:
            return
        if self.judge is not None:
            self.judge(value)
        if self.is_within(value):
            return
        if isinstance(value, str):
            raise UsageError(f"{called or self.flag} {value!r} is not {' or '.join(self.choices)}", hint=self.example)
        message = out_of_range(value, self.low, self.high, is_above=self.is_above)
        raise UsageError(f"{called or self.flag} {message}", hint=self.example)

    def is_within(self, value: Any) -> bool:
        if isinstance(value, int | float) and self.kind != "switch":
            is_limit = value in (math.inf, -math.inf) or (self.is_above and value == self.low)
            return self.low <= value <= self.high and not is_limit
        return not self.choices or self.parse is not None or value in self.choices

    def read(self, text: str) -> Any:
        """Return the value that one text spells; raises ValueError for none, or one out of range."""
        value = self._parsed(text)
        if not self.is_within(value):
            raise ValueError(text)
        return value

    def _parsed(self, text: str) -> Any:
        if self.kind == "switch" and text.lower() not in _SWITCH:
            raise ValueError(text)
        readers: dict[str, Callable[[str], Any]] = {"integer": length if self.is_length else int, "number": float}
        return _SWITCH[text.lower()] if self.kind == "switch" else (self.parse or readers.get(self.kind, str))(text)

    def _item(self, text: str) -> Any:
        try:
            return self._parsed(text)
        except ValueError:
            forms = "a size" if self.metavar == "SIZE" else ", ".join(self.metavar.split("|"))
            forms = " or ".join(forms.rsplit(", ", 1)) if "|" in self.metavar else forms
            expected = "a number of tokens, such as 8192 or 8k" if self.is_length else _EXPECTED.get(self.kind) or forms
            hint = f"--method suffix {self.example}" if self.name == "options" else self.example  # others have others
            raise UsageError(f"{self.flag} {text!r} is not {expected}", hint=hint) from None


def out_of_range(value: float, low: float, high: float, *, is_above: bool) -> str:
    """Return what is wrong with a number. A limit that tells a person nothing is left out, unless it was passed."""
    left = "more than" if is_above else "at least"
    right = f" and at most {_limit(high)}" if high < _UNBOUNDED or high < value < math.inf else ""
    return f"{spelled(value)} is out of range: it must be {left} {_limit(low)}{right}"


def _limit(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.15g}"


def setting(default: T, flags: str, *, group: Group, help: str, aliases: str = "", **more: Any) -> T:
    """Return a dataclass field with this default that people can set; `more` are fields of `Option`."""
    made = Option("", default, help, group=group, flags=tuple(flags.split()), aliases=tuple(aliases.split()), **more)
    return field(default=default, metadata={_DECLARED: made})


def declared(cls: type[Any]) -> tuple[Option, ...]:
    if cls not in _FOUND:
        hints = get_type_hints(cls)
        made = {each.name: each.metadata[_DECLARED] for each in fields(cls) if _DECLARED in each.metadata}
        # int for `int | None`
        types = {name: next(iter(get_args(hints[name])), hints[name]) for name in made}
        _FOUND[cls] = tuple(replace(option, name=name, of_type=types[name]) for name, option in made.items())
    return _FOUND[cls]


def declaration(cls: type[Any], field: str) -> Option:
    return next(each for each in declared(cls) if each.name == field)


def check_declared(holder: Any) -> None:
    for each in declared(type(holder)):
        each.check(getattr(holder, each.name))


def read_options(declared: Sequence[Option], given: Iterable[str], *, of: str, start: str = "-o ") -> dict[str, Value]:
    """Return every declared option's value, those that are `given` as they say: "key=value" each. `of` is what has the
    options, as people type it, and `start` what stands before a key: "--tree dyspec" and "--tree dyspec:16,". Raises
    UsageError for a key or a value that cannot be meant."""
    options = {option.name: option for option in declared}
    values: dict[str, Value] = {name: option.default for name, option in options.items()}
    for word in given:
        name, equals, text = word.partition("=")
        if name not in options or not equals:
            meant = options.get(near_name(name, options), next(iter(options.values()), None))
            bare = "localspec methods" if start == "-o " else start.rstrip(",:")
            hint = f"{start}{meant.name}={spelled(meant.default)}" if meant else bare
            has = f"it has {', '.join(options)}" if options else "it has none"
            raise UsageError(f"{of} has no option {name!r}: {has}", hint=hint)
        try:
            values[name] = options[name].read(text)
        except ValueError:
            hint = f"{start}{name}={spelled(options[name].default)}"
            raise UsageError(f"{start}{word} is out of range: {options[name].range}", hint=hint) from None
    return values
