"""Masks of llguidance on the storyteller's vocabulary, and what is said of forms that cannot be kept."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.model import Model
from localspec.engine.constraint import NOTHING, Constraint, Matched, is_whole
from localspec.engine.distribution import Ids
from localspec.engine.text import Marks
from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.prompt.form import compiled
from localspec.prompt.grammar import AfterReasoning, Grammars
from localspec.prompt.prompt import Tokenised
from localspec.settings.request import Request
from localspec.settings.structure import choices_text, grammar_text, schema_text, unbounded
from tests.integration import pair

SCHEMA = schema_text("name, age int, tags[], ok bool")
FORMS = {
    "schema": Request(schema=SCHEMA),
    "string": Request(schema='{"type": "string", "maxLength": 9}'),
    "regex": Request(regex=r"[a-f]{2,5}(-[0-9]+)?"),
    "choices": Request(choices=choices_text("yes,no,yesterday")),
    "gbnf": Request(grammar='root ::= "a" [bc]* | "forced text"'),
    "lark": Request(grammar='start: /[xy]{1,4}/ ("," /[0-9]/)*'),
}


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(pair.TARGET) as opened:
        yield opened


@pytest.fixture(scope="module")
def constraints(model: Model) -> dict[str, tuple[Constraint, Constraint]]:
    """Return, for each form, a constraint, and a second one of another owner."""
    made = {}
    prompt = Tokenised([1, 2, 3])
    for name, request in FORMS.items():
        one, two = (Grammars().constraint(request, model, prompt) for _ in range(2))
        assert one is not None
        assert two is not None
        made[name] = one, two
    return made


@pytest.mark.parametrize("name", FORMS)
def test_a_draft_past_the_end_leaves_no_trace(
    name: str, constraints: dict[str, tuple[Constraint, Constraint]], model: Model
) -> None:
    """llguidance does not count an end token in a rollback, so it is never given one."""
    constraint, fresh = constraints[name]
    text = [1, 2, 3]
    ends = [token for token in range(model.n_vocab) if model.is_eog(token)]
    for _ in range(200):
        allowed = constraint.allowed(text)
        held = [token for token in ends if token in allowed]
        if held:
            break
        closing = [token for token in allowed.tolist() if model.piece(token)[:1] in (b'"', b"]", b"}")]
        text.append(closing[0] if closing else int(allowed[0]))
    else:
        raise AssertionError("no end was met")
    for token in (*held, held[0]):
        assert constraint.allowed([*text, token]).size == 0
        assert constraint.allowed([*text, token, 7]).size == 0
    for n in range(len(text), 2, -1):
        fresh.allowed([1, 2, 3])
        assert np.array_equal(constraint.allowed(text[:n]), fresh.allowed(text[:n]))


def test_the_vocabulary_lets_no_control_token_into_a_string(model: Model) -> None:
    constraint = Grammars().constraint(Request(schema='{"type": "string"}'), model, Tokenised([1]))
    assert constraint is not None
    allowed = constraint.allowed([1, *model.tokenize('"a')])
    assert not [token for token in allowed.tolist() if model.is_parsed(token)]


def test_the_mask_reaches_the_last_token(model: Model) -> None:
    constraint = Grammars().constraint(Request(regex="(?s:.*)"), model, Tokenised([1]))
    assert constraint is not None
    plain = [token for token in range(model.n_vocab) if not model.is_parsed(token) and not model.is_eog(token)]
    assert constraint.allowed([1])[-1] == plain[-1]
    assert plain[-1] > model.n_vocab - 32


def test_json_has_no_free_white_space(model: Model) -> None:
    """Small models loop there."""
    request = Request(schema='{"type": "array", "items": {"const": 1}}')
    constraint = Grammars().constraint(request, model, Tokenised([1]))
    assert constraint is not None
    allowed = constraint.allowed([1, *_spelled(constraint, model, b"[1")]).tolist()
    assert allowed
    assert not [token for token in allowed if model.piece(token).isspace()]


def test_whether_a_text_is_whole(model: Model) -> None:
    owner = Grammars()
    constraint = owner.constraint(FORMS["choices"], model, Tokenised([1]))
    assert constraint is not None
    whole = [1, *_spelled(constraint, model, b"yes")]
    assert is_whole(constraint, whole, owner.ends)
    assert is_whole(constraint, [*whole, int(owner.ends[0])], owner.ends)
    assert not is_whole(constraint, [1], owner.ends)


def _spelled(constraint: Constraint, model: Model, text: bytes) -> list[int]:
    """Return the tokens by which the constraint writes `text`."""
    tokens: list[int] = []
    while text:
        pieces = {token: model.piece(token) for token in constraint.allowed([1, *tokens]).tolist()}
        token = max((token for token, piece in pieces.items() if piece and text.startswith(piece)), key=pieces.get)
        tokens.append(token)
        text = text[len(pieces[token]) :]
    return tokens


# Reasoning.


class Letters:
    """A matcher of one "x"."""

    def __init__(self) -> None:
        self.n = 0

    def mask(self) -> Ids:
        return np.array([9] if self.n else [5], np.int32)

    def consume(self, token: int) -> None:
        self.n += 1

    def rollback(self, n: int) -> None:
        self.n -= n


PIECES = {1: b"<t>", 2: b"</t>", 3: b"a", 4: b"</", 5: b"x", 6: b"t>", 7: b"<s>", 9: b""}
FREE = np.arange(9, dtype=np.int32)


def after(marks: Marks) -> AfterReasoning:
    tokens = {"<t>": [1], "</t>": [2], "<s>": [7], "<ax>": [3, 5, 3]}
    inner = Matched(Letters(), lambda token: token == 9)
    return AfterReasoning(inner, 1, marks, tokens.__getitem__, PIECES.__getitem__, FREE)


def test_the_form_begins_after_the_reasoning() -> None:
    one = after(Marks("<t>", "</t>"))
    assert one.allowed([0]).tolist() == [1, 5]  # reasoning may begin, or the answer
    assert one.allowed([0, 5]).tolist() == [9]
    for thought in ([1, 3], [1, 3, 5, 4], [1]):
        assert one.allowed([0, *thought]) is FREE
    assert one.allowed([0, 1, 3, 2]).tolist() == [5]
    assert one.allowed([0, 1, 3, 4, 6]).tolist() == [5]  # the mark in two tokens
    assert one.allowed([0, 1, 3, 4, 6, 5]).tolist() == [9]
    assert one.allowed([0, 1, 4]) is FREE
    assert one.allowed([0, 1, 4, 6]).tolist() == [5]  # of which the first is all that was thought
    assert one.allowed([0, 1, 3, 3]) is FREE  # back in the reasoning
    assert one.allowed([0, 1, 3, 2, 3]) is NOTHING


def test_a_prompt_that_opens_the_reasoning() -> None:
    one = after(Marks("<t>", "</t>", is_open=True))
    assert one.allowed([0]) is FREE
    assert one.allowed([0, 5, 2]).tolist() == [5]
    assert one.allowed([0, 2]).tolist() == [5], "nothing was thought"


def test_a_mark_that_stands_for_no_reasoning() -> None:
    one = after(Marks("<t>", "</t>", skip="<s>"))
    assert one.allowed([0]).tolist() == [1, 7]
    assert one.allowed([0, 7]).tolist() == [5]


def test_a_mark_of_several_tokens() -> None:
    one = after(Marks("<ax>", "</t>"))
    found = [one.allowed([0, *begun]).tolist() for begun in ([], [3], [3, 5])]
    assert found == [[3, 5], [5], [3]]
    assert one.allowed([0, 3, 5, 3]) is FREE
    assert one.allowed([0, 5]) is one.allowed([0, 5]), "a mask that no mark joins is handed on as it is"


def test_a_model_that_reasons_begins_with_a_thought_or_the_answer(model: Model) -> None:
    """The tokens of the real vocabulary: its marks are read, and its ends end no thought."""
    owner = Grammars()
    constraint = owner.constraint(Request(regex="[ab]"), model, Tokenised([1], marks=Marks("Once", "<|im_start|>")))
    assert isinstance(constraint, AfterReasoning)
    start, end = (model.tokenize(text, parse_special=True) for text in ("Once", "<|im_start|>"))
    assert len(end) == 1, "a control token, which is no text elsewhere"
    assert start[0] in constraint.allowed([1])
    thought = constraint.allowed([1, *start])
    assert thought.size + owner.ends.size == model.n_vocab
    pieces = {model.piece(int(token)) for token in constraint.allowed([1, *start, *end])}
    assert b"a" in pieces
    assert b"c" not in pieces


def test_a_long_thought_is_read_once() -> None:
    """Each token of it is written a few times, although the mask after each is asked for."""
    read: list[int] = []
    one = after(Marks("<t>", "</t>"))
    one._piece = lambda token: read.append(token) or PIECES[token]
    text = [0, 1]
    for _ in range(100):
        assert one.allowed(text) is FREE
        text.append(3)
    assert len(read) < 700


# Forms that cannot be kept.


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('{"properties": {"a": {"items": {"uniqueItems": true}}}}', "/properties/a/items/uniqueItems is a keyword"),
        ('{"properties": {"not": {"not": {}}}}', "/properties/not/not is a keyword"),
        (
            '{"$ref": "#/$defs/q", "$defs": {"q": {"anyOf": [{"type": "string"}, {"if": {}}]}}}',
            ": /$defs/q/anyOf/1/if is",
        ),
        ('{"type": "foo"}', "cannot be kept: Invalid type"),
        ('{"properties": {"a": {"type": "foo"}}}', "cannot be kept at /properties/a: Invalid type"),
        ('{"items": {"anyOf": [{}, {"maxItems": 2.5}]}}', "at /items/anyOf/1: Expected positive integer"),
        ('{"properties": {"a": {"items": {"format": "regex"}}}}', "at /properties/a/items: Unknown format: regex"),
        (
            '{"items": {"oneOf": [{"type": "integer"}, {"minimum": 2}]}}',
            "at /items: the parts of oneOf overlap, or may",
        ),
        (
            '{"enum": [{"type": "foo"}], "items": {"$ref": "#/$defs/x"}}',
            "at /items: $ref /$defs/x is not in the schema",
        ),
        ('{"type": "integer", "minimum": 5, "maximum": 2}', "Unsatisfiable"),
        ('{"type": "string", "pattern": "(?=a)b"}', "look-around"),
        ('{"$ref": "http://x.y/z"}', "$ref http://x.y/z is not in the schema itself, and nothing is looked up"),
        ('{"$ref": "#/$defs/x"}', "$ref /$defs/x is not in the schema itself"),
        ('{"items": {"minimum": -9223372036854775808}}', "at /items: minimum -9223372036854775808 is too far from 0"),
        ('{"maximum": 9007199254740993}', "maximum 9007199254740993 is too far from 0"),  # it would be rounded
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_in_a_line(schema: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        compiled(("schema", schema_text(schema) or ""))
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "form", [("regex", "[a-"), ("grammar", "root ::= foo"), ("grammar", 'start: "a" foo'), ("schema", "{")]
)
def test_a_grammar_that_cannot_be_read_is_refused_in_a_line(form: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        compiled(form)
    assert caught.value.message.startswith(f"--{form[0]} cannot be kept")
    assert caught.value.hint.startswith(f"--{form[0]} "), "an option that can be typed"
    _, value = shlex.split(caught.value.hint)
    compiled((form[0], value))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (("regex", "a(b"), "unclosed group, at '(' in a(b"),
        (("regex", "[z-a]x"), "the start must be <= the end, at 'z-a' in [z-a]x"),
        (("regex", r"\bfoo"), r"lookarounds not supported yet; WordUnicode in regex /\bfoo/"),
        (("schema", '{"type": "string", "pattern": "a(b"}'), "unclosed group, at '(' in a(b"),
        (("grammar", "start: b\nb: foo"), 'line 2, character 4: unknown name: "foo"'),
        (("grammar", 'start: "a'), "line 1, character 10: lexer error"),
        (("grammar", 'root ::= "a" | ('), "Expected ')' at line 1, 'root ::= \"a\" | (' ^"),
    ],
)
def test_what_is_wrong_is_said_without_the_library_s_excerpts(form: tuple[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        compiled(form)
    assert said in caught.value.message
    assert "parse error" not in caught.value.message
    assert " | start:" not in caught.value.message


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (r'root ::= "\u0041BC"', "ABC"),
        (r'root ::= "\u00e9ab"', "éab"),
        (r'root ::= "\U0001F600" [^\u005d]', "😀x"),
        (r'root ::= "\\u0041"', r"\u0041"),  # a backslash, and no number
    ],
)
def test_characters_by_their_numbers(grammar: str, text: str, model: Model) -> None:
    """llguidance's reader of GBNF would take another character where a digit follows, or none."""
    constraint = Grammars().constraint(Request(grammar=grammar), model, Tokenised([1]))
    assert constraint is not None
    assert constraint.allowed([1, *_spelled(constraint, model, text.encode())]).size > 0


