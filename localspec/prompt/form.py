"""The form that a request gives its answer, compiled to llguidance's grammar: no model is needed to refuse one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError
from localspec.settings.request import FORMS, Request
from localspec.settings.structure import DEEPEST, levels_of

if TYPE_CHECKING:
    import llguidance
    from llguidance._lib import JsonCompileOptions

LOOKED_INTO = 20_000  # characters of a schema at most in which the part that is wrong is looked for
LOOKS = 200  # parts that are tried
MOST_LEVELS = 1500  # of a schema and all parts that it refers to: llguidance overflows the stack of 8 MiB from 2300 on
MOST_ROOTS = 256  # parts with a name of their own, in which a reference is looked for
FURTHEST = 2**53  # from 0: beyond it llguidance rounds the bounds of numbers
LARGEST = 2**63 - 1  # its largest integer; at the smallest one it overflows the stack
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
VALUES = {"enum", "const", "default", "examples"}  # of what is described, and no schemas
NARROWING = {"enum", "const", "multipleOf", "allOf", "anyOf", "oneOf", "$ref"}  # with bounds, too much for llguidance
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # of schemas by other names


# White space between two parts of JSON, as models write it and llama.cpp's converter allows it. Small models loop where
# more is allowed.
SPACES = r"( |\n{1,2}[ \t]{0,20})"
OPTIONS = "x-guidance"  # a keyword of a schema, which holds llguidance's own options
COMPACT: JsonCompileOptions = {"whitespace_flexible": False}
SPACED: JsonCompileOptions = {"whitespace_flexible": True, "whitespace_pattern": SPACES}
SMALLEST = 1e-9  # the step of numbers that have no other: so many digits behind the point
COUNTS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"}


def form_of(request: Request) -> tuple[str, str] | None:
    form = next(((name, text) for name in FORMS if (text := getattr(request, name)) is not None), None)
    if form is None or form[0] != "schema" or not request.schema_compact:
        return form
    schema = json.loads(form[1])
    return "schema", json.dumps({**({} if schema is True else schema), OPTIONS: COMPACT}) if schema else form[1]


def compiled(form: tuple[str, str]) -> str:
    """Return llguidance's grammar of a form; raises UsageError for one that cannot be kept."""
    name, text = form
    grammar, wrong = _read(name, text)
    if wrong:
        raise refused(name, wrong, text)
    return grammar


def _read(name: str, text: str) -> tuple[str, str]:
    from llguidance import LLMatcher, gbnf_to_lark, grammar_from  # late: few requests need them

    if wrong := next(filter(None, map(_overflow, _schemas(name, text))), ""):
        return "", wrong
    try:
        if name == "schema":
            text = "{}" if text == "true" else text  # both mean any value, and llguidance takes options of an object
            options = SPACED
            with suppress(ValueError, RecursionError):  # it says what is wrong
                schema = json.loads(text)
                options = COMPACT if isinstance(schema, dict) and schema.pop(OPTIONS, None) == COMPACT else SPACED
                text = json.dumps(prepared(schema))
            grammar = LLMatcher.grammar_from_json_schema(text, overrides=options)
        elif name == "regex":
            grammar = LLMatcher.grammar_from_regex(text)
        elif name == "choices":
            lines = text.splitlines()
            grammar = grammar_from("lark", "start: CHOICE\nCHOICE: " + " | ".join(map(json.dumps, lines)))
        else:
            grammar = grammar_from("lark", gbnf_to_lark.any_to_lark(_spelled_anew(text) if "::=" in text else text))
    except Exception as error:  # the reader of GBNF raises no narrower one
        return "", str(error) or "it cannot be read"
    is_wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits())
    return grammar, messages[0] if is_wrong else ""


# Behind what is repeated, the end of a group that is repeated too; literals, classes and remarks are passed over.
_REPEATED = re.compile(r'"(?:\\.|[^"\\\n])*"|\[(?:\\.|[^\]\\\n])*\]|#[^\n]*|([*+?})])\s*\)(?=\s*[*+?{])')


