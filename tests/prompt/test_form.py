"""What is looked for in a form before llguidance reads it, and what its errors become: by figures, without a model."""

import json
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.prompt import form
from localspec.prompt.form import compiled, form_of, refused
from localspec.settings.request import Request
from tests.recorded import recorded_expressions


@pytest.mark.parametrize(
    ("bound", "is_kept"),
    [
        (2**53, True),
        (2**53 + 1, False),
        (2**53 + 2, True),
        (2**63 - 2, False),
        (2**63 - 1, True),
        (1e300, True),
        (-(2**53), True),
        (-(2**53) - 1, False),
        (-(2**62), True),
        (-(2**63) + 1, False),
        (-(2**63), False),
        (-1e300, False),
        (0.1, True),
    ],
)
def test_which_bounds_are_taken_for_what_they_are(bound: float, is_kept: bool) -> None:
    assert form._is_kept(bound) == is_kept
    for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        said = form._overflow({"items": [{key: bound}]})
        assert said == ("" if is_kept else f"{key} {bound} is too far from 0")
    assert form._overflow({"minimum": "far", "multipleOf": bound}) == ""


FAR, WHOLE = 2**53, {"type": "integer", "minimum": -(2**53), "maximum": 2**53}
NUMBER, CLOSED = {**WHOLE, "type": "number", "multipleOf": 1e-9}, {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "is_closed"),
    [
        ({}, True),
        ({"additionalProperties": False}, True),
        ({"additionalProperties": True}, False),
        ({"additionalProperties": {"type": "integer"}}, False),
        ({"allOf": [{"required": ["a"]}]}, False),
        ({"x": {"allOf": [{}]}}, True),
        ({"x": {"allOf": [{}, {}]}}, False),
    ],
    ids=str,
)
def test_an_object_has_no_other_properties_unless_the_schema_says_so(schema: Any, is_closed: bool) -> None:
    """Parts that are joined stay open: closed ones would exclude each other."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "x": schema.pop("x", {})}, **schema}
    assert (write(schema, '{"a":1,"b":2}') is False) is is_closed
    assert write(schema, '{"a":1}')


SPACED = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"type": "number"}},
    "required": ["a", "b"],
}


@pytest.mark.parametrize(
    ("text", "is_spaced"),
    [
        ('{"a":[1,2],"b":3}', False),
        ('{"a": [1, 2], "b": 3}', True),
        ('{\n  "a": [\n    1,\n    2\n  ],\n  "b": 3\n}', True),
        ('{"a":[1,2],\n\n\t\t"b":3}', True),
        ('{\n' + 20 * " " + '"a":[],"b":3}', True),
    ],
)  # fmt: skip
def test_white_space_between_the_parts_of_json(text: str, is_spaced: bool) -> None:
    """As models write it; a compact form has none."""
    assert write(SPACED, text)
    compact = form_of(Request(schema=json.dumps(SPACED), schema_compact=True))
    assert compact is not None
    assert write(json.loads(compact[1]), text) is not is_spaced


def write(schema: Any, text: str) -> bool:
    from llguidance import LLMatcher, LLTokenizer

    matcher = LLMatcher(LLTokenizer("byte"), compiled(("schema", json.dumps(schema))), log_level=0)
    tokens = list(text.encode())
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


def test_numbers_of_many_digits_are_no_integers_of_a_form() -> None:
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

    class Digits:
        """A vocabulary of one digit and an end."""

        eos_token_id, bos_token_id, special_token_ids = 0, None, (0,)
        tokens = (b"\xff</s>", b"9")

        def __call__(self, text: bytes) -> list[int]:
            return [1] * len(text)

    matcher = LLMatcher(LLTokenizer(TokenizerWrapper(Digits()), n_vocab=2), compiled(("schema", '{"type":"integer"}')))
    assert matcher.validate_tokens([1] * 40) == 15


ROOT = {"a": [{"b": 1}, {"c/d": {"e~f": 2}}], "": 3}


@pytest.mark.parametrize(("n", "is_refused"), [(255, False), (256, True)])
def test_how_many_parts_may_have_names_of_their_own(n: int, is_refused: bool) -> None:
    """The schema itself is one."""
    for key in ("$id", "id"):
        said = form._overflow({"anyOf": [{key: str(i)} for i in range(n)]})
        assert said == ("more than 256 of its parts have an $id" if is_refused else "")


def deep(levels: int) -> Any:
    return {"items": deep(levels - 1)} if levels else {}


@pytest.mark.parametrize(("levels", "is_refused"), [(0, False), (1, True)])
def test_how_deep_a_schema_may_be_with_all_that_it_refers_to(
    monkeypatch: pytest.MonkeyPatch, levels: int, is_refused: bool
) -> None:
    """Each part that is named counts once, however often it is referred to."""
    schema = {"$defs": {"x": deep(5), "y": deep(3)}, "anyOf": [{"$ref": "#/$defs/x"}] * 3 + [{"$ref": "#/$defs/y"}]}
    least = form.levels_of(schema) + form.levels_of(deep(5)) + form.levels_of(deep(3))
    monkeypatch.setattr(form, "MOST_LEVELS", least - levels)
    said = f"the parts that it refers to have more than {least - levels} levels together"
    assert form._overflow(schema) == (said if is_refused else "")


@pytest.mark.parametrize(("levels", "is_refused"), [(12, False), (13, True)])
def test_fifteen_hundred_levels_are_read(levels: int, is_refused: bool) -> None:
    """The schema has 101 of them, 14 parts have 99 each, and the last part one more than is told."""
    parts = {str(n): deep(98) for n in range(14)} | {"x": deep(levels)}
    schema = {"$defs": parts, "anyOf": [{"$ref": f"#/$defs/{name}"} for name in parts]}
    said = "the parts that it refers to have more than 1500 levels together"
    assert form._overflow(schema) == (said if is_refused else "")


def test_the_levels_of_a_part_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    right = form.levels_of
    monkeypatch.setattr(form, "levels_of", lambda value: counted.append(id(value)) or right(value))
    schema = {"anyOf": [{"$ref": f"odd%{n}"} for n in range(9)], "properties": {"$ref": {"type": "string"}}}
    assert form._overflow(schema) == "", "a field may have the name of a keyword"
    assert len(counted) == 2, "all of the schema, and what each of the references may name"


def test_what_llguidance_is_given() -> None:
    assert compiled(("schema", "true")) == compiled(("schema", "{}")) != compiled(("schema", '{"type": "string"}'))
    assert compiled(("grammar", r'start: "\u0041"')) == r'start: "\u0041"', "only GBNF is spelled anew"


def test_what_the_reader_of_grammars_cannot_put_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_text: str) -> str:
        raise IndexError

    monkeypatch.setattr("llguidance.gbnf_to_lark.any_to_lark", fail)
    with pytest.raises(UsageError, match="--grammar cannot be kept: it cannot be read"):
        compiled(("grammar", "root ::= x"))


def test_the_parts_of_a_schema_and_their_paths() -> None:
    schema = {
        "properties": {"a": {"x": 1}, "b": 5},
        "items": {"y": 2},
        "anyOf": [{"z": 3}, 4],
        "enum": [{"no": 1}],
        "const": {"no": 1},
        "default": {"no": 1},
        "examples": [{"no": 1}],
        "type": "object",
        "$defs": {"q": {}},
    }
    found = {"properties/a": {"x": 1}, "items": {"y": 2}, "anyOf/0": {"z": 3}, "$defs/q": {}}
    assert dict(form._parts(schema)) == found


def test_an_error_is_one_line_of_two_hundred_characters() -> None:
    error = refused("regex", "<non-verbose/> " + "x " * 150, "[")
    assert error.message == f"--regex cannot be kept: {'x ' * 100}"
    assert error.hint == "--regex '[a-z]+'"
    error = refused("schema", 'Unimplemented keys: ["not", "if"]', "{}")
    assert (error.message, error.hint) == ("--schema: /not is a keyword that cannot be kept", "a schema without it")
    assert refused("grammar", 'Unimplemented keys: ["not"]', "{}").message.endswith('keys: ["not"]')
    assert refused("schema", "odd", "[" * 100_000).message == "--schema cannot be kept: odd"
    wrong = '{"items": {"type": "foo"}}'
    for name, path in (("schema", " at /items"), ("regex", "")):
        said = refused(name, form._read("schema", '{"type": "foo"}')[1], wrong).message
        assert said.startswith(f"--{name} cannot be kept{path}: Invalid type")


@pytest.mark.parametrize("name", ["$defs", "definitions"])
def test_a_part_that_is_wrong_is_looked_for_with_the_parts_that_it_refers_to(name: str) -> None:
    part = {"allOf": [{"$ref": f"#/{name}/s"}, {"not": {}}]}
    schema = json.dumps({name: {"s": {"type": "string"}}, "properties": {"a": part}})
    with pytest.raises(UsageError, match="/properties/a/allOf/1/not is a keyword that cannot be kept"):
        compiled(("schema", schema))


@pytest.mark.parametrize(("n", "path"), [(20_000, " at /items"), (20_001, "")])
def test_the_part_that_is_wrong_is_looked_for_in_short_schemas(n: int, path: str) -> None:
    text = json.dumps({"items": {"type": "foo"}, "description": ""})
    text = text.replace('""', f'"{"x" * (n - len(text))}"')
    assert len(text) == n
    with pytest.raises(UsageError, match=f"--schema cannot be kept{path}: Invalid type"):
        compiled(("schema", text))


@pytest.mark.parametrize(("n", "path"), [(199, "/anyOf/199"), (200, "")])
def test_two_hundred_parts_are_tried(monkeypatch: pytest.MonkeyPatch, n: int, path: str) -> None:
    parts = [*({"a": i} for i in range(n)), {"bad": 1}]
    monkeypatch.setattr(form, "_read", lambda _name, text: ("", "no" if "bad" in text else ""))
    assert form._path({"anyOf": parts, "$defs": {}}, "no") == path
    assert form._path([{"bad": 1}], "no") == ""


test_what_is_recorded = recorded_expressions(
    __file__, Request, compiled, form, form_of, write, ROOT=ROOT, SPACED=SPACED
)