def chain(n: int, link: dict[str, Any], place: str = "$defs", spelled: str = "") -> str:
    """Return a schema whose `n` parts refer each to the next one; `spelled` is how a reference spells `place`."""
    refs = [{"$ref": f"#/{spelled or place}/{i}"} for i in range(n + 1)]
    parts: dict[str, Any] = {f"{i}": {**link, "items": refs[i + 1]} for i in range(n)}
    return json.dumps({place: {**parts, f"{n}": {"type": "string"}}, **refs[0]})


SMALLEST = '{"type": "integer", "minimum": -9223372036854775808, "maximum": -9223372036854775808}'
HOSTILE = {
    "chain": chain(4000, {}),
    "chain with names": chain(2000, {"$id": "x"}),
    "chain of odd names": chain(4000, {}, "odd", "%6Fdd"),
    "smallest": SMALLEST,
    "wrong": json.dumps({"anyOf": [{"items": {"properties": {f"{n}": {"not": {}}}}} for n in range(300)]}),
    "wrong inside": '{"items":' * 118 + '{"not": {}}' + "}" * 118,
    "deep": '{"items":' * 5000 + "{}" + "}" * 5000,
    "levels": '{"items":' * 150 + "{}" + "}" * 150,
    "enum": json.dumps({"enum": [f"value number {i}" for i in range(40000)]}),
    "wide": json.dumps({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20000)}}),
    "long": '{"type": "string", "maxLength": 1000000}',
    "many": '{"type": "array", "items": {"type": "string"}, "minItems": 100000}',
    "recursive": '{"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}',
    "pattern": '{"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}',
    "nested": '{"type": "string", "pattern": "^((a{0,100}){0,100}){0,100}$"}',
    "longer": json.dumps({"enum": ["x" * 2_000_000]}),
    "all of": json.dumps({"allOf": [{"type": "string", "pattern": f"^.*{one}.*$"} for one in "abcdefghijkl"]}),
    "multiple": '{"type": "integer", "multipleOf": 999983, "minimum": 0, "maximum": 100000000000}',
}
RULES = "\n".join(f'r{n} ::= "x{n}" root' for n in range(6000))
HOSTILE_GRAMMARS = {
    "smallest, in a grammar": Request(grammar=f"start: %json {SMALLEST}"),
    "chain, in a grammar": Request(grammar=f"start: x %json\n {chain(3000, {})}\nx: /a/"),
    "chain, as an edge sends it": Request(schema=f" {chain(4000, {})}"),
    "regex": Request(regex="(((a{1,50}){1,50}){1,50}){1,50}"),
    "alternatives": Request(regex="(" + "|".join("a" * n + "b" for n in range(500)) + ")*c"),
    "itself": Request(grammar="root ::= a\na ::= b\nb ::= a"),
    "ambiguous": Request(grammar='root ::= root root | "a" | ""'),
    "rules": Request(grammar="root ::= " + " | ".join(f"r{n}" for n in range(6000)) + "\n" + RULES),
}


