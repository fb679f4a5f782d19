"""Answers under a schema: whatever drafts, every whole answer is valid, and the text is that of plain decoding.

With LOCALSPEC_REAL, a folder of real models, these are asked, too.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from localspec.engine import events
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from localspec.settings.structure import schema_text
from localspec.ui.stats import Stats
from localspec.ui.summary import stats_line
from tests.integration import pair

REAL = Path(os.environ.get("LOCALSPEC_REAL", "/nonexistent"))
FORMATS = jsonschema.FormatChecker(["date", "uuid", "ipv4"])  # its rule for "time" knows no zones
TEXT: dict[str, Any] = {"type": "string", "maxLength": 12}


def thing(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS: list[Any] = [
    {"type": "boolean"},
    {"type": "null"},
    {"type": "integer", "minimum": -5, "maximum": 120},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100},
    TEXT,
    {"type": "string", "minLength": 3, "maxLength": 8},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"enum": ["red", "green", "blue"]},
    {"enum": ["a", 1, None, True, {"b": [2]}]},
    {"const": {"kind": "fixed", "n": [1, 2, 3]}},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 4},
    {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "null"}], "items": False, "minItems": 2},
    {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
    {"anyOf": [{"type": "boolean"}, thing(a={"type": "boolean"})]},
    thing(name=TEXT),
    thing(name=TEXT, age={"type": "integer", "minimum": 0, "maximum": 130}),
    thing(a=thing(b=thing(c={"type": "boolean"}))),
    thing(city=TEXT, unit={"enum": ["celsius", "fahrenheit"]}),
    thing(x={"type": "number", "minimum": -90, "maximum": 90}, y={"type": "number", "minimum": -180, "maximum": 180}),
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": TEXT}, "additionalProperties": False},
    {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "patternProperties": {"^x": {"type": "integer", "maximum": 3, "minimum": 0}},
        "additionalProperties": False,
        "maxProperties": 2,
    },
    {"$ref": "#/$defs/p", "$defs": {"p": thing(q={"$ref": "#/$defs/r"}), "r": {"enum": [1, 2]}}},
    {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"anyOf": [{"type": "null"}, thing(v={"type": "boolean"}, next={"$ref": "#/$defs/n"})]}},
    },
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 7}]},
    {"oneOf": [{"type": "boolean"}, {"type": "null"}]},
    thing(query=TEXT, filters={"type": "array", "items": thing(field=TEXT, op={"enum": ["=", "<"]}), "maxItems": 2}),
    json.loads(schema_text("name, age int, tags[], ok bool") or ""),
    {"type": "object", "properties": {'é"\\n': {"type": "boolean"}}, "additionalProperties": False, "minProperties": 1},
]


@pytest.fixture(scope="module")
def storyteller() -> Iterator[LoadedPair]:
    session, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT), threads=1))
    yield session
    session.close()


def answer(session: LoadedPair, request: Request) -> tuple[str, events.Finished]:
    text = ""
    for event in session.answer(request):
        if isinstance(event, events.Committed):
            text += event.text
        if isinstance(event, events.Finished):
            return text + event.tail, event
    raise AssertionError("an answer ends")


def check(session: LoadedPair, schema: Any, request: Request) -> bool:
    """Return whether the answer was whole; a whole one is valid, and one that ended by itself is whole."""
    text, finished = answer(session, request)
    assert finished.is_whole or finished.reason == "length"
    if finished.is_whole:
        jsonschema.validate(json.loads(text), schema, format_checker=FORMATS)
    return finished.is_whole


METHODS = ("auto", "plain", "draft-model", "copy", "suffix", "lookahead")


@pytest.mark.thinned(8)
@pytest.mark.parametrize("n", range(len(SCHEMAS)))
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
def test_every_whole_answer_is_valid(storyteller: LoadedPair, n: int, method: str, temperature: float) -> None:
    request = Request(
        prompt="Once upon a time",
        max_tokens=120,
        schema=json.dumps(SCHEMAS[n]),
        sampling=Sampling(temperature=temperature, seed=n),
        speculation=Speculation(method=method),
    )
    check(storyteller, SCHEMAS[n], request)


@pytest.mark.parametrize("tree", ["static:2,2", "dyspec", "sequoia", "eagle2"])
def test_trees_draft_under_a_schema(storyteller: LoadedPair, tree: str) -> None:
    for n in (16, 21, 33):
        request = Request(
            prompt="Once upon a time",
            max_tokens=120,
            schema=json.dumps(SCHEMAS[n]),
            sampling=Sampling(seed=n),
            speculation=Speculation(method="draft-model", tree=tree),
        )
        check(storyteller, SCHEMAS[n], request)


@pytest.mark.parametrize("method", ["auto", "draft-model", "copy", "lookahead"])
def test_forced_tokens_are_counted_apart(storyteller: LoadedPair, method: str) -> None:
    """A key is forced: it takes one pass, no draft token, and figures tell of it."""
    stats, plain = (
        told(storyteller, Request(
            prompt="Once upon a time",
            max_tokens=200,
            schema=json.dumps(thing(a_long_name_of_a_field={"type": "boolean"}, another_long_name={"type": "null"})),
            schema_compact=True,
            sampling=Sampling(temperature=0.0),
            speculation=Speculation(method=one),
        ))
        for one in (method, "plain")
    )  # fmt: skip
    assert stats.text == plain.text
    assert stats.forced > 20
    assert plain.forced == 0
    assert stats.passes < plain.passes / 2
    assert stats.emitted == stats.accepted + stats.forced + stats.passes - stats.cut
    assert f"{stats.forced} forced" in stats_line(stats)


def told(session: LoadedPair, request: Request) -> Stats:
    stats = Stats()
    for event in session.answer(request):
        stats.observe(event)
    return stats


def test_an_answer_that_is_cut_is_not_whole(storyteller: LoadedPair) -> None:
    request = Request(prompt="Once", max_tokens=3, schema=json.dumps(thing(name=TEXT)))
    _, finished = answer(storyteller, request)
    assert (finished.reason, finished.is_whole) == ("length", False)


def test_the_next_answer_has_no_form(storyteller: LoadedPair) -> None:
    """What one request asks for binds no other: neither its target nor its drafter."""
    request = Request(prompt="Once upon a time", max_tokens=20, sampling=Sampling(temperature=0.0))
    before, _ = answer(storyteller, request)
    answer(storyteller, Request(prompt="Once", max_tokens=20, choices="yes\nno\n"))
    after, finished = answer(storyteller, request)
    assert before == after
    assert finished.is_whole


@pytest.mark.skipif(not REAL.is_dir(), reason="LOCALSPEC_REAL names no folder of real models")
def test_real_models() -> None:
    """Qwen 1.5B with its draft, at temperature 0 and 0.8."""
    settings = LoadSettings(
        str(REAL / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"), str(REAL / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
    )
    session, _ = pair.load_pair(settings)
    whole = 0
    for n, schema in enumerate(SCHEMAS):
        for temperature, method in ((0.0, "draft-model"), (0.8, "auto")):
            request = Request(
                messages=(Message("user", f"Give me an example of this JSON schema: {json.dumps(schema)}"),),
                max_tokens=80,
                schema=json.dumps(schema),
                sampling=Sampling(temperature=temperature, seed=n),
                speculation=Speculation(method=method, k=3 if method == "draft-model" else None),
            )
            whole += check(session, schema, request)
    session.close()
    print(f"{whole} of {2 * len(SCHEMAS)} answers are whole")
    assert whole >= 30


@pytest.mark.skipif(not REAL.is_dir(), reason="LOCALSPEC_REAL names no folder of real models")
@pytest.mark.parametrize("name", ["gemma-3-270m-q4_k_m.gguf", "smollm2-135m-instruct-q4_1.gguf"])
def test_other_vocabularies(name: str) -> None:
    """SentencePiece puts a space before a text, which no mask may expect."""
    session, _ = pair.load_pair(LoadSettings(str(REAL / name)))
    whole = 0
    for n, schema in enumerate(SCHEMAS[::3]):
        request = Request(prompt="JSON: ", max_tokens=100, schema=json.dumps(schema), sampling=Sampling(seed=n))
        whole += check(session, schema, request)
    session.close()
    assert whole >= 6