def _spelled_anew(text: str) -> str:
    """Return GBNF as llguidance's reader understands it, with the same meaning. The reader drops the zeros in front of
    a character's number, so characters stand there themselves. It also drops the brackets around one part that is
    repeated, so an empty part stands beside that."""
    text = _REPEATED.sub(lambda match: f'{match[1]} "")' if match[1] else match[0], text)

    def spelled(match: re.Match[str]) -> str:
        code = int(match[2] or match[3], 16)
        if code < 0x80:  # it may be a sign of the grammar
            return f"{match[1]}\\x{code:02x}"
        is_none = 0xD800 <= code < 0xE000 or code > 0x10FFFF
        return match[0] if is_none else match[1] + chr(code)

    return re.sub(r"(?<!\\)((?:\\\\)*)\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))", spelled, text)


def _schemas(name: str, text: str) -> Iterator[Any]:
    texts = [text] if name == "schema" else re.split("%json", text)[1:] if name == "grammar" else []
    for each in texts:
        with suppress(ValueError, RecursionError):
            schema, _ = json.JSONDecoder().raw_decode(each.lstrip())
            if levels_of(schema) <= DEEPEST:
                yield schema


def _overflow(schema: Any) -> str:
    """Return what in a schema would end the process that reads it, or would be rounded; "" for nothing. llguidance
    reads the part that a reference names within the part that refers to it."""
    parts = list(_below(schema))
    for part in parts:
        for key in BOUNDS:
            bound = part.get(key)
            if isinstance(bound, int | float) and not _is_kept(bound):
                return f"{key} {bound} is too far from 0"
    roots = [schema, *(part for part in parts if "$id" in part or "id" in part)]
    if len(roots) > MOST_ROOTS:
        return f"more than {MOST_ROOTS} of its parts have an $id"
    levels, known = levels_of(schema), dict[int, int]()  # of each part that is named, counted once
    for ref in {part["$ref"] for part in parts if isinstance(part.get("$ref"), str)}:
        named = [_named(root, ref) for root in roots]
        known |= {id(each): levels_of(each) for each in named if id(each) not in known}
        levels += max(known[id(each)] for each in named)
        if levels > MOST_LEVELS:
            return f"the parts that it refers to have more than {MOST_LEVELS} levels together"
    return ""


def _is_kept(bound: float) -> bool:
    return abs(bound) <= FURTHEST or bound >= LARGEST or (bound >= -LARGEST and int(float(bound)) == bound)


def prepared(schema: Any, *, is_closed: bool | None = None) -> Any:
    """Return a schema as it is kept.

    Integers are from -2^53 to 2^53 where it leaves an end open, and other numbers have nine digits behind the point:
    small models go on for ever. Readers of JSON hold such integers exactly. With `is_closed` an object has no other
    properties than those that are named, unless the schema says so: models invent them. None: it is closed where no
    parts are joined, since closed parts would exclude each other. Unknown formats say nothing.
    """
    if is_closed is None:
        joins = (part.get("allOf") for part in _below(schema))
        is_closed = not any(isinstance(parts, list) and len(parts) > 1 for parts in joins)
    if isinstance(schema, list):
        return [prepared(part, is_closed=is_closed) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: prepared(each, is_closed=is_closed) for name, each in part.items()}
        if key in MAPS and isinstance(part, dict)
        else part
        if key in VALUES or key == "allOf"  # parts that others narrow
        else int(part)
        if key in COUNTS and isinstance(part, float) and part.is_integer()
        else prepared(part, is_closed=is_closed)
        for key, part in schema.items()
    }
    if isinstance(made.get("format"), str) and made["format"] not in FORMATS:
        del made["format"]
    is_narrowed = bool(NARROWING & schema.keys())
    if is_closed and "properties" in made and not is_narrowed:
        made.setdefault("additionalProperties", False)
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    bounds = [schema[key] for key in BOUNDS if key in schema]
    is_near = all(isinstance(bound, int | float) and abs(bound) < FURTHEST for bound in bounds)
    if ("integer" in kinds or "number" in kinds) and is_near and not is_narrowed:
        for end, bound in (("minimum", -FURTHEST), ("maximum", FURTHEST)):
            if end not in schema and f"exclusive{end.capitalize()}" not in schema:
                made[end] = bound
        if "number" in kinds:
            made["multipleOf"] = SMALLEST
    return made


