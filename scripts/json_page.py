"""docs/json.md: the fields of `run --json` and `run --events`, from localspec/ui/json_fields.py and the settings."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any, Union

from localspec.settings.declaration import declared
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.ui.json_fields import LINES, ErrorFields, LineFields, ResultFields
from localspec.ui.result import UNTOLD

MADE = "Made by `scripts/docs.py` from the program; do not edit."
LEAD = """`localspec run --json` writes one object when the answer has ended. `--events` writes a line of JSON for
everything that happens. Both are ASCII. Readers are to ignore fields and lines that they do not know. A field is null
where nothing is known. Times are milliseconds by the wall clock. [Figures](figures.md) defines the figures, and
[the glossary](glossary.md) explains the words."""
EVENTS = """The first line is `start`, and there is one. The last is `end` or `error`, and there is one. The texts of
all `step` and the `tail` of `end` make the answer."""
PARAMS = """The settings of the run under the names of their options, as they were decided. The line `start` has them
as they were asked, so there `auto` is still `auto`. Infinite numbers are text, as in `"-inf"`."""
UNDECLARED = {
    "raw": ("boolean", "the prompt went to the model as it was"),
    "is_seeded": ("boolean", "the seed was given, not drawn; not in `start`"),
    "is_lossless": ("boolean", "the text has the target's distribution; not in `start`"),
}
NAMES = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "boolean",
    dict: "object",
    tuple: "list",
    types.NoneType: "null",
    Any: "any",
}


def page() -> str:
    """Return the whole page."""
    parts = [f"# JSON\n\n{MADE}\n\n{LEAD}\n", "## `--json`\n", *section(ResultFields, "###", seen := set[type]())]
    parts += ["### params\n", f"{PARAMS}\n", table(params())]
    parts += [
        "### error\n",
        *section(ErrorFields, "", seen),
        "## `--events`\n",
        f"{EVENTS}\n",
        *section(LineFields, "", seen),
    ]
    for name, kind in LINES.items():
        parts += [f"### `{name}`\n", *section(kind, "####", seen)]
    return "\n".join(parts)


def section(kind: type, heading: str, seen: set[type]) -> Iterator[str]:
    """Yield a type's sentence and its table, then those of the types in it that were not shown before."""
    seen.add(kind)
    yield f"{inspect.getdoc(kind)}\n"
    yield table((name, spelled(each), meaning) for name, each, meaning in fields(kind))
    for name, each, _ in fields(kind):
        for inner in held(each):
            if inner not in seen and inner is not ErrorFields:
                yield f"{heading} {name}\n"
                yield from section(inner, heading, seen)


def fields(kind: type) -> Iterator[tuple[str, Any, str]]:
    """Yield name, type and meaning of a type's fields."""
    for name, each in typing.get_type_hints(kind, include_extras=True).items():
        if typing.get_origin(each) is typing.NotRequired:
            (each,) = typing.get_args(each)
        inner, meaning = typing.get_args(each)
        yield name, inner, meaning


def held(kind: Any) -> list[type]:
    """Return the types with fields in a type."""
    if typing.is_typeddict(kind):
        return [kind]
    return [inner for each in typing.get_args(kind) for inner in held(each)]


def spelled(kind: Any) -> str:
    """Return a type in JSON's words."""
    if typing.get_origin(kind) in (types.UnionType, Union):
        words = (spelled(each) for each in typing.get_args(kind))
        return " or ".join(dict.fromkeys(words))
    if typing.get_origin(kind) is list:
        return f"list of {spelled(typing.get_args(kind)[0])}"
    if typing.is_typeddict(kind):
        return "object"
    return NAMES[typing.get_origin(kind) or kind]


def params() -> Iterator[tuple[str, str, str]]:
    """Yield the settings: those that are declared with the help of their options, the others by hand."""
    yield from ((name, *told) for name, told in UNDECLARED.items())
    for holder in (Request, LoadSettings, Sampling, Speculation):
        hints = typing.get_type_hints(holder)
        for one in declared(holder):
            is_asked = one.name in ("max_tokens", "stop", "template", "template_args", "think")
            if is_asked if holder is Request else one.name not in UNTOLD:
                yield one.name, spelled(hints[one.name]), f"`--{one.key}`: {one.help}"


def table(rows: Any) -> str:
    """Return a table of fields."""
    lines = (f"| `{name}` | {kind} | {cell(meaning)} |" for name, kind, meaning in rows)
    return "\n".join(["| field | type | |", "|---|---|---|", *lines]) + "\n"


def cell(text: str) -> str:
    """Return a text for a cell."""
    return text.replace("|", "\\|")
