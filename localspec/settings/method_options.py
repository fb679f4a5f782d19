"""Options of methods (`-o key=value`), trees and rules (`name:key=value,...`).

They are declared once, and read, checked and listed in the help from there.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.errors import UsageError

Value = bool | int | float | str
_DIGITS = 18  # more of them are out of any range too, and thousands are no number to Python


def whole(text: str) -> int | None:
    """Return the number that `text` writes in plain digits, None for anything else."""
    return int(text[:_DIGITS]) if text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its type is that of its default, numbers lie within `low`..`high`, texts are one of `choices`."""

    name: str
    default: Value
    help: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """Return what values are allowed, for people."""
        if self.choices:
            return ", ".join(self.choices)
        if isinstance(self.default, bool):
            return "on or off"
        if isinstance(self.default, str):
            return "text"
        low = "" if self.low == -math.inf else f"from {self.low:g}"
        high = "" if self.high == math.inf else f"to {self.high:g}"
        return f"{low} {high}".strip() or "any number"

    @property
    def spelling(self) -> str:
        """Return the default as people type it."""
        return ("off", "on")[self.default] if isinstance(self.default, bool) else str(self.default)

    def read(self, text: str) -> Value:
        """Return the value that `text` spells; raises ValueError for one that is not in `range`."""
        value = self._parse(text)
        in_range = isinstance(value, str | bool) or (
            self.low <= value <= self.high and value not in (math.inf, -math.inf)
        )
        if not in_range or (self.choices and value not in self.choices):
            raise ValueError
        return value

    def _parse(self, text: str) -> Value:
        if isinstance(self.default, bool):
            words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
            if text.lower() not in words:
                raise ValueError
            return words[text.lower()]
        if isinstance(self.default, str):
            return text
        return int(text) if isinstance(self.default, int) else float(text)


def read_options(declared: Sequence[Option], given: Iterable[str], *, of: str, start: str = "-o ") -> dict[str, Value]:
    """Return every declared option's value, those that are `given` as they say: "key=value" each.

    `of` is what has the options, as people type it, and `start` what stands before a key: "--tree dyspec" and
    "--tree dyspec:16,". Raises UsageError for a key or a value that cannot be meant.
    """
    options = {option.name: option for option in declared}
    values: dict[str, Value] = {name: option.default for name, option in options.items()}
    for word in given:
        name, equals, text = word.partition("=")
        if name not in options or not equals:
            near = difflib.get_close_matches(name, options, n=1)
            meant = options.get(near[0]) if near else next(iter(options.values()), None)
            bare = "localspec methods" if start == "-o " else start.rstrip(",:")
            hint = f"{start}{meant.name}={meant.spelling}" if meant else bare
            has = f"it has {', '.join(options)}" if options else "it has none"
            raise UsageError(f"{of} has no option {name!r}: {has}", hint=hint)
        try:
            values[name] = options[name].read(text)
        except ValueError:
            hint = f"{start}{name}={options[name].spelling}"
            raise UsageError(f"{start}{word} is out of range: {options[name].range}", hint=hint) from None
    return values
