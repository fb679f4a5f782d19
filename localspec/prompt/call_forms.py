"""The forms in which models write calls of tools: one row for each family, with its marks and its reader.

A reader is given a text and the place behind a mark. It returns the calls that begin there, each a name and arguments,
and the place behind them. It raises ValueError where none stands there. Values in markup have no types, so the tool's
schema decides between a text and JSON.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Tools = Mapping[str, Mapping[str, Any]]  # the JSON schema of the parameters of each tool, by the tool's name
NO_TOOLS: Tools = {}
Called = tuple[str, dict[str, Any]]  # the name of a tool, and the arguments
Reader = Callable[[str, int, Tools], tuple[list[Called], int]]

DEEPEST = 40  # levels of arguments that are not JSON
LONGEST_PYTHON = 50_000  # characters of calls written as Python
JSON = json.JSONDecoder(strict=False)  # small models write line ends in texts as they are
_BETWEEN = re.compile(r"[\s;,]*")
_NAME = re.compile(r"[\w.-]+")
_DEEPSEEK = re.compile(
    r"\s*<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?([\w.-]+)(?:<｜tool▁sep｜>)?\s*(?:```json)?\s*(?=\{)"
)
_KIMI = re.compile(
    r"\s*<\|tool_call_begin\|>\s*(?:functions\.)?([\w.-]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*(?=\{)"
)


@dataclass(frozen=True, slots=True)
class CallForm:
    """How one family writes calls: one of `marks` begins them, `read` reads what follows, `end` closes them.

    `end` is "" where nothing does, and may be missing where an answer was cut. `texts` are further control tokens of
    the family. With `is_code` the marks stand around code as well, which is no failed call. Each of `heads` matches
    what stands from the mark to the arguments of a call, with its name as group 1; those are JSON, or have a markup.
    """

    family: str
    marks: tuple[str, ...]
    end: str
    read: Reader
    texts: tuple[str, ...] = ()
    is_code: bool = False
    heads: tuple[tuple[re.Pattern[str], Markup | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Markup:
    """Arguments between tags: `key` begins a value, `closes` ends it, and `end` ends them all."""

    key: re.Pattern[str]
    closes: re.Pattern[str]
    end: re.Pattern[str]


def json_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read objects with a name and arguments, lists of them, or several with a semicolon, comma or space between."""
    calls: list[Called] = []
    start = after(_BETWEEN, text, at)
    doubled = text.startswith("{{", start)  # as Qwen 2.5's template has it by mistake
    start += doubled
    while text.startswith(("{", "["), start):
        try:
            value, end = JSON.raw_decode(text, start)
            calls += [_called(each) for each in (value if isinstance(value, list) else [value])]
        except (ValueError, RecursionError):
            if calls:
                break
            raise ValueError from None
        at = end + (doubled and text.startswith("}", end))
        start = after(_BETWEEN, text, at)
    if not calls:
        raise ValueError
    return calls, at


