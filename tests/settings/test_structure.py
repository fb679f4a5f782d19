"""What people type for the form of an answer, what is wrong with it, and what of a schema has no end."""

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import NotFoundError, UsageError
from localspec.settings.request import Request
from localspec.settings.structure import (
    choices_text,
    field_names,
    grammar_text,
    json_schema,
    regex_text,
    require_short,
    schema_text,
    unbounded,
)
from tests.recorded import recorded_expressions

OBJECT = {"type": "object", "additionalProperties": False}


def of(**fields: Any) -> dict[str, Any]:
    return {**OBJECT, "properties": fields, "required": list(fields)}


STRING = {"type": "string"}


def test_texts_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "s.json").write_bytes(b'\xef\xbb\xbf{"type": "string"}')  # as some editors write it
    (tmp_path / "c.txt").write_text("one, two\nthree\n")
    (tmp_path / "g.gbnf").write_text('root ::= "a"')
    assert schema_text(str(tmp_path / "s.json")) == '{"type": "string"}'
    assert choices_text("~/c.txt") == "one, two\nthree\n"
    assert grammar_text(f"@{tmp_path / 'g.gbnf'}") == 'root ::= "a"'


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


test_what_is_recorded = recorded_expressions(
    __file__, choices_text, grammar_text, json, json_schema, regex_text, schema_text, unbounded
)
