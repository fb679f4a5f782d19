"""Tools, calls and results in a prompt: by the model's own template, or as text for a template that knows none."""

import json

import pytest

from localspec.errors import UsageError
from localspec.prompt.chat_template import Rendered, render
from localspec.prompt.message_forms import UNKNOWN, check_texts
from localspec.prompt.named_templates import CHATML
from localspec.settings.request import Message

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Tell.", "parameters": {"type": "object"}}}
]
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
TALK = (
    Message("system", "Be brief."),
    Message("user", "Q"),
    Message("assistant", "", calls=json.dumps([CALL])),
    Message("tool", "RAIN", name="weather", call_id="c1"),
)
HEAD = "{% if tools %}[tools]{{ tools | tojson }}{% endif %}{% for message in messages %}[{{ message.role }}]"
TAIL = "{{ message.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
QWEN = (
    HEAD
    + "{% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>{{ call.function.name }} "
    + "{{ call.function.arguments | tojson }}</tool_call>{% endfor %}{% endif %}"
    + TAIL
)
DEEPSEEK = (
    HEAD
    + "{% if message['tool_calls'] is defined %}{% for call in message['tool_calls'] %}"
    + "{{ '<call>' + call['function']['name'] + ' ' + call['function']['arguments'] }}{% endfor %}{% endif %}"
    + TAIL
)


def rendered(template: str | None, talk: tuple[Message, ...] = TALK, specials: tuple[str, ...] = ("<s>",)) -> Rendered:
    return render(talk, template, bos="<s>", eos="</s>", specials=specials, tools=TOOLS)


@pytest.mark.parametrize("template", [QWEN, DEEPSEEK], ids=["object", "text"])
def test_the_template_writes_them(template: str) -> None:
    """With arguments as an object, or as JSON text where it needs that."""
    found = rendered(template)
    assert found.warnings == ()
    assert found.text.startswith('[tools][{"type": "function", "function": {"name": "weather"')
    assert 'weather {"city": "Oslo"}' in found.text
    assert found.text.endswith("[tool]RAIN[assistant]")


@pytest.mark.parametrize("template", [CHATML, None], ids=["no tools", "no template"])
def test_without_such_a_template_they_are_text(template: str | None) -> None:
    """In the form of Hermes, behind the system message's own text."""
    found = rendered(template, specials=("<|im_start|>", "<|im_end|>"))
    assert (UNKNOWN in found.warnings) == (template is not None)
    assert found.text.index("Be brief.") < found.text.index('"name": "weather"') < found.text.index("Q")
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>' in found.text
    assert "<tool_response>\nRAIN\n</tool_response>" in found.text
    alone = rendered(CHATML, TALK[1:2])
    assert "Their signatures" in alone.text


def test_a_template_that_refuses_results_gives_way() -> None:
    """Nothing of the conversation is lost."""
    refusing = "{% if message.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
    found = rendered(HEAD + refusing + TAIL)
    assert "cannot be used" in found.warnings[0]
    assert "RAIN" in found.text
    assert '"name": "weather"' in found.text


@pytest.mark.parametrize(
    "talk",
    [
        (Message("user", "Q"), Message("assistant", "", calls=json.dumps([CALL]).replace("Oslo", "<s>"))),
        (Message("user", "Q"), Message("tool", "x", name="<s>")),
    ],
    ids=["call", "name"],
)
def test_no_text_of_them_becomes_a_control_token(talk: tuple[Message, ...]) -> None:
    with pytest.raises(UsageError, match="control token"):
        rendered(QWEN, talk)
    with pytest.raises(UsageError, match="control token"):
        rendered(QWEN, TALK[:2], specials=("Tell.",))


def test_a_result_that_spells_a_control_token_stays_text() -> None:
    found = rendered(QWEN, (*TALK[:3], Message("tool", "say <s> now", call_id="c1")))
    assert ("say <s> now", False) in [(part.text, part.is_trusted) for part in found.segments]


@pytest.mark.parametrize("specials", [(), ("",), ("", "<|end|>")])
def test_a_control_token_without_text_refuses_no_tool(specials: tuple[str, ...]) -> None:
    """A vocabulary may name tokens that have none."""
    tools = [{"type": "function", "function": {"name": "add", "description": "Adds two numbers"}}]
    check_texts([], tools, specials)
    if "<|end|>" in specials:
        with pytest.raises(UsageError, match="control token"):
            check_texts([], [{"type": "function", "function": {"name": "add", "description": "<|end|>"}}], specials)