def _called(given: Any) -> Called:
    """Return a call of a JSON object, by any of the names that templates give its parts."""
    if not isinstance(given, dict):
        raise ValueError
    name = given.get("name", given.get("tool_name"))
    arguments = given.get("arguments", given.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = JSON.decode(arguments or "{}")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError
    return name, arguments


def mistral_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read a list of objects, or NAME[ARGS]{...} with an id between, as later models write it."""
    named = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?={)").match(text, at)
    if named is None:
        return json_calls(text, at, tools)
    arguments, end = _object(text, named.end())
    return [(named[1], arguments)], end


def hermes_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read what stands in <tool_call>: JSON of Hermes, functions of Qwen3-Coder, keys and values of GLM 4.5."""
    start = after(_BETWEEN, text, at)
    if text.startswith("<function=", start):
        return function_calls(text, start, tools)
    return json_calls(text, start, tools) if text.startswith(("{", "["), start) else glm_calls(text, start, tools)


def glm_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read NAME, then <arg_key>KEY</arg_key><arg_value>VALUE</arg_value> as often as there are arguments."""
    name, at = _name(text, at)
    pair = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.S)
    arguments, at = _pairs(pair, text, at, tools.get(name, {}))
    return [(name, arguments)], at


def function_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read <function=NAME><parameter=KEY>VALUE</parameter></function>, as Qwen3-Coder and Seed write it."""
    return _markup(
        text, at, tools,
        head=re.compile(r"\s*<function=([\w.-]+)>"),
        pair=re.compile(r"\s*<parameter=([^>\n]+)>(.*?)</parameter>(?=\s*(?:<parameter=|</function>|\Z))", re.S),
        end="</function>",
    )  # fmt: skip


def bare_function_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read NAME><parameter=KEY>..., behind a mark that is a part of the form."""
    return function_calls(text, at - len("<function="), tools)


def invoke_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>, as MiniMax M2 writes it."""
    return _markup(
        text, at, tools,
        head=re.compile(r'\s*<invoke name="([\w.-]+)">'),
        pair=re.compile(r'\s*<parameter name="([^"\n]+)">(.*?)</parameter>(?=\s*(?:<parameter |</invoke>|\Z))', re.S),
        end="</invoke>",
    )  # fmt: skip


def _markup(
    text: str, at: int, tools: Tools, *, head: re.Pattern[str], pair: re.Pattern[str], end: str
) -> tuple[list[Called], int]:
    calls: list[Called] = []
    while (begun := head.match(text, at)) is not None:
        name = begun[1]
        arguments, at = _pairs(pair, text, begun.end(), tools.get(name, {}))
        at = _past(end, text, at)
        calls.append((name, arguments))
    if not calls:
        raise ValueError
    return calls, at


def _pairs(pair: re.Pattern[str], text: str, at: int, schema: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Read arguments one after the other; values of texts are taken as they are, others as JSON."""
    arguments: dict[str, Any] = {}
    while (read := pair.match(text, at)) is not None:
        key = read[1].strip()
        arguments[key] = value_of(read[2].removeprefix("\n").removesuffix("\n"), schema.get("properties", {}).get(key))
        at = read.end()
    return arguments, at


def value_of(text: str, schema: Any) -> Any:
    """Return a value of the type that a schema gives it; a text where it names none and the text is no JSON."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds and text != "null"):
        return text
    try:
        return JSON.decode({"True": "true", "False": "false", "None": "null"}.get(text.strip(), text))
    except (ValueError, RecursionError):
        return text


def python_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read [f(a="b", n=3), g()], as Llama 3.2 and 4 and LFM2 write it."""
    end = text.find("<|tool_call_end|>", at)
    end = len(text) if end < 0 else end
    source = text[at:end].strip()
    if not source.startswith("[") or len(source) > LONGEST_PYTHON:
        raise ValueError
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError from None
    if not isinstance(tree, ast.List) or not tree.elts:
        raise ValueError
    return [_python_call(node) for node in tree.elts], end


def _python_call(node: ast.expr) -> Called:
    if not isinstance(node, ast.Call) or node.args or any(each.arg is None for each in node.keywords):
        raise ValueError
    try:
        return ast.unparse(node.func), {str(each.arg): _literal(each.value) for each in node.keywords}
    except (RecursionError, MemoryError):
        raise ValueError from None


def _literal(node: ast.expr) -> Any:
    """Return a literal of Python, or one of JSON's names."""
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[node.id]
    if isinstance(node, ast.List):
        return [_literal(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise ValueError
        return {_literal(key): _literal(each) for key, each in zip(node.keys, node.values, strict=True) if key}
    try:
        return ast.literal_eval(node)
    except TypeError:
        raise ValueError from None


def channel_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read NAME, perhaps further heads of the channel, and its arguments, as gpt-oss writes them."""
    name, at = _name(text, at)
    head = re.compile(r"[^<{]*(?:<\|(?:channel|constrain)\|>[^<{]*)*<\|message\|>").match(text, at)
    if head is None:
        raise ValueError
    arguments, at = _object(text, head.end())
    return [(name, arguments)], at


def deepseek_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read NAME, a separator and arguments; earlier models write `function` first and fence the arguments."""
    return _sectioned(
        text, at,
        head=_DEEPSEEK,
        end=re.compile(r"\s*(?:```)?\s*<｜tool▁call▁end｜>"),
    )  # fmt: skip


def kimi_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read functions.NAME:0, and arguments."""
    return _sectioned(
        text, at,
        head=_KIMI,
        end=re.compile(r"\s*<\|tool_call_end\|>"),
    )  # fmt: skip


def _sectioned(text: str, at: int, *, head: re.Pattern[str], end: re.Pattern[str]) -> tuple[list[Called], int]:
    calls: list[Called] = []
    while (begun := head.match(text, at)) is not None:
        arguments, at = _object(text, begun.end())
        at = after(end, text, at)
        calls.append((begun[1], arguments))
    if not calls:
        raise ValueError
    return calls, at


def gemma_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
    """Read call:NAME{key:VALUE, ...}, whose texts stand between marks, as Gemma 4 and FunctionGemma write it."""
    begun = re.compile(r"\s*call:([\w.-]+)(?={)").match(text, at)
    if begun is None:
        raise ValueError
    quote = next((mark for mark in ('<|"|>', "<escape>") if mark in text), '"')
    arguments, at = _gemma_value(text, begun.end(), quote, 0)
    return [(begun[1], arguments)], at


def _gemma_value(text: str, at: int, quote: str, depth: int) -> tuple[Any, int]:
    if depth > DEEPEST:
        raise ValueError
    if text.startswith(quote, at):
        end = text.index(quote, at + len(quote))
        return text[at + len(quote) : end], end + len(quote)
    if text.startswith(("{", "["), at):
        closes = "}" if text[at] == "{" else "]"
        found: dict[str, Any] = {}
        items: list[Any] = []
        at += 1
        while not text.startswith(closes, at := after(_BETWEEN, text, at)):
            if closes == "}":
                key = re.compile(rf"(?:{re.escape(quote)})?([\w.-]+)(?:{re.escape(quote)})?\s*:\s*").match(text, at)
                if key is None:
                    raise ValueError
                found[key[1]], at = _gemma_value(text, key.end(), quote, depth + 1)
            else:
                value, at = _gemma_value(text, at, quote, depth + 1)
                items.append(value)
        return (found if closes == "}" else items), at + 1
    bare = re.compile(r"[^,}\]\s][^,}\]]*").match(text, at)
    if bare is None:
        raise ValueError
    return value_of(bare[0].strip(), None), bare.end()


def _object(text: str, at: int) -> tuple[dict[str, Any], int]:
    """Read a JSON object."""
    start = after(re.compile(r"\s*"), text, at)
    try:
        value, end = JSON.raw_decode(text, start)
    except RecursionError:
        raise ValueError from None
    if not isinstance(value, dict):
        raise ValueError
    return value, end


def _name(text: str, at: int) -> tuple[str, int]:
    read = _NAME.match(text, at)
    if read is None:
        raise ValueError
    return read[0], read.end()


def after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the place behind what the pattern matches at `at`, `at` where it matches nothing."""
    read = pattern.match(text, at)
    return at if read is None else read.end()


def _past(end: str, text: str, at: int) -> int:
    """Return the place behind `end`, which may stand behind blanks; raises ValueError where more text stands there."""
    start = after(re.compile(r"\s*"), text, at)
    if text.startswith(end, start):
        return start + len(end)
    if start < len(text):
        raise ValueError
    return start


_NAMED = (
    (
        re.compile(
            r'[\s,;\[]*\{{1,2}\s*(?:"(?:type|id|tool_call_id)"\s*:\s*"[^"]*"\s*,\s*)*"(?:tool_)?name"\s*:\s*"([\w.-]+)"\s*,'
            r'\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
        ),
        None,
    ),
)
_FUNCTION = (
    re.compile(r"\s*<function=([\w.-]+)>(?=\s*(?:<parameter=|</function>))"),
    Markup(
        re.compile(r"\s*<parameter=([^>\n]+)>"),
        re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|</function>))"),
        re.compile(r"\s*</function>"),
    ),
)
_BARE_FUNCTION = (re.compile(r"([\w.-]+)>(?=\s*(?:<parameter=|</function>))"), _FUNCTION[1])
_KEYS = (
    re.compile(r"\s*([\w.-]+)(?=\s*<arg_key>)"),
    Markup(
        re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>"),
        re.compile(r"\n?</arg_value>"),
        re.compile(r"\s*(?=</tool_call>)"),
    ),
)
_INVOKE = (
    re.compile(r'\s*<invoke name="([\w.-]+)">(?=\s*(?:<parameter |</invoke>))'),
    Markup(
        re.compile(r'\s*<parameter name="([^"\n]+)">'),
        re.compile(r"\n?</parameter>(?=\s*(?:<parameter |</invoke>))"),
        re.compile(r"\s*</invoke>"),
    ),
)
_ARGS = (re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)"), None)
_MESSAGE = (re.compile(r"([\w.-]+)[^<{]*(?:<\|(?:channel|constrain)\|>[^<{]*)*<\|message\|>\s*(?=\{)"), None)
_COMMENTARY = "<|channel|>commentary to=functions."
FORMS = (
    CallForm(
        "Hermes, Qwen, Qwen3-Coder, GLM 4.5",
        ("<tool_call>",),
        "</tool_call>",
        hermes_calls,
        heads=(*_NAMED, _FUNCTION, _KEYS),
    ),
    CallForm("Seed-OSS", ("<seed:tool_call>",), "</seed:tool_call>", function_calls, heads=(_FUNCTION,)),
    CallForm("MiniMax M2", ("<minimax:tool_call>",), "</minimax:tool_call>", invoke_calls, heads=(_INVOKE,)),
    CallForm("Llama 3", ("<|python_tag|>",), "", json_calls, heads=_NAMED),
    CallForm("LFM2", ("<|tool_call_start|>",), "<|tool_call_end|>", python_calls),
    CallForm("Mistral", ("[TOOL_CALLS]",), "", mistral_calls, ("[ARGS]", "[CALL_ID]"), heads=(*_NAMED, _ARGS)),
    CallForm(
        "gpt-oss",
        (f"<|end|><|start|>assistant{_COMMENTARY}", f"<|start|>assistant{_COMMENTARY}", _COMMENTARY, " to=functions."),
        "<|call|>",
        channel_calls,
        ("<|channel|>", "<|constrain|>", "<|message|>", "<|start|>", "<|end|>"),
        heads=(_MESSAGE,),
    ),
    CallForm("Gemma 4", ("<|tool_call>",), "<tool_call|>", gemma_calls, ('<|"|>',)),
    CallForm("FunctionGemma", ("<start_function_call>",), "<end_function_call>", gemma_calls, ("<escape>",)),
    CallForm(
        "DeepSeek",
        ("<｜tool▁calls▁begin｜>",),
        "<｜tool▁calls▁end｜>",
        deepseek_calls,
        ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
        heads=((_DEEPSEEK, None),),
    ),
    CallForm(
        "Kimi K2",
        ("<|tool_calls_section_begin|>",),
        "<|tool_calls_section_end|>",
        kimi_calls,
        ("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
        heads=((_KIMI, None),),
    ),
    CallForm("Granite, Phi-4", ("<|tool_call|>",), "<|/tool_call|>", json_calls, heads=_NAMED),
    CallForm("Command", ("<|START_ACTION|>",), "<|END_ACTION|>", json_calls, heads=_NAMED),
    CallForm("Qwen3-Coder without its tag", ("<function=",), "", bare_function_calls, heads=(_BARE_FUNCTION,)),
    CallForm("small models under any template", ("<tools>",), "</tools>", json_calls, heads=_NAMED),
    CallForm("small models under any template", ("<function_call>",), "</function_call>", json_calls, heads=_NAMED),
    CallForm("small models under any template", ("```json", "```\n"), "```", json_calls, is_code=True, heads=_NAMED),
)
BARE = CallForm("Llama 3 without its mark", (), "", json_calls, heads=_NAMED)
# Control tokens of calls, which are part of an answer where tools were offered.
SHOWN = tuple(
    dict.fromkeys(text for form in FORMS for text in (*form.marks, form.end, *form.texts) if text[:1] in "<[")
)


def call_schema(name: str, parameters: Mapping[str, Any], arguments: str = "arguments", key: str = "name") -> Any:
    """Return the schema of a call as JSON. Its own name lets a `$ref` of the parameters mean a place in them."""
    inner = {"$id": f"tool:{name.encode().hex()}", **parameters}
    properties = {key: {"const": name}, arguments: inner}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