def end_of_child(work: Callable[[], object], seconds: int = 10) -> int:
    """Return how a child ends that has so many seconds of a processor and 200 MB more memory for `work`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads may hold locks: the child needs none
        child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # a child begins at 0
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (200 << 20), -1))
            with contextlib.suppress(LocalspecError):
                work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no limit on memory")
@pytest.mark.parametrize("name", [*HOSTILE, *HOSTILE_GRAMMARS])
def test_a_hostile_form_comes_to_an_end(name: str, model: Model) -> None:
    """It is refused, or kept within limits of time and memory, which the system keeps."""

    def first_mask() -> None:
        request = HOSTILE_GRAMMARS.get(name) or Request(schema=schema_text(HOSTILE[name]))
        constraint = Grammars().constraint(request, model, Tokenised([1]))
        assert constraint is not None
        constraint.allowed([1])

    assert end_of_child(first_mask) == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no limit on memory")
def test_what_has_no_end_is_caught() -> None:
    assert end_of_child(lambda: [None for _ in iter(int, 1)], seconds=1) != 0
    assert end_of_child(lambda: bytearray(300 << 20)) != 0


@pytest.mark.parametrize(
    ("name", "said"),
    [("itself", "no text has it"), ("recursive", "no text has it"), ("rules", "max is 2000")],
)
def test_a_form_beyond_the_limits_is_refused(name: str, said: str, model: Model) -> None:
    """llguidance tells no caller: it stands still, and has to be asked."""
    request = HOSTILE_GRAMMARS.get(name) or Request(schema=schema_text(HOSTILE[name]))
    constraint = Grammars().constraint(request, model, Tokenised([1]))
    assert constraint is not None
    with pytest.raises(UsageError, match=f"cannot be kept: .*{said}"):
        constraint.allowed([1, int(constraint.allowed([1])[0])])


def test_a_form_that_came_to_the_limits_is_begun_anew(model: Model) -> None:
    """What failed once fails for ever, for texts too that would have stayed within the limits."""
    grammars, request = Grammars(), HOSTILE_GRAMMARS["rules"]
    constraint = grammars.constraint(request, model, Tokenised([1]))
    assert constraint is not None
    first = int(constraint.allowed([1])[0])
    assert grammars.constraint(request, model, Tokenised([1])) is constraint
    with pytest.raises(UsageError, match="cannot be kept"):
        constraint.allowed([1, first])
    assert grammars.constraint(request, model, Tokenised([1])) is not constraint


def test_answers_that_are_written_in_turns_share_no_constraint(model: Model) -> None:
    """A verifier serves several at once: the one must not walk where the other stands, nor one that came before."""
    grammars, request, prompt = Grammars(), FORMS["choices"], Tokenised([1])
    before, one, two = (make(request, model, prompt) for make in (grammars.constraint, grammars.apart, grammars.apart))
    after = grammars.constraint(request, model, prompt)
    assert len({id(each) for each in (before, one, two, after)}) == 4
    assert grammars.apart(Request(), model, prompt) is None
    assert one is not None
    assert one.allowed([1]).size


# What people type.


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("true", ""),
        ('{"type": "array"}', "/ (maxItems)"),
        ('{"type": "array", "prefixItems": [{}], "items": false}', ""),
        ('{"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}',
         "/properties/a (maxLength)"),
        ('{"type": "object"}', "/ (additionalProperties)"),
        ('{"type": "object", "maxProperties": 3, "additionalProperties": {"type": "string", "maxLength": 3}}', ""),
        ('{"anyOf": [{"type": "string", "const": "a"}, {"type": "array", "maxItems": 2, "items": {"type": "string"}}]}',
         "/anyOf/1/items (maxLength)"),
        (json.dumps({"prefixItems": [{"type": "string"}] * 4}),
         "/prefixItems/0 (maxLength), /prefixItems/1 (maxLength), /prefixItems/2 (maxLength), ..."),
    ],
)  # fmt: skip
def test_what_has_no_end_is_told_with_its_path(schema: str, said: str) -> None:
    assert unbounded(schema) == said


def test_the_short_form() -> None:
    assert json.loads(schema_text("name, age int, tags[], score float[]: in percent") or "") == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "score": {"type": "array", "items": {"type": "number"}, "description": "in percent"},
        },
        "required": ["name", "age", "tags", "score"],
        "additionalProperties": False,
    }


def test_texts_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "string"}')
    (tmp_path / "c.txt").write_text("one, two\nthree\n")
    (tmp_path / "g.gbnf").write_text('root ::= "a"')
    assert schema_text(str(tmp_path / "s.json")) == '{"type": "string"}'
    assert choices_text(str(tmp_path / "c.txt")) == "one, two\nthree\n"
    assert grammar_text(f"@{tmp_path / 'g.gbnf'}") == 'root ::= "a"'


@pytest.mark.parametrize(
    ("read", "text", "kind", "said"),
    [
        (schema_text, "missing.json", NotFoundError, "no file missing.json"),
        (schema_text, '{"a', UsageError, "not JSON"),
        (schema_text, "[1]", UsageError, "no schema"),
        (schema_text, "a b c", UsageError, "is not a name and"),
        (choices_text, "one", UsageError, "nothing to choose"),
        (grammar_text, "x.gbnf", NotFoundError, "no file x.gbnf"),
        (grammar_text, "@x: y", NotFoundError, "no file x: y"),
        (grammar_text, "x: y" + " " * 249_997, UsageError, "--grammar is longer than 250000 bytes"),
        (schema_text, "[" + " " * 1_000_000, UsageError, "--schema is longer than 1000000 bytes"),
        (choices_text, " \n", UsageError, "--choices is empty"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_text_that_is_wrong(read, text: str, kind: type[LocalspecError], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        read(text)
    assert caught.value.hint


def test_how_long_a_text_may_be() -> None:
    assert len(grammar_text("x: y" + " " * 249_996) or "") == 250_000
    assert choices_text("a," + "b" * 999_998)


def test_two_forms_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--schema and --regex exclude each other"):
        Request(schema="{}", regex="a").check()
