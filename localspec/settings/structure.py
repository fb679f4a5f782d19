"""What people type for the form of an answer: a JSON schema or its short form, a regex, a grammar, choices.

Each text is read to the form that travels: JSON, or the text of the file it names. Whether the form can be kept is
judged where it is compiled (`prompt.grammar`).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from localspec.errors import NotFoundError, UsageError
from localspec.settings.folders import typed_path
from localspec.settings.text_files import did_you_mean

MAX_BYTES = 1_000_000  # bytes of a schema or choices
LONGEST_GRAMMAR = 250_000  # bytes of a grammar: reading one takes seconds for each megabyte
# Characters of a form that a server reads: rules of a grammar that name one another take time by their square, and a
# long regex takes minutes.
LONGEST_FORM = {"schema": 250_000, "regex": 4096, "grammar": 32_768, "choices": 250_000}
DEEPEST = 120  # levels of a schema: llguidance reads no more than 124
BOUNDS = {"array": "maxItems", "string": "maxLength", "object": "additionalProperties"}  # keywords that end a value
CLOSED = {"enum", "const", "pattern", "format", "$ref", "maxProperties"}  # what bounds a value in another way
NAMED = 3  # values without end that a warning names
_TYPES = {
    "str": "string", "string": "string", "int": "integer", "integer": "integer",
    "float": "number", "number": "number", "bool": "boolean", "boolean": "boolean",
}  # fmt: skip
SHORT_FORM = "name, age int, tags[], items[name, qty int]"
_FIELD = re.compile(
    r"(?P<name>[^\s:\[\]{}]+)(?:\s+(?P<kind>\w+))?\s*(?P<inner>\[.*\]|\{.*\})?(?:\s*:\s*(?P<about>.+))?", re.DOTALL
)


def schema_text(text: str) -> str | None:
    """Return a JSON schema as JSON, from a file, JSON or the short form `name, age int, tags[]`."""
    if text == "none":
        return None
    text = _read("--schema", text)
    if text.lstrip()[:1] in ("{", "[") or text.strip() in ("true", "false"):
        return json_schema(text)
    if "," not in text and re.search(r"[/\\]|\.\w+$", text.strip()):
        hint = did_you_mean(text, "--schema FILE, JSON, or: name, age int, tags[]")
        raise NotFoundError(f"--schema: there is no file {text}", hint=hint)
    return json.dumps(_short(text), ensure_ascii=False)


def field_names(schema: str | None) -> list[str]:
    parsed = None if schema is None else json.loads(schema)
    properties = parsed.get("properties") if isinstance(parsed, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def grammar_text(text: str) -> str | None:
    if text == "none":
        return None
    text = _read("--grammar", text, LONGEST_GRAMMAR)
    if "\n" not in text and ":" not in text:
        hint = did_you_mean(text, '--grammar FILE, or: root ::= "yes" | "no"')
        raise NotFoundError(f"--grammar: there is no file {text}", hint=hint)
    return text


def regex_text(text: str) -> str | None:
    if not text:
        raise UsageError("--regex is empty", hint="--regex '[a-z]+'")
    return None if text == "none" else text


def choices_text(text: str) -> str | None:
    if text == "none":
        return None
    typed, text = text, _read("--choices", text)
    lines = text.splitlines() if "\n" in text else text.split(",")
    choices = tuple(dict.fromkeys(filter(None, (line.strip() for line in lines))))
    if choices == (typed,) and Path(typed).suffix[1:2].isalpha():  # a file's name, and no number
        hint = did_you_mean(typed, "--choices FILE, or a,b,c")
        raise NotFoundError(f"--choices: there is no file {typed}", hint=hint)
    if len(choices) < 2:
        raise UsageError(f"--choices {text.strip()!r} leaves nothing to choose", hint="--choices a,b,c, or a file")
    return "\n".join(choices) + "\n"


def _read(flag: str, text: str, longest: int = MAX_BYTES) -> str:
    try:
        path = typed_path(text.removeprefix("@"))
        is_file = path.is_file()
    except (OSError, ValueError):  # such as a name that is too long
        is_file = False
    if not is_file:
        if text.startswith("@"):
            hint = did_you_mean(text[1:], f"{flag} FILE")
            raise NotFoundError(f"{flag}: there is no file {text[1:]}", hint=hint)
        raw = text.encode("utf-8", "replace")
    else:
        try:
            with path.open("rb") as file:
                raw = file.read(longest + 1)
        except OSError as error:
            raise NotFoundError(f"{flag} {text} cannot be read: {error.strerror}", hint=f"{flag} FILE") from None
    if len(raw) > longest:
        raise UsageError(f"{flag} is longer than {longest} bytes", hint="a smaller one")
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{flag} {text} is not UTF-8 text", hint=f"{flag} FILE") from None
    if not content.strip():
        raise UsageError(f"{flag} is empty", hint=f"{flag} FILE")
    return content


def json_schema(text: str) -> str:
    """Return a JSON schema as JSON; raises UsageError for what is none, or is nested too deeply."""
    try:
        schema = json.loads(text)
        levels = levels_of(schema)
    except RecursionError:
        levels = DEEPEST + 1
    except ValueError as error:
        raise UsageError(f"--schema is not JSON: {error}", hint="--schema FILE, JSON, or: name, age int") from None
    if levels > DEEPEST:
        raise UsageError(f"--schema has more than {DEEPEST} levels", hint="a flatter schema")
    if not isinstance(schema, dict | bool):
        raise UsageError("--schema is JSON, but no schema: that is an object", hint='--schema \'{"type": "object"}\'')
    return json.dumps(schema, ensure_ascii=False)


def require_short(name: str, text: str) -> None:
    """Raise UsageError where the text of a form that came to a server is too long to be read; `name` is a form's."""
    if name in LONGEST_FORM and len(text) > LONGEST_FORM[name]:
        message = f"--{name} has more than {LONGEST_FORM[name]} characters, the most that a server reads"
        raise UsageError(message, hint="a shorter one")


