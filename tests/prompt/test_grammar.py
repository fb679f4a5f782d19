"""Masks of llguidance on the storyteller's vocabulary, and what is said of forms that cannot be kept."""

import contextlib
import ctypes
import json
import os
import resource
import shlex
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from localspec.backends.model import Model
from localspec.engine.constraint import NOTHING, Constraint, Matched, is_whole
from localspec.engine.distribution import Ids
from localspec.engine.text import Marks
from localspec.errors import LocalspecError, UsageError
from localspec.prompt.after_reasoning import AfterReasoning
from localspec.prompt.form import compiled
from localspec.prompt.grammar import Grammars, GuidanceMatcher
from localspec.prompt.prompt import Tokenised
from localspec.settings.request import Request
from localspec.settings.structure import choices_text, schema_text
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


PIECES = {1: b"<t>", 2: b"</t>", 3: b"a", 4: b"</", 5: b"x", 6: b"t>", 7: b"<s>", 9: b""}  # </t> is 2, or 4 and 6
FREE = np.arange(9, dtype=np.int32)


def after(marks: Marks) -> AfterReasoning:
    tokens = {"<t>": [1], "</t>": [2], "<s>": [7], "<ax>": [3, 5, 3]}
    inner = Matched(Letters(), lambda token: token == 9)
    return AfterReasoning(inner, 1, marks, tokens.__getitem__, PIECES.__getitem__, FREE)


def test_the_form_begins_after_the_reasoning() -> None:
    one = after(Marks("<t>", "</t>"))
    assert one.allowed([0]).tolist() == [1, 5]  # reasoning may begin, or the answer
    assert one.allowed([0]).dtype == np.int32
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
    assert after(Marks("", "</t>", skip="<s>")).allowed([0]).tolist() == [7], "no mark begins a thought"


def test_a_mark_of_several_tokens() -> None:
    one = after(Marks("<ax>", "</t>"))
    found = [one.allowed([0, *begun]).tolist() for begun in ([], [3], [3, 5])]
    assert found == [[3, 5], [5], [3]]
    assert one.allowed([0, 3, 5, 3]) is FREE
    assert one.allowed([0, 5]) is one.allowed([0, 5]), "a mask that no mark joins is handed on as it is"


def test_an_end_of_several_tokens_that_come_one_by_one() -> None:
    one = after(Marks("<t>", "</at>"))
    assert all(one.allowed([0, *begun]) is FREE for begun in ([1], [1, 4], [1, 4, 3]))
    assert one.allowed([0, 1, 4, 3, 6]).tolist() == [5]


def test_a_mark_that_begins_and_ends() -> None:
    one = after(Marks("<t>", "<t>"))
    assert one.allowed([0, 1]) is FREE
    assert one.allowed([0, 1, 3, 1]).tolist() == [5]


@pytest.mark.parametrize("marks", [Marks("Once", "<|im_start|>"), Marks("<|im_start|>", "Once")])
def test_a_model_that_reasons_begins_with_a_thought_or_the_answer(model: Model, marks: Marks) -> None:
    """The tokens of the real vocabulary: its marks are read, and its ends end no thought."""
    owner = Grammars()
    constraint = owner.constraint(Request(regex="[ab]"), model, Tokenised([1], marks=marks))
    assert isinstance(constraint, AfterReasoning)
    start, end = (model.tokenize(text, parse_special=True) for text in (marks.start, marks.end))
    assert min(len(start), len(end)) == 1, "a control token, which is no text elsewhere"
    assert start[0] in constraint.allowed([1])
    thought = constraint.allowed([1, *start])
    assert thought.size + owner.ends.size == model.n_vocab
    assert thought.dtype == owner.ends.dtype == np.int32
    pieces = {model.piece(int(token)) for token in constraint.allowed([1, *start, *end])}
    assert b"a" in pieces
    assert b"c" not in pieces


def test_a_long_thought_is_read_once() -> None:
    """Each token of it is written a few times, although the mask after each is asked for."""
    read: list[int] = []
    one = after(Marks("<t>", "</t>"))
    one.piece = lambda token: read.append(token) or PIECES[token]
    text = [0, 1]
    for _ in range(100):
        assert one.allowed(text) is FREE
        text.append(3)
    assert len(read) < 700
    for _ in range(2):  # nor is it read again in the answer behind it
        read.clear()
        assert one.allowed([*text, 2, 5]).tolist() == [9]
    assert len(read) == 5


# The matcher of llguidance.


