"""The forms in which models write calls of tools: one row for each family, with its marks and heads.

Behind a head stand arguments, as JSON or in markup. Values in markup have no types, so the tool's schema decides
between a text and JSON. Calls in other forms have a reader. It is given a text and the place behind a mark. It returns
the calls that begin there, each a name and arguments, and the place behind them, or raises ValueError.
"""

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


def json_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
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
    if not isinstance(given, dict):
        raise ValueError
    name = given.get("name", given.get("tool_name"))
    arguments = given.get("arguments", given.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = JSON.decode(arguments or "{}")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError
    return name, arguments


def value_of(text: str, schema: Any) -> Any:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds and text != "null"):
        return text
    try:
        return JSON.decode({"True": "true", "False": "false", "None": "null"}.get(text.strip(), text))
    except (ValueError, RecursionError):
        return text


def python_calls(text: str, at: int, tools: Tools) -> tuple[list[Called], int]:
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
        members: dict[str, Any] = {}
        items: list[Any] = []
        at += 1
        while not text.startswith(closes, at := after(_BETWEEN, text, at)):
            if closes == "}":
                key = re.compile(rf"(?:{re.escape(quote)})?([\w.-]+)(?:{re.escape(quote)})?\s*:\s*").match(text, at)
                if key is None:
                    raise ValueError
                members[key[1]], at = _gemma_value(text, key.end(), quote, depth + 1)
            else:
                value, at = _gemma_value(text, at, quote, depth + 1)
                items.append(value)
        return (members if closes == "}" else items), at + 1
    bare = re.compile(r"[^,}\]\s][^,}\]]*").match(text, at)
    if bare is None:
        raise ValueError
    return value_of(bare[0].strip(), None), bare.end()


def after(pattern: re.Pattern[str], text: str, at: int) -> int:
    read = pattern.match(text, at)
    return at if read is None else read.end()


@dataclass(frozen=True, slots=True)
class Markup:
    """Arguments between tags: `key` begins a value, `closes` ends it, and `end` ends them all."""

    key: re.Pattern[str]
    closes: re.Pattern[str]
    end: re.Pattern[str]


Head = tuple[re.Pattern[str], Markup | None]  # what stands before arguments, with the tool's name, and their markup


def _json(pattern: str) -> Head:
    return re.compile(rf"\s*{pattern}\s*(?=\{{)"), None


def _tags(head: str, key: str, tail: str, following: str, end: str) -> Head:
    """Return the head of arguments in markup. `following` begins a further value, and so ends the one before."""
    more = rf"(?=\s*(?:{following}|{end}))"
    markup = Markup(re.compile(rf"\s*{key}"), re.compile(rf"\n?{tail}{more}"), re.compile(rf"\s*{end}"))
    return re.compile(rf"\s*{head}{more}"), markup


_NAME = r"([\w.-]+)"
_PARAMETER = (r"<parameter=([^>\n]+)>", "</parameter>", "<parameter=", "</function>")
_FUNCTION = _tags(rf"<function={_NAME}>", *_PARAMETER)
_BARE_FUNCTION = _tags(rf"{_NAME}>", *_PARAMETER)
_INVOKE = _tags(
    rf'<invoke name="{_NAME}">', r'<parameter name="([^"\n]+)">', "</parameter>", "<parameter ", "</invoke>"
)
_KEYS = _tags(_NAME, r"<arg_key>([^<]*)</arg_key>\s*<arg_value>", "</arg_value>", "<arg_key>", "(?=</tool_call>)")
_OBJECT = _json(
    r'[\s,;\[]*\{{1,2}\s*(?:"(?:type|id|tool_call_id)"\s*:\s*"[^"]*"\s*,\s*)*"(?:tool_)?name"\s*:\s*"([\w.-]+)"\s*,'
    r'\s*"(?:arguments|parameters)"\s*:'
)
_ARGS = _json(rf"{_NAME}(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?")
_WORDS = r"[^<{]{0,80}"
_MESSAGE = _json(rf"{_NAME}{_WORDS}(?:<\|(?:channel|constrain)\|>{_WORDS})*<\|message\|>")
_DEEPSEEK = _json(rf"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?{_NAME}(?:<｜tool▁sep｜>)?\s*(?:```json)?")
_KIMI = _json(rf"<\|tool_call_begin\|>\s*(?:functions\.)?{_NAME}(?::\d+)?\s*<\|tool_call_argument_begin\|>")


