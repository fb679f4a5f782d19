"""What people type for the form of an answer, what is wrong with it, and what of a schema has no end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.settings.request import Request
from localspec.settings.structure import (
    SHORT_FORM,
    choices_text,
    field_names,
    grammar_text,
    json_schema,
    regex_text,
    require_short,
    schema_text,
    unbounded,
)

Read = Callable[[str], str | None]
OBJECT = {"type": "object", "additionalProperties": False}


def of(**fields: Any) -> dict[str, Any]:
    return {**OBJECT, "properties": fields, "required": list(fields)}


STRING = {"type": "string"}
KINDS = of(a={"type": "integer"}, b={"type": "number"}, c={"type": "boolean"}, d=STRING)


@pytest.mark.parametrize(
    ("typed", "schema"),
    [
        ("{}", {}),
        (' {"const": "é"}', {"const": "é"}),
        ("true", True),
        (" false\n", False),
        ("name", of(name=STRING)),
        ("name,, age int, ", of(name=STRING, age={"type": "integer"})),
        ("a int, b float, c bool, d str", KINDS),
        ("a integer, b number, c boolean, d string", KINDS),
        ("tags[], score float[]: in percent",
         of(tags={"type": "array", "items": STRING},
            score={"type": "array", "items": {"type": "number"}, "description": "in percent"})),
        ("a, b: see x/y.md", of(a=STRING, b={**STRING, "description": "see x/y.md"})),
        ("a: one, or two\nb\n", of(a={**STRING, "description": "one, or two"}, b=STRING)),
        ("é", of(é=STRING)),
        ("a\n", of(a=STRING)),
    ],
    ids=str,
)  # fmt: skip
def test_a_schema_is_json_or_names_of_fields(typed: str, schema: Any) -> None:
    text = schema_text(typed)
    assert text is not None
    assert json.loads(text) == schema
    assert "\\u" not in text, "as it is typed"


@pytest.mark.parametrize(
    ("read", "typed", "text"),
    [
        (grammar_text, 'root ::= "a"', 'root ::= "a"'),
        (grammar_text, "a\nb", "a\nb"),
        (grammar_text, "a:b", "a:b"),
        (grammar_text, "x: y" + " " * 249_996, "x: y" + " " * 249_996),
        (regex_text, "[a-z]", "[a-z]"),
        (choices_text, "yes, no", "yes\nno\n"),
        (choices_text, "a,b,a,,c", "a\nb\nc\n"),
        (choices_text, "one, two\nthree\n\n", "one, two\nthree\n"),
        (choices_text, "a,\udce9", "a\n?\n"),  # a byte of a command line that is not UTF-8
        (choices_text, "a," + "b" * 999_998, "a\n" + "b" * 999_998 + "\n"),
        *((read, "none", None) for read in (schema_text, grammar_text, regex_text, choices_text)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_typed_becomes_the_form(read: Read, typed: str, text: str | None) -> None:
    assert read(typed) == text


def test_texts_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "s.json").write_bytes(b'\xef\xbb\xbf{"type": "string"}')  # as some editors write it
    (tmp_path / "c.txt").write_text("one, two\nthree\n")
    (tmp_path / "g.gbnf").write_text('root ::= "a"')
    assert schema_text(str(tmp_path / "s.json")) == '{"type": "string"}'
    assert choices_text("~/c.txt") == "one, two\nthree\n"
    assert grammar_text(f"@{tmp_path / 'g.gbnf'}") == 'root ::= "a"'


SCHEMA_HINT = "--schema FILE, JSON, or: name, age int"


@pytest.mark.parametrize(
    ("read", "typed", "message", "hint"),
    [
        (schema_text, "missing.json", "--schema: there is no file missing.json", f"{SCHEMA_HINT}, tags[]"),
        (schema_text, " a/b ", "--schema: there is no file  a/b ", f"{SCHEMA_HINT}, tags[]"),
        (schema_text, "[1,", "--schema is not JSON: Expecting value: line 1 column 4 (char 3)", SCHEMA_HINT),
        (schema_text, "[1]", "--schema is JSON, but no schema: that is an object", '--schema \'{"type": "object"}\''),
        *((schema_text, f"a, {wrong}", f"--schema: '{wrong}' is not a name and str, int, float or bool",
           SHORT_FORM) for wrong in ("a b c", "b foo", "b{}", "b int[c]")),
        (schema_text, "a[b x]", "--schema: 'b x' is not a name and str, int, float or bool", SHORT_FORM),
        (schema_text, "a, b[c", "--schema: the brackets of 'b[c' do not match", SHORT_FORM),
        (schema_text, "a, b]c, d", "--schema: the brackets of 'b' do not match", SHORT_FORM),
        (schema_text, "a, b int, a", "--schema names the field 'a' twice", SHORT_FORM),
        (schema_text, "[" + " " * 1_000_000, "--schema is longer than 1000000 bytes", "a smaller one"),
        (schema_text, "[" * 121 + "]" * 121, "--schema has more than 120 levels", "a flatter schema"),
        (schema_text, "[" * 120 + "]" * 120, "--schema is JSON, but no schema: that is an object",
         '--schema \'{"type": "object"}\''),
        (schema_text, "[" * 100_000, "--schema has more than 120 levels", "a flatter schema"),
        (json_schema, "5", "--schema is JSON, but no schema: that is an object", '--schema \'{"type": "object"}\''),
        (choices_text, " one,", "--choices 'one,' leaves nothing to choose", "--choices a,b,c, or a file"),
        (choices_text, " \n", "--choices is empty", "--choices FILE"),
        (choices_text, "3.14", "--choices '3.14' leaves nothing to choose", "--choices a,b,c, or a file"),
        (choices_text, "x.txt", "--choices: there is no file x.txt", "--choices FILE, or a,b,c"),
        (grammar_text, "x.gbnf", "--grammar: there is no file x.gbnf", '--grammar FILE, or: root ::= "yes" | "no"'),
        (grammar_text, "@x: y", "--grammar: there is no file x: y", "--grammar FILE"),
        (grammar_text, "x: y" + " " * 249_997, "--grammar is longer than 250000 bytes", "a smaller one"),
        (regex_text, "", "--regex is empty", "--regex '[a-z]+'"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_a_text_that_is_wrong(read: Read, typed: str, message: str, hint: str) -> None:
    with pytest.raises(LocalspecError) as caught:
        read(typed)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert type(caught.value) is (NotFoundError if "no file" in message else UsageError)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "g").write_bytes(b"a: \xff")
    with pytest.raises(UsageError, match=r"--grammar .*/g is not UTF-8 text") as caught:
        grammar_text(str(tmp_path / "g"))
    assert caught.value.hint == "--grammar FILE"


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="this system has no file that fails to be read")
def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(NotFoundError, match="--choices /proc/self/mem cannot be read: Input/output error") as caught:
        choices_text("/proc/self/mem")
    assert caught.value.hint == "--choices FILE"


@pytest.mark.parametrize(
    ("name", "most"), [("schema", 250_000), ("regex", 4096), ("grammar", 32_768), ("choices", 250_000)]
)
def test_how_long_a_form_may_be_that_a_server_reads(name: str, most: int) -> None:
    require_short(name, "x" * most)
    with pytest.raises(UsageError) as caught:
        require_short(name, "x" * (most + 1))
    told = f"--{name} has more than {most} characters, the most that a server reads"
    assert (caught.value.message, caught.value.hint) == (told, "a shorter one")
    require_short("prompt", "x" * (most + 1))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (True, ""),
        ({"type": "array"}, "/ (maxItems)"),
        ({"type": ["array", "null"]}, ""),
        ({"type": "array", "prefixItems": [{}], "items": False}, ""),
        ({"type": "array", "items": True}, "/ (maxItems)"),
        ({**OBJECT, "properties": {"a": STRING}}, "/properties/a (maxLength)"),
        ({"type": "object"}, "/ (additionalProperties)"),
        ({"type": "object", "properties": {}}, ""),
        ({"type": "object", "additionalProperties": True}, "/ (additionalProperties)"),
        ({"type": "object", "additionalProperties": STRING}, "/additionalProperties (maxLength)"),
        ({"type": "object", "maxProperties": 3, "additionalProperties": {**STRING, "maxLength": 3}}, ""),
        ({"anyOf": [{**STRING, "const": "a"}, {"type": "array", "maxItems": 2, "items": STRING}]},
         "/anyOf/1/items (maxLength)"),
        ({"prefixItems": [STRING] * 3},
         "/prefixItems/0 (maxLength), /prefixItems/1 (maxLength), /prefixItems/2 (maxLength)"),
        ({"prefixItems": [STRING] * 4},
         "/prefixItems/0 (maxLength), /prefixItems/1 (maxLength), /prefixItems/2 (maxLength), ..."),
        ({"$defs": {"x": STRING}, "definitions": {"y": STRING}, "properties": 5},
         "/$defs/x (maxLength), /definitions/y (maxLength)"),
        ({"oneOf": [{}, STRING], "allOf": [STRING]}, "/oneOf/1 (maxLength), /allOf/0 (maxLength)"),
        *(({**STRING, key: "x"}, "") for key in ("enum", "const", "pattern", "format", "$ref")),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_end_is_told_with_its_path(schema: Any, said: str) -> None:
    assert unbounded(json.dumps(schema)) == said


def test_two_forms_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--schema and --regex exclude each other"):
        Request(schema="{}", regex="a").check()


def test_the_short_form_nests() -> None:
    """Brackets hold a list of objects, braces one; commas within part its fields, and lines part fields as well."""
    made = json.loads(schema_text("number, seller{name, city}, items[name, qty int: how many]: the lines") or "")
    assert made["properties"]["seller"] == json.loads(schema_text("name, city") or "")
    items = made["properties"]["items"]
    assert (items["type"], items["description"]) == ("array", "the lines")
    assert items["items"] == json.loads(schema_text("name, qty int: how many") or "")
    assert field_names(json.dumps(made)) == ["number", "seller", "items"]
    assert field_names("true") == field_names(None) == field_names('{"type": "string"}') == []
    deep = json.loads(schema_text("a[" * 30 + "b" + "]" * 30) or "")
    assert field_names(json.dumps(deep)) == ["a"]
    with pytest.raises(UsageError, match="do not match"):
        schema_text("a[" * 31 + "b" + "]" * 31)
