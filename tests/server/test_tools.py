"""Tools: what a request offers, calls in an answer's text, and calls and results that go back into the prompt."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import ollama
import openai
import pytest
from jsonschema import Draft202012Validator

from localspec.prompt.call_forms import FORMS as CALL_FORMS
from localspec.server import openai as openai_api
from localspec.server.call_pieces import NOT_OFFERED, NOT_WHOLE, CallPiece
from localspec.server.fields import ClientRequest
from localspec.server.refusal import Refusal
from localspec.server.tool_calls import FAILURES, NOT_READ, Call, CallReader, Part, ReadAnswer
from tests.cli.harness import needs_pair
from tests.server.serving import LONG, Server, chat, serving
from tests.server.test_fields import HELLO, SERVED

CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Tell the weather.", "parameters": CITY}},
    {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}},
]
MARKS = [mark for form in CALL_FORMS for mark in form.marks]
ENDS = [form.end for form in CALL_FORMS if form.end]
OSLO = ("weather", {"city": "Oslo"})
WEATHER = {"weather": CITY}
MIXED: Any = {"save": {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"},
              "on": {"type": "boolean"}, "tags": {"type": "array"}}}}  # fmt: skip
SAVED = {"text": "if a < b:\n  say('hi', \"x\")", "n": 3, "on": True, "tags": ["a", "b"]}
SAVED_JSON = json.dumps(SAVED)
TEXT = SAVED["text"]
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
PARAMETERS = (
    f"<parameter=text>\n{TEXT}\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
    '<parameter=on>\nTrue\n</parameter>\n<parameter=tags>\n["a", "b"]\n</parameter>\n'
)
# One call of `save` in the form of each family, whole.
FAMILIES = {
    "Hermes, Qwen 2.5 and 3": f'<tool_call>\n{{"name": "save", "arguments": {SAVED_JSON}}}\n</tool_call>',
    "Qwen3-Coder, Qwen 3.5": f"<tool_call>\n<function=save>\n{PARAMETERS}</function>\n</tool_call>",
    "Qwen3-Coder without its tag": f"<function=save>\n{PARAMETERS}</function>",
    "Seed-OSS": f"<seed:tool_call>\n<function=save>\n{PARAMETERS}</function>\n</seed:tool_call>",
    "MiniMax M2": '<minimax:tool_call>\n<invoke name="save">\n'
    f'<parameter name="text">{TEXT}</parameter>\n<parameter name="n">3</parameter>\n'
    '<parameter name="on">true</parameter>\n<parameter name="tags">["a", "b"]</parameter>\n'
    "</invoke>\n</minimax:tool_call>",
    "GLM 4.5": f"<tool_call>save\n<arg_key>text</arg_key>\n<arg_value>{TEXT}</arg_value>\n<arg_key>n</arg_key>\n"
    "<arg_value>3</arg_value>\n<arg_key>on</arg_key>\n<arg_value>true</arg_value>\n<arg_key>tags</arg_key>\n"
    '<arg_value>["a", "b"]</arg_value>\n</tool_call>',
    "Llama 3": f'{{"name": "save", "parameters": {SAVED_JSON}}}',
    "Llama 3, python": f'<|python_tag|>{{"type": "function", "name": "save", "parameters": {SAVED_JSON}}}',
    "Llama 3.2, pythonic": f"[save(text={TEXT!r}, n=3, on=True, tags=['a', 'b'])]",
    "LFM2": f"<|tool_call_start|>[save(text={TEXT!r}, n=3, on=true, tags=['a', 'b'])]<|tool_call_end|>",
    "Mistral": f'[TOOL_CALLS][{{"name": "save", "arguments": {SAVED_JSON}}}]',
    "Mistral, later": f"[TOOL_CALLS]save[ARGS]{SAVED_JSON}",
    "Mistral, with an id": f"[TOOL_CALLS]save[CALL_ID]abc123def[ARGS]{SAVED_JSON}",
    "gpt-oss": f"<|channel|>commentary to=functions.save <|constrain|>json<|message|>{SAVED_JSON}",
    "gpt-oss, role first": f" to=functions.save<|channel|>commentary json<|message|>{SAVED_JSON}",
    "gpt-oss, behind a thought": "<|end|><|start|>assistant<|channel|>commentary to=functions.save "
    f"<|constrain|>json<|message|>{SAVED_JSON}<|call|>",
    "Gemma 4": f'<|tool_call>call:save{{text:<|"|>{TEXT}<|"|>,n:3,on:true,tags:[<|"|>a<|"|>,<|"|>b<|"|>]}}<tool_call|>',
    "FunctionGemma": f"<start_function_call>call:save{{text:<escape>{TEXT}<escape>,n:3,on:true,"
    "tags:[<escape>a<escape>,<escape>b<escape>]}<end_function_call>",
    "DeepSeek V3.1": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>save<｜tool▁sep｜>{SAVED_JSON}"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "DeepSeek V3": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>save\n```json\n{SAVED_JSON}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "Kimi K2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.save:0<|tool_call_argument_begin|>"
    f"{SAVED_JSON}<|tool_call_end|><|tool_calls_section_end|>",
    "Granite 3": f'<|tool_call|>[{{"name": "save", "arguments": {SAVED_JSON}}}]',
    "Phi-4": f'<|tool_call|>[{{"name": "save", "arguments": {SAVED_JSON}}}]<|/tool_call|>',
    "Command": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "save", '
    f'"parameters": {SAVED_JSON}}}]<|END_ACTION|>',
    "tools": f'<tools>{{"name": "save", "arguments": {SAVED_JSON}}}</tools>',
    "function_call": f'<function_call>{{"name": "save", "arguments": {SAVED_JSON}}}</function_call>',
    "fenced": f'```json\n{{\n  "name": "save",\n  "arguments": {SAVED_JSON}\n}}\n```',
    "fenced, no word": f'```\n{{"name": "save", "arguments": {SAVED_JSON}}}\n```',
}
BARE = ("Llama 3", "Llama 3.2, pythonic")  # forms without a mark, which text before them makes text
# Small departures from a form.
DEPARTURES = {
    "cut": '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}',
    "text": '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}</tool_call>',
    "doubled": '{{"name": "weather", "arguments": {"city": "Oslo"}}}',
    "comma": HERMES.replace("\n</", ",\n</"),
}
TEXTS = [
    "It is <tool",
    "An array [TOOL",
    " \n 3 < 4 and [1]",
    "",
    "{}",
    '{"name": "Ann"}',
    '{"name": "dance", "arguments": {}}',
    "{ is a brace",
    "```json\n[1]\n```",
    "```\nx = 1\n```\nand ```json\n{}\n``` more",
    "``` and more",
    "`",
    '{"name": "weather", "arguments": 3}',
    "[]",
    "[weather(city)]",
    "[weather('Oslo')]",
    "[1] a note [2]",
    "[weather](https://oslo.example)",
    "{weather",
]
BROKEN = [
    "<tool_call>{weather}</tool_call>",
    "<tool_call>{}</tool_call> and so on",
    "[TOOL_CALLS][{]",
    "Well <|python_tag|>print(1)",
    '<tool_call>{"name": "dance", "arguments": {}}</tool_call>',
    "<tool_call>" + "[" * 5000,
    "<|tool_call>call:weather{a:" + "[" * 5000,
    "<|tool_call_start|>[" + "(" * 5000,
    "<tool_call><function=weather> and <parameter=x></tool_call>",
    r'<tool_call>{"name": "weather", "arguments": {"city": "\ud800"}}</tool_call>',  # no text has half a character
    '<tool_call>{"name": "weather", "arguments": {"height": NaN}}</tool_call>',
    '<tool_call>{"name": "weather", "arguments": {"height": 1e999}}</tool_call>',
]


def text_of(parts: Iterable[Part]) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def calls_of(parts: Iterable[Part]) -> list[tuple[str, Any]]:
    """Return the calls that a client makes of parts: a name comes first, then pieces of arguments, then the end."""
    calls: list[tuple[str, Any]] = []
    open_call: list[str] = []
    for part in parts:
        if isinstance(part, Call):
            calls.append((part.name, part.arguments))
        elif isinstance(part, CallPiece):
            assert part.index == len(calls)
            assert part.is_first == (not open_call)
            open_call.append(part.name if part.is_first else part.text)
            if part.is_last:
                calls.append((open_call[0], json.loads("".join(open_call[1:]))))
                open_call = []
    assert not open_call
    return calls


def pieces_of(
    text: str, tools: Any, cuts: tuple[int, ...], *, in_pieces: bool = False
) -> tuple[str, list[tuple[str, Any]], str]:
    """Return what is shown of a text that is cut at `cuts`, the calls, and the warning."""
    reader = CallReader(tools, in_pieces=in_pieces)
    parts = [part for a, b in zip((0, *cuts), (*cuts, len(text)), strict=True) for part in reader.feed(text[a:b])]
    rest = reader.finish()
    parts += rest.parts
    return text_of(parts), calls_of(parts), rest.warning


@pytest.mark.parametrize(("before", "after"), [("", ""), ("Let me see. ", ""), ("See: ", "\nDone."), ("", " Bye.")])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_of_each_family_is_read(family: str, before: str, after: str) -> None:
    """Whole, character by character and cut anywhere; the text around it stays text."""
    if (before or after) and family in BARE:
        return
    text = before + FAMILIES[family] + after
    every = tuple(range(1, len(text)))
    for cuts in ((), every, *((at,) for at in every[:: 1 + len(text) // 15])):
        for in_pieces in (False, True):
            read_in_pieces = pieces_of(text, MIXED, cuts, in_pieces=in_pieces)
            assert read_in_pieces == (before + after.lstrip(), [("save", SAVED)], "")
    read = CallReader(MIXED).read(text)
    assert (read.text, [(call.name, call.arguments) for call in read.calls]) == ((before + after.lstrip()).strip(), [
        ("save", SAVED)])  # fmt: skip


@pytest.mark.parametrize("form", DEPARTURES)
def test_a_small_departure_is_read(form: str) -> None:
    assert pieces_of(DEPARTURES[form], WEATHER, ())[1:] == ([OSLO], "")


def test_a_call_without_arguments() -> None:
    for text in ('{"name": "time"}', '<tool_call>{"name": "time", "arguments": {}}</tool_call>', "[time()]",
                 "<tool_call>time</tool_call>", "<function=time></function>"):  # fmt: skip
        (call,) = CallReader({"time": {}}).read(text).calls
        assert (call.name, call.arguments) == ("time", {})


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in (*BARE, "gpt-oss, role first")])
def test_several_calls(family: str) -> None:
    """Text between two calls stays, and both stand."""
    form = FAMILIES[family]
    for between in ("\n", "\nAnd: "):
        read = CallReader(MIXED).read(form + between + form)
        assert [(call.name, call.arguments) for call in read.calls] == [("save", SAVED)] * 2
        assert (read.text, read.warning) == (between.strip(), "")
        assert read.calls[0].id != read.calls[1].id
        assert all(len(call.id) == 9 and call.id.isalnum() for call in read.calls)


def test_several_calls_without_marks() -> None:
    plain = '{"name": "weather", "parameters": {"city": "Oslo"}}'
    listed = '[TOOL_CALLS][{"name": "weather", "arguments": {}}, {"name": "weather", "arguments": {}}]'
    for text in (f"{plain}; {plain}", f"{plain}\n{plain}", listed, '[weather(city="Oslo"), weather(city="Rome")]'):
        assert [call.name for call in CallReader(WEATHER).read(text).calls] == ["weather"] * 2


def test_a_bad_call_does_not_lose_the_good_ones() -> None:
    for bad in (HERMES.replace("weather", "dance"), HERMES.replace("{", "(")):
        for text in (f"{HERMES}\n{bad}", f"{bad}\n{HERMES}", f"{HERMES}{bad}{HERMES}"):
            read = CallReader(WEATHER).read(text)
            assert {(call.name, str(call.arguments)) for call in read.calls} == {(OSLO[0], str(OSLO[1]))}
            assert read.text == bad
            assert read.warning == NOT_READ
    listed = '[TOOL_CALLS][{"name": "dance", "arguments": {}}, {"name": "weather", "arguments": {"city": "Oslo"}}]'
    read = CallReader(WEATHER).read(listed)
    assert ([(call.name, call.arguments) for call in read.calls], read.warning) == ([OSLO], NOT_OFFERED)


def test_a_text_in_a_call_may_have_the_mark() -> None:
    for mark in ("</tool_call>", "<tool_call>", "</tool_call><tool_call>"):
        text = (HERMES + "\n").replace("Oslo", f"a{mark} b") * 2
        for cuts in ((), tuple(range(1, len(text)))):
            assert pieces_of(text, WEATHER, cuts)[1] == [("weather", {"city": f"a{mark} b"})] * 2


def test_a_parameter_may_have_the_mark_of_its_end() -> None:
    value = "<b></parameter> and </function></b>"
    text = f"<tool_call><function=save><parameter=text>{value}</parameter></function></tool_call>"
    assert pieces_of(text, MIXED, ())[1] == [("save", {"text": value})]


@pytest.mark.parametrize("text", [*TEXTS, *BROKEN], ids=lambda text: repr(text[:30]))
def test_what_is_no_call_is_text(text: str) -> None:
    """Nothing of it is lost, in whatever pieces it comes; a mark without a call is warned of."""
    read = CallReader(WEATHER).read(text)
    assert (read.text, read.calls) == (text, [])
    assert read.warning == (NOT_READ if text in BROKEN else "")
    assert pieces_of(text, WEATHER, tuple(range(1, len(text))))[:2] == (text, [])


CUT = '<tool_call>{"name": "weather", "arguments": {"a": "</tool_call>'


@pytest.mark.parametrize("part", [*MARKS, *ENDS, "{", '{"a":', "<tool_call>{", "<tool_call><function=weather>", CUT])
def test_a_long_text_that_is_no_call_passes(part: str) -> None:
    """All of it comes back, and the work does not grow by the square: that would take hours."""
    size = 200_000
    text = (part * (size // len(part)))[:size]
    for n in (size, 40):
        assert pieces_of(text, WEATHER, tuple(range(n, len(text), n)))[0] == text
        reader = CallReader(WEATHER, in_pieces=True)
        parts = [part for at in range(0, len(text), n) for part in reader.feed(text[at : at + n])]
        parts += reader.finish().parts
        assert text_of(parts) == text or part == CUT  # calls that have begun, and are broken


def test_names_of_json_in_calls_of_python() -> None:
    text = '[weather(a=true, b=false, c=null, d=[True, {"k": false, "m": None}])]'
    (call,) = CallReader(WEATHER).read(text).calls
    assert call.arguments == {"a": True, "b": False, "c": None, "d": [True, {"k": False, "m": None}]}


def test_how_many_ends_may_stand_in_an_argument() -> None:
    """Behind the last one the rest is text, and comes at once."""
    reader, begun = CallReader(WEATHER), '<tool_call>{"name": "'
    assert reader.feed(begun) == []
    for _ in range(FAILURES - 1):
        assert reader.feed("</tool_call>") == []
    assert reader.feed("</tool_call>") == [begun + FAILURES * "</tool_call>"]
    assert reader.feed(HERMES) == [HERMES]
    assert (reader.finish(), FAILURES) == (ReadAnswer((), NOT_READ), 32)


def test_what_a_call_brings_is_sent_at_once() -> None:
    """Each piece as it is written, name first; what may be the end of a value waits."""
    steps: list[tuple[str, list[str]]] = [
        ("Well. <tool_call>", ["Well. "]),
        ('\n{"name": "sa', []),
        ('ve", "arguments": ', []),
        ('{"te', ["save", '{"te']),
        ('xt": "a</tool_call>\n', ['xt": "a</tool_call>\\n']),
        ('b\\', ['b\\']),
        ('"c"}', ['"c"}', "end"]),
        ("}\n</tool_call>", []),
        ("\n<tool_call>\n<function=save>\n<parameter=", ["save"]),
        ("text>", ['{"text": "']),
        ("\n", []),
        ("a < b </par", ["a < b "]),
        ("a> c\n", ["</para> c"]),
        ("</parameter>", []),
        (" x</parameter>\n", ["\\n</parameter> x"]),
        ("<parameter=n>\n", ['"', ', "n": ']),
        ("12", []),
        ("\n</parameter>\n</function>", ["12", "}", "end"]),
        ("\n</tool_call> Bye", ["Bye"]),
    ]  # fmt: skip
    reader = CallReader(MIXED, in_pieces=True)
    for text, expected in steps:
        said = [
            part if isinstance(part, str) else part.name if part.is_first else "end" if part.is_last else part.text
            for part in reader.feed(text)
            if not isinstance(part, Call)
        ]
        assert "".join(said) == "".join(expected), text
    assert reader.finish().has_called


BAD = '<tool_call>{"name": "weather", "arguments": {"city": %s}}</tool_call>'


@pytest.mark.parametrize("value", ["nope", "NaN", "1e999", r'"\ud800"', "3,", '"Oslo'])
def test_a_broken_call_in_pieces_loses_no_other(value: str) -> None:
    """What was sent of it stands, and a warning tells; the text behind it and the good call come."""
    text = f"See {BAD % value} and {HERMES}\nDone."
    reader = CallReader(WEATHER, in_pieces=True)
    parts = [*(part for each in text for part in reader.feed(each)), *(end := reader.finish()).parts]
    assert text_of(parts) == "See and Done."
    assert (end.warning, end.has_called) == (NOT_WHOLE, True)
    ends = [part for part in parts if isinstance(part, CallPiece) and part.is_last]
    assert [(part.index, part.is_broken) for part in ends] == [(0, True), (1, False)]


CUTS = [HERMES[:-16], "<tool_call><function=weather><parameter=city>Os", '{"name": "weather", "arguments": {"ci']


@pytest.mark.parametrize("text", CUTS)
def test_a_call_that_a_limit_cuts(text: str) -> None:
    """In pieces it stays cut, and the answer has not called; a whole answer has it as text."""
    reader = CallReader(WEATHER, in_pieces=True)
    parts = [*(part for each in text for part in reader.feed(each)), *(end := reader.finish()).parts]
    assert [part.is_broken for part in parts if isinstance(part, CallPiece) and part.is_last] == [True]
    assert (text_of(parts), end.warning, end.has_called) == ("", NOT_WHOLE, False)
    assert (CallReader(WEATHER).read(text).text, CallReader(WEATHER).read(text).has_called) == (text, False)


def test_calls_of_other_tools_are_passed_over_between_those_that_are_sent() -> None:
    for mark, end in (("[TOOL_CALLS]", ""), ("<|tool_call|>", "<|/tool_call|>")):
        calls = [{"name": name, "arguments": {"city": "Oslo"}} for name in ("weather", "dance", "weather")]
        text = f"{mark}{json.dumps(calls)}{end}"
        read = pieces_of(text, WEATHER, tuple(range(1, len(text))), in_pieces=True)
        assert read == ("", [OSLO, OSLO], NOT_OFFERED)


def test_text_comes_at_once_where_no_call_can_begin() -> None:
    reader = CallReader(WEATHER)
    assert reader.feed("Once upon a") == ["Once upon a"]
    assert reader.feed("time <to") == ["time "]
    assert reader.feed("day>") == ["<today>"]
    assert reader.feed("```json\n3") == ["```json\n3"]
    assert CallReader(WEATHER).feed("[1] is") == ["[1] is"]
    assert CallReader(WEATHER).feed("{x}") == ["{x}"]


def test_calls_and_text_behind_them_come_at_once() -> None:
    reader = CallReader(WEATHER)
    assert calls_of(reader.feed(HERMES)) == [OSLO]
    assert reader.feed("\n\nWell") == ["Well"]
    assert reader.finish().has_called


def read(**fields: Any) -> ClientRequest:
    return openai_api.chat({"messages": HELLO, **fields}, SERVED)


def test_a_reference_in_parameters_means_a_place_in_them() -> None:
    """As tools made from classes have them; the call around the parameters is another schema."""
    town = {"type": "object", "properties": {"city": {"$ref": "#/$defs/Name"}, "next": {"$ref": "#"}},
            "$defs": {"Name": {"enum": ["Oslo"]}}, "required": ["city"]}  # fmt: skip
    tools = [{"type": "function", "function": {"name": name, "parameters": town}} for name in ("a", "b.é")]
    for choice in ("required", {"type": "function", "function": {"name": "b.é"}}):
        schema = json.loads(read(tools=tools, tool_choice=choice).request.schema or "")
        call = Draft202012Validator(schema)
        assert call.is_valid({"name": "b.é", "arguments": {"city": "Oslo", "next": {"city": "Oslo"}}})
        assert not call.is_valid({"name": "b.é", "arguments": {"city": "Rome"}})
        assert not call.is_valid({"name": "b.é", "arguments": {"city": "Oslo", "next": {"name": "a"}}})


def tool(name: str = "x", parameters: Any = CITY) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def nested(levels: int) -> Any:
    return {"x": nested(levels - 1)} if levels else 1


@pytest.mark.parametrize(
    ("tools", "is_taken"),
    [
        ([tool()] * 128, True),
        ([tool()] * 129, False),
        ([tool("x" * 128)], True),
        ([tool("x" * 129)], False),
        ([tool(parameters=nested(40))], True),
        ([tool(parameters=nested(41))], False),
    ],
    ids=["128", "129", "a name of 128", "a name of 129", "40 levels", "41 levels"],
)
def test_how_much_may_be_offered(tools: list[dict[str, Any]], is_taken: bool) -> None:
    if is_taken:
        assert json.loads(read(tools=tools).request.tools or "") == tools
    else:
        with pytest.raises(Refusal):
            read(tools=tools)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--temp", "0", "-n", "160") as server:
        yield server


@needs_pair
def test_a_required_call_by_openais_package(server: Server) -> None:
    """Whatever the model would write: the form holds it to a call of one of the tools."""
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        said: Any = [{"role": "user", "content": LONG}]
        made = client.chat.completions.create(model="storyteller", messages=said, tools=TOOLS, tool_choice=choice)
        (call,) = made.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
        assert made.choices[0].finish_reason == "tool_calls"
        stream = client.chat.completions.create(
            model="storyteller", messages=said, tools=TOOLS, tool_choice="required", stream=True
        )
        functions = [delta.function for chunk in stream for delta in chunk.choices[0].delta.tool_calls or []]
        assert functions[0] is not None
        assert functions[0].name in ("weather", "time")
        assert len(functions) > 2
        assert isinstance(json.loads("".join((each and each.arguments) or "" for each in functions)), dict)
        said += [made.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
        after = client.chat.completions.create(model="storyteller", messages=said, tools=TOOLS, max_tokens=4)
        assert after.usage is not None
        assert after.usage.completion_tokens == 4


@needs_pair
def test_a_prompt_has_tools_calls_and_results(server: Server) -> None:
    """As text where the model has no template for them, with one warning."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    said = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "RAIN"}]
    body = chat("Hello", tools=TOOLS)
    prompt = server.post("/apply-template", messages=[*body["messages"], *said], tools=TOOLS)["prompt"]
    for text in ("Tell the weather.", '{"name": "weather", "arguments": {"city": "Oslo"}}', "RAIN"):
        assert prompt.count(text) == 1
    assert "Tell the weather" not in server.post("/apply-template", **{**body, "tool_choice": "none"})["prompt"]


@needs_pair
def test_tools_by_ollamas_package(server: Server) -> None:
    client = ollama.Client(host=server.url)
    made = client.chat("storyteller", messages=[{"role": "user", "content": LONG}], tools=TOOLS)
    assert made.message.content or made.message.tool_calls