def test_a_model_that_ends_no_text_gives_no_form() -> None:
    class Endless:
        n_vocab = 3
        special = SimpleNamespace(bos=None)

        def is_eog(self, token: int) -> bool:
            return False

        is_parsed = is_eog

        def piece(self, token: int, special: bool = False) -> bytes:
            return b"a"

    with pytest.raises(UsageError, match="this model has no token that ends a text, so no answer has a form") as caught:
        Grammars().constraint(Request(regex="a"), cast("Model", Endless()), Tokenised([1]))
    assert caught.value.hint == "another model"


def test_the_last_form_alone_is_kept_and_the_vocabulary_once(model: Model) -> None:
    owner, prompt = Grammars(), Tokenised([1])
    one = owner.constraint(FORMS["choices"], model, prompt)
    tokenizer = owner._tokenizer
    assert owner.constraint(FORMS["choices"], model, prompt) is one
    other = owner.constraint(FORMS["regex"], model, prompt)
    assert other is not one
    assert owner.constraint(FORMS["choices"], model, prompt) not in (one, other)
    assert owner._tokenizer is tokenizer


class Bits:
    """A matcher of llguidance whose mask holds all tokens or none, and that fails as it steps on."""

    def __init__(self, bits: int) -> None:
        self.bits, self.has_stepped = bits, False

    def unsafe_compute_mask_ptr(self, at: int, n: int) -> None:
        ctypes.memset(at, self.bits, n)

    def consume_token(self, token: int) -> None:
        self.has_stepped = True

    def is_error(self) -> bool:
        return self.has_stepped

    def get_error(self) -> str:
        return "too far"


def test_what_a_matcher_says_is_a_mask_or_an_error(model: Model) -> None:
    owner = Grammars()
    matcher = owner._matched(("regex", "a"), model)._matcher
    matcher._n_vocab = 37
    matcher._matcher = Bits(255)
    assert matcher.mask().tolist() == list(range(37))
    matcher._matcher = Bits(0)
    with pytest.raises(UsageError, match="--regex cannot be kept: nothing may follow here"):
        matcher.mask()
    with pytest.raises(UsageError, match="--regex cannot be kept: too far"):
        matcher.consume(5)
    with pytest.raises(UsageError, match="--regex cannot be kept"):
        GuidanceMatcher(owner._tokenizer, "no grammar", model.n_vocab, ("regex", "a"))


def test_a_control_token_is_known_by_its_name_in_a_grammar(model: Model) -> None:
    (token,) = model.tokenize("<|im_start|>", parse_special=True)
    constraint = Grammars().constraint(Request(grammar='start: <|im_start|> "a"'), model, Tokenised([1]))
    assert constraint is not None
    assert constraint.allowed([1]).tolist() == [token]


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


def test_a_type_that_does_not_exist_is_told_which_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        compiled(("schema", '{"properties": {"a": {"type": "strin"}}}'))
    assert caught.value.message == "--schema cannot be kept at /properties/a: Invalid type: strin"
    assert caught.value.hint == "string, integer, number, boolean, array, object or null"


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


@pytest.mark.parametrize(
    ("grammar", "whole", "parts"),
    [
        ('root ::= "a" ([0-9]+)?', ["a", "a12"], []),
        ('root ::= ("ab"+)*', ["", "abab"], ["a", "aba"]),
        ("root ::= ([a-b]{2,3}){2}", ["abba", "ababab"], ["a", "aba"]),
        ('root ::= ( "y"? )?', ["", "y"], []),
        ('root ::= (("a"+)?)+ "b"', ["b", "aab"], ["a"]),
        ('root ::= "(+)?" ( "x" | "y"* )+', ["(+)?", "(+)?xyy"], ["(+)"]),
        ("root ::= ([+)*]+)? # (+)?", ["", "+)*"], []),
    ],
)
def test_what_is_repeated_is_repeated_in_a_group(
    grammar: str, whole: list[str], parts: list[str], model: Model
) -> None:
    """llguidance's reader of GBNF drops the brackets around one such part."""
    owner = Grammars()
    constraint = owner.constraint(Request(grammar=grammar), model, Tokenised([1]))
    assert constraint is not None
    for text in [*whole, *parts]:
        tokens = [1, *_spelled(constraint, model, text.encode())]
        assert is_whole(constraint, tokens, owner.ends) == (text in whole)


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
def test_a_form_beyond_the_limits_is_refused(
    name: str, said: str, model: Model, capfd: pytest.CaptureFixture[str]
) -> None:
    """llguidance tells no caller: it stands still, and has to be asked."""
    request = HOSTILE_GRAMMARS.get(name) or Request(schema=schema_text(HOSTILE[name]))
    constraint = Grammars().constraint(request, model, Tokenised([1]))
    assert constraint is not None
    with pytest.raises(UsageError, match=f"cannot be kept: .*{said}"):
        constraint.allowed([1, int(constraint.allowed([1])[0])])
    assert capfd.readouterr() == ("", ""), "the library itself says nothing"


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
