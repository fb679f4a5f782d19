"""The grammar of a call in each family's form, on the storyteller's vocabulary."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from localspec.backends.model import Model
from localspec.engine.constraint import FREE, Constraint, Matched
from localspec.engine.text import Marks
from localspec.prompt.grammar import Grammars
from localspec.prompt.held_calls import HeldCalls, held_form, schemas_of
from localspec.prompt.prompt import Tokenised
from localspec.settings.request import Request
from tests.integration import pair

PARAMETERS: Any = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "n": {"type": "integer"},
        "unit": {"type": "string", "enum": ["C", "F"]},
    },
    "required": ["text", "n"],
}
TOOLS = [
    {"type": "function", "function": {"name": "save", "description": "", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "time", "description": "", "parameters": {"type": "object"}}},
]
ARGUMENTS = '{"text": "a < b", "n": 3}'
CALL = f'{{"name": "save", "arguments": {ARGUMENTS}}}'
# What stands in a template of the family, the mark, and the rest of a call with %s for the value of `n`.
FAMILIES = {
    "Hermes": (
        "<tool_call>",
        "<tool_call>",
        '\n{"name": "save", "arguments": {"text": "a < b", "n": %s}}\n</tool_call>',
    ),
    "Qwen3-Coder": (
        "<tool_call><function=",
        "<tool_call>",
        "\n<function=save>\n<parameter=text>\na < b\n</parameter>\n<parameter=n>\n%s\n</parameter>\n</function>\n"
        "</tool_call>",
    ),
    "Seed-OSS": (
        "<seed:tool_call>",
        "<seed:tool_call>",
        "\n<function=save>\n<parameter=text>a</parameter><parameter=n>%s</parameter>\n</function></seed:tool_call>",
    ),
    "MiniMax M2": (
        "<minimax:tool_call>",
        "<minimax:tool_call>",
        '\n<invoke name="save">\n<parameter name="text">a</parameter>\n<parameter name="n">%s</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
    ),
    "GLM 4.5": (
        "<tool_call><arg_key>",
        "<tool_call>",
        "save\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n<arg_key>n</arg_key>\n<arg_value>%s</arg_value>\n"
        "</tool_call>",
    ),
    "Mistral": ("[TOOL_CALLS]", "[TOOL_CALLS]", '[{"name": "save", "arguments": {"text": "a", "n": %s}}]'),
    "Mistral, later": ("[TOOL_CALLS][ARGS]", "[TOOL_CALLS]", 'save[ARGS]{"text": "a", "n": %s}'),
    "Granite 3": ("<|tool_call|>", "<|tool_call|>", '[{"name": "save", "arguments": {"text": "a", "n": %s}}]'),
    "Phi-4": (
        "<|tool_call|><|/tool_call|>",
        "<|tool_call|>",
        '[{"name": "save", "arguments": {"text": "a", "n": %s}}]<|/tool_call|>',
    ),
    "DeepSeek V3.1": (
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁begin｜>",
        '<｜tool▁call▁begin｜>save<｜tool▁sep｜>{"text": "a", "n": %s}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "Kimi K2": (
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_begin|>",
        '<|tool_call_begin|>functions.save:0<|tool_call_argument_begin|>{"text": "a", "n": %s}<|tool_call_end|>'
        "<|tool_calls_section_end|>",
    ),
    "gpt-oss": (
        "to=functions.",
        "commentary to=functions.",
        'save <|constrain|>json<|message|>{"text": "a", "n": %s}',
    ),
}


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(pair.TARGET) as opened:
        yield opened


def constraint_of(model: Model, template: str, **settings: Any) -> Constraint:
    request = Request(prompt="x", tools=json.dumps(TOOLS), template=template, **settings)
    constraint = Grammars().constraint(request, model, Tokenised([1]))
    assert constraint is not None
    return constraint


def allowed(constraint: Constraint, model: Model, text: str) -> str | None:
    """Return what of a text is not allowed, "" for none of it and None where it has left a call, or its form."""
    said = [1]
    tokens = model.tokenize(text)
    for n, token in enumerate(tokens):
        ids = constraint.allowed(said)
        if ids is not FREE and token not in ids:
            return b"".join(map(model.piece, tokens[n:])).decode()
        said.append(token)
    ids = constraint.allowed(said)
    return None if ids is FREE or all(map(model.is_eog, ids.tolist())) else ""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_is_held_to_its_schema(model: Model, family: str) -> None:
    """From its mark to its end; any text may stand before it and behind it."""
    template, mark, rest = FAMILIES[family]
    constraint = constraint_of(model, f"{{{{ tools }}}}{template}")
    for value, is_valid in (("3", True), ("-12", True), ('"3"', False), ("x", False), ("1.5", False)):
        text = f"Let me see. {mark}{rest % value}"
        assert (allowed(constraint, model, text) is None) is is_valid
    assert allowed(constraint, model, f"Well. {mark}{rest % 3} Done, I think. {mark}{rest % 4}") is None
    assert allowed(constraint, model, mark + (rest % 3).replace("save", "dance"))
    assert allowed(constraint, model, mark + (rest % 3).replace("text", "words"))


def test_an_answer_is_a_call_or_json_of_the_schema(model: Model) -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    constraint = constraint_of(model, "{{ tools }}<tool_call>", schema=schema)
    assert allowed(constraint, model, '{"a": 3}') is None
    assert allowed(constraint, model, f"<tool_call>\n{CALL}\n</tool_call>") is None
    for text in ("Hello", '{"b": 3}', "<tool_call>\n{}", f"<tool_call>{CALL}</tool_call> Done"):
        assert allowed(constraint, model, text)
    must = constraint_of(model, "{{ tools }}<tool_call>", schema=schema, must_call=True)
    assert allowed(must, model, "<tool_call>")


@pytest.mark.parametrize("template", ["{{ tools }}", "{{ tools }}<|python_tag|>", "{{ tools }}<|tool_call_start|>"])
def test_other_forms_are_not_held(model: Model, template: str) -> None:
    assert (
        Grammars().constraint(Request(prompt="x", tools=json.dumps(TOOLS), template=template), model, Tokenised([1]))
        is None
    )


def test_a_template_without_tools_has_them_in_the_form_of_hermes(model: Model) -> None:
    form = held_form("{{ messages }}")
    assert form is not None
    assert (form.mark, held_form(None)) == ("<tool_call>", form)
    assert (
        Grammars(holds_calls=False).constraint(Request(prompt="x", tools=json.dumps(TOOLS)), model, Tokenised([1]))
        is None
    )


def test_a_schema_that_cannot_be_kept_holds_an_object(model: Model) -> None:
    """One tool does not end all requests: its arguments are any object."""
    tools = [{"function": {"name": "mail", "parameters": {"type": "object", "properties": {
        "to": {"type": "string", "pattern": "^(?!x).*$"}}}}}]  # fmt: skip
    constraint = Grammars().constraint(Request(prompt="x", tools=json.dumps(tools)), model, Tokenised([1]))
    assert constraint is not None
    call = '<tool_call>{"name": "mail", "arguments": {"to": "y"}}</tool_call>'
    assert allowed(constraint, model, call) is None
    assert allowed(constraint, model, call.replace('{"to": "y"}', "3"))


def test_the_parameters_of_tools() -> None:
    assert schemas_of(json.dumps(TOOLS)) == {"save": PARAMETERS, "time": {"type": "object"}}
    assert schemas_of(None) == {}


class Braces:
    """The form of what follows the mark: any number of braces, then the end. Its tokens are those of PIECES."""

    def allowed(self, text: Sequence[int]) -> Any:
        said = "".join(PIECES[token] for token in text)
        if said.endswith("."):
            return np.array([END])
        is_right = all(each == "{" for each in said)
        return np.array([i for i, piece in enumerate(PIECES) if piece in ("{", ".")] if is_right else [])

    def is_end(self, token: int) -> bool:
        return token == END


PIECES = ["<call>", "<ca", "ll>", "ll>{", "ll>x", "{", ".", "x", "<th", "ink>", "at>", "</th", " ", "", "</think>"]
END = PIECES.index("")
THOUGHT = Marks("<think>", "</think>")


@pytest.mark.parametrize(
    ("pieces", "marks", "follows"),
    [
        ("x", None, "free"),
        ("<ca", None, "free"),
        ("<call>", None, "{ ."),
        ("x <call>", None, "{ ."),
        ("<ca ll>", None, "{ ."),
        ("<ca ll>{", None, "{ ."),  # the mark ends within a token
        ("<ca ll>{ {", None, "{ ."),
        ("<ca ll>x", None, "free"),  # what no call has: it was a mention
        ("<ca ll>x <call>", None, "{ ."),
        ("<ca x ll>", None, "free"),
        ("<call> { x", None, ""),  # it has left the call
        ("<call> { .", None, "free"),
        ("<call> . <call>", None, "{ ."),
        ("<th ink> <call>", THOUGHT, "free"),  # within a thought
        ("_ <th ink> <call>", THOUGHT, "free"),
        ("<th ink> x </th ink> <call>", THOUGHT, "{ ."),
        ("<th ink> </think> x <call> {", THOUGHT, "{ ."),
        ("<th at> <call>", THOUGHT, "{ ."),  # it only began like one
        ("x <th ink> <call>", THOUGHT, "{ ."),  # no thought begins behind text
        ("x <call>", replace(THOUGHT, is_open=True), "free"),
        ("x </th ink> <call>", replace(THOUGHT, is_open=True), "{ ."),
        ("x </th ink> <th ink> <call>", replace(THOUGHT, is_open=True), "{ ."),
    ],
)
def test_where_a_call_begins_and_ends(pieces: str, marks: Marks | None, follows: str) -> None:
    """In whatever pieces the mark and the thought come; and again after a step back."""
    tokens = [PIECES.index(piece.replace("_", " ")) for piece in pieces.split()]
    held = HeldCalls(
        1, "<call>", lambda token: PIECES[token].encode(), lambda text: [PIECES.index(each) for each in text],
        lambda: cast(Matched, Braces()), marks,
    )  # fmt: skip
    for text in ([1, *tokens], [1, *tokens[:1]], [1, *tokens]):
        ids = held.allowed(text)
    assert ("free" if ids is FREE else " ".join(PIECES[i] for i in ids)) == follows
