"""The form that a request gives its answer, compiled to llguidance's grammar: no model is needed to refuse one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError
from localspec.settings.request import FORMS, Request

if TYPE_CHECKING:
    import llguidance


def form_of(request: Request) -> tuple[str, str] | None:
    """Return the name of the setting that gives the answer a form, and its text; None where nothing does."""
    return next(((name, text) for name in FORMS if (text := getattr(request, name)) is not None), None)


def compiled(form: tuple[str, str]) -> str:
    """Return llguidance's grammar of a form; raises UsageError for one that cannot be kept."""
    from llguidance import LLMatcher, gbnf_to_lark, grammar_from  # late: few requests need them

    name, text = form
    try:
        if name == "schema":
            # Free white space is where small models loop.
            grammar = LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_flexible": False})
        elif name == "regex":
            grammar = LLMatcher.grammar_from_regex(text)
        elif name == "choices":
            lines = text.splitlines()
            grammar = grammar_from("lark", "start: CHOICE\nCHOICE: " + " | ".join(map(json.dumps, lines)))
        else:
            grammar = grammar_from("lark", gbnf_to_lark.any_to_lark(text))
    except Exception as error:  # the reader of GBNF raises no narrower one
        raise refused(name, str(error), text) from None
    is_wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits())
    if is_wrong:
        raise refused(name, messages[0], text)
    return grammar


def limits() -> llguidance.LLParserLimits:
    """Return the limits of a grammar: those of llguidance, without its grammar in each error."""
    from llguidance import LLParserLimits

    return LLParserLimits(verbose_errors=False)


def refused(name: str, message: str, text: str) -> UsageError:
    """Return the error of a form, as one line; that of an unsupported keyword names its path in the schema."""
    line = " ".join(_told(message.replace("<non-verbose/>", "")).split())[:200]
    if name == "schema" and line.startswith("Unimplemented keys: "):
        keys = json.loads(line.removeprefix("Unimplemented keys: "))
        where = _path(json.loads(text), keys[0]) or keys[0]
        return UsageError(f"--schema: {where} is a keyword that cannot be kept", hint="a schema without it")
    return UsageError(f"--{name} cannot be kept: {line}", hint=f"localspec run --help, --{name}")


def _told(message: str) -> str:
    """Return what is wrong, of a message that may show the pattern or the grammar below it."""
    regex = re.search(r"regex parse error:\n {4}(.*)\n {4}( *)(\^+)\nerror: (.*)", message)
    if regex:
        pattern, before, marks, what = regex.groups()
        return f"{what}, at {pattern[len(before) : len(before) + len(marks)]!r} in {pattern}"
    pointer = re.match(r"(?:Pointer|Resource) '(.*)' (?:does not exist|is not present)", message)
    if pointer:
        return f"$ref {pointer[1]} is not in the schema itself, and nothing is looked up elsewhere"
    first = message.split("\n")[0].removesuffix(" '").rpartition("(in regex): ")[2]
    if first.startswith("NoExtensionBias"):
        return "no text has it"
    return re.sub(r"^(?:at )?(\d+)\((\d+)\): ", r"line \1, character \2: ", first)


def _path(schema: Any, key: str, path: str = "") -> str:
    """Return the path of the first `key` in a schema, "" without one."""
    if isinstance(schema, dict):
        if key in schema and not path.endswith(("/properties", "/$defs", "/definitions")):
            return f"{path}/{key}"
        return next(filter(None, (_path(below, key, f"{path}/{name}") for name, below in schema.items())), "")
    if isinstance(schema, list):
        return next(filter(None, (_path(below, key, f"{path}/{n}") for n, below in enumerate(schema))), "")
    return ""