@dataclass(frozen=True, slots=True)
class CallForm:
    """How one family writes calls: one of `marks` begins them, `end` closes them.

    `end` is "" where nothing does, and may be missing where an answer was cut. `texts` are further control tokens of
    the family. Calls begin with one of `heads`; `read` reads those that have none of them. With `is_code` the marks
    stand around code as well, which is no failed call.
    """

    family: str
    marks: tuple[str, ...]
    end: str
    heads: tuple[Head, ...] = (_OBJECT,)
    texts: tuple[str, ...] = ()
    read: Reader = json_calls
    is_code: bool = False

    @property
    def is_json(self) -> bool:
        return self.heads == (_OBJECT,)


_COMMENTARY = "<|channel|>commentary to=functions."
FORMS = (
    CallForm("Hermes, Qwen, Qwen3-Coder, GLM 4.5", ("<tool_call>",), "</tool_call>", (_OBJECT, _FUNCTION, _KEYS)),
    CallForm("Seed-OSS", ("<seed:tool_call>",), "</seed:tool_call>", (_FUNCTION,)),
    CallForm("MiniMax M2", ("<minimax:tool_call>",), "</minimax:tool_call>", (_INVOKE,)),
    CallForm("Llama 3", ("<|python_tag|>",), ""),
    CallForm("LFM2", ("<|tool_call_start|>",), "<|tool_call_end|>", (), read=python_calls),
    CallForm("Mistral", ("[TOOL_CALLS]",), "", (_OBJECT, _ARGS), ("[ARGS]", "[CALL_ID]")),
    CallForm(
        "gpt-oss",
        (f"<|end|><|start|>assistant{_COMMENTARY}", f"<|start|>assistant{_COMMENTARY}", _COMMENTARY, " to=functions."),
        "<|call|>",
        (_MESSAGE,),
        ("<|channel|>", "<|constrain|>", "<|message|>", "<|start|>", "<|end|>"),
    ),
    CallForm("Gemma 4", ("<|tool_call>",), "<tool_call|>", (), ('<|"|>',), gemma_calls),
    CallForm("FunctionGemma", ("<start_function_call>",), "<end_function_call>", (), ("<escape>",), gemma_calls),
    CallForm(
        "DeepSeek",
        ("<｜tool▁calls▁begin｜>",),
        "<｜tool▁calls▁end｜>",
        (_DEEPSEEK,),
        ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    ),
    CallForm(
        "Kimi K2",
        ("<|tool_calls_section_begin|>",),
        "<|tool_calls_section_end|>",
        (_KIMI,),
        ("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    CallForm("Granite, Phi-4", ("<|tool_call|>",), "<|/tool_call|>"),
    CallForm("Command", ("<|START_ACTION|>",), "<|END_ACTION|>"),
    CallForm("Qwen3-Coder without its tag", ("<function=",), "", (_BARE_FUNCTION,)),
    CallForm("small models under any template", ("<tools>",), "</tools>"),
    CallForm("small models under any template", ("<function_call>",), "</function_call>"),
    CallForm("small models under any template", ("```json", "```\n"), "```", is_code=True),
)
BARE = CallForm("Llama 3 without its mark", (), "")
# Control tokens of calls, which are part of an answer where tools were offered.
SHOWN = tuple(
    dict.fromkeys(text for form in FORMS for text in (*form.marks, form.end, *form.texts) if text[:1] in "<[")
)


def call_schema(name: str, parameters: Mapping[str, Any], arguments: str = "arguments", key: str = "name") -> Any:
    """Return the schema of a call as JSON. Its own name lets a `$ref` of the parameters mean a place in them."""
    inner = {"$id": f"tool:{name.encode().hex()}", **parameters}
    properties = {key: {"const": name}, arguments: inner}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