def _below(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _below(each)


def _named(root: Any, ref: str) -> Any:
    named = root
    for key in [] if "%" in ref else ref.partition("#")[2].split("/")[1:]:
        if isinstance(named, list):
            named = named[int(key)] if key.isdecimal() and int(key) < len(named) else None
        else:
            named = named.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(named, dict) else None
    return named


TYPES = "string, integer, number, boolean, array, object or null"
EXAMPLES = {  # of forms that can be kept, by option
    "schema": """--schema '{"type": "object"}'""",
    "regex": "--regex '[a-z]+'",
    "grammar": """--grammar 'root ::= "yes" | "no"'""",
    "choices": "--choices yes,no",
}


def limits() -> llguidance.LLParserLimits:
    from llguidance import LLParserLimits

    return LLParserLimits(verbose_errors=False)


def refused(name: str, message: str, text: str) -> UsageError:
    line = " ".join(_told(message.replace("<non-verbose/>", "")).split())[:200]
    path = ""
    with suppress(ValueError, RecursionError):  # no JSON, or too deep: no part of it is named
        path = _path(json.loads(text), message) if name == "schema" and len(text) <= LOOKED_INTO else ""
    if name == "schema" and line.startswith("Unimplemented keys: "):
        key = json.loads(line.removeprefix("Unimplemented keys: "))[0]
        return UsageError(f"--schema: {path}/{key} is a keyword that cannot be kept", hint="a schema without it")
    hint = TYPES if line.startswith("Invalid type") else EXAMPLES[name]
    where = f" at {path}" if path else ""
    return UsageError(f"--{name} cannot be kept{where}: {line}", hint=hint)


def _told(message: str) -> str:
    regex = re.search(r"regex parse error:\n {4}(.*)\n {4}( *)(\^+)\nerror: (.*)", message)
    if regex:
        pattern, before, marks, what = regex.groups()
        return f"{what}, at {pattern[len(before) : len(before) + len(marks)]!r} in {pattern}"
    if message.startswith("oneOf constraints"):
        return "the parts of oneOf overlap, or may; anyOf can be kept"
    pointer = re.match(r"(?:Pointer|Resource) '(.*)' (?:does not exist|is not present)", message)
    if pointer:
        return f"$ref {pointer[1]} is not in the schema itself, and nothing is looked up elsewhere"
    first = message.split("\n")[0].removesuffix(" '").rpartition("(in regex): ")[2]
    if first.startswith("NoExtensionBias"):
        return "no text has it"
    return re.sub(r"^(?:at )?(\d+)\((\d+)\): ", r"line \1, character \2: ", first)


def _path(schema: Any, message: str) -> str:
    if not isinstance(schema, dict):
        return ""
    path, left = "", LOOKS
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    while True:
        for name, part in _parts(schema):
            left -= 1
            if left < 0:
                return path
            if _read("schema", json.dumps({**shared, **part}))[1] == message:
                path, schema = f"{path}/{name}", part
                break
        else:
            return path


def _parts(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in schema.items():
        if key in VALUES:
            continue
        if isinstance(value, dict) and key not in MAPS:
            yield key, value
        elif isinstance(value, (dict, list)):
            named = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{key}/{name}", part) for name, part in named if isinstance(part, dict))