def levels_of(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(levels_of, below), default=0)


def unbounded(schema: str) -> str:
    """Return what in a schema has no end, as paths with the keyword that would bound them; "" for nothing."""
    places = [f"{path or '/'} ({keyword})" for path, keyword in _without_end(json.loads(schema), "")]
    return ", ".join([*places[:NAMED], "..."] if len(places) > NAMED else places)


def _without_end(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(schema, list):
        for n, below in enumerate(schema):
            yield from _without_end(below, f"{path}/{n}")
    if not isinstance(schema, dict):
        return
    keyword = BOUNDS.get(str(schema.get("type")))
    is_open = not CLOSED & schema.keys() and schema.get("items") is not False
    is_open &= "properties" not in schema or "additionalProperties" in schema  # what is named is all then
    if keyword is not None and is_open and schema.get(keyword, True) is True:
        yield path, keyword
    for name in ("properties", "$defs", "definitions"):
        held = schema.get(name)
        for key, below in held.items() if isinstance(held, dict) else ():
            yield from _without_end(below, f"{path}/{name}/{key}")
    for name in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"):
        yield from _without_end(schema.get(name), f"{path}/{name}")


def _short(text: str) -> dict[str, Any]:
    """Return the schema of an object with the fields that the short form names, all of them required. A field may hold
    objects: `items[name, qty int]` is a list of them, `seller{name, city}` is one."""
    properties: dict[str, Any] = {}
    for part in _parts(text):
        match = _FIELD.fullmatch(part)
        if match is None:
            _refuse(part)
        field = _field(match, part)
        if match["about"]:
            field["description"] = match["about"]
        if match["name"] in properties:
            raise UsageError(f"--schema names the field {match['name']!r} twice", hint=SHORT_FORM)
        properties[match["name"]] = field
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _parts(text: str) -> Iterator[str]:
    """Yield the fields of a short form, which commas or lines part, but not those within brackets."""
    depth, part, ends = 0, "", "\n" if "\n" in text.strip() else ","
    for sign in text:
        depth += (sign in "[{") - (sign in "]}")
        if depth < 0 or depth > DEEPEST // 4:
            break
        if sign == ends and not depth:
            yield from filter(None, [part.strip()])
            part = ""
        else:
            part += sign
    if depth:
        raise UsageError(f"--schema: the brackets of {part.strip()!r} do not match", hint=SHORT_FORM)
    yield from filter(None, [part.strip()])


def _field(match: re.Match[str], part: str) -> dict[str, Any]:
    inner = match["inner"]
    if inner is not None and inner[1:-1].strip():
        if match["kind"]:
            _refuse(part)
        made = _short(inner[1:-1])
        return {"type": "array", "items": made} if inner[0] == "[" else made
    kind = _TYPES.get(match["kind"] or "str")
    if kind is None or inner == "{}":
        _refuse(part)
    return {"type": "array", "items": {"type": kind}} if inner is not None else {"type": kind}


def _refuse(part: str) -> NoReturn:
    raise UsageError(f"--schema: {part!r} is not a name and str, int, float or bool", hint=SHORT_FORM)
