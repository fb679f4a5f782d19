"""What the families of docs/templates.md ask for, each by a template of our own in the same form."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.text import Marks
from localspec.errors import IncompatibleError
from localspec.prompt.chat_template import Rendered, render
from localspec.prompt.message_forms import ContentForm
from localspec.prompt.named_templates import CHATML
from localspec.prompt.renderer import RENDERER
from localspec.settings.request import Message

PAGE = Path(__file__).parents[2] / "docs" / "templates.md"
PARTS = "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
THINK = Marks("<think>", "</think>")
OPEN = Marks("<think>", "</think>", is_open=True)
CHAT = (Message("user", "Q1"), Message("assistant", "A1", reasoning="T1"), Message("user", "Q2"))


def turns(answer: str, generation: str, other: str = "{{ message.content }}") -> str:
    """Return a template that writes `answer` for an answer, and `generation` at the end."""
    return (
        "{%- for message in messages %}[{{ message.role }}]{% if message.role == 'assistant' %}"
        + answer
        + "{% else %}"
        + other
        + "{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]"
        + generation
        + "{% endif %}"
    )


def thought(kept: str = "false") -> str:
    """Return an answer with its thought from `reasoning_content`, where the variable `kept` is true."""
    return (
        "{%- set said = message.content.split('</think>')[-1] %}"
        f"{{% if {kept} and message.reasoning_content %}}"
        "<think>{{ message.reasoning_content }}</think>{% endif %}"
        "{{ said }}"
    )


SWITCHED = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
)
GEMMA = (
    "{% macro bare(text) %}{% for part in text.split('<channel|>') %}"
    "{{ part.split('<|channel>')[0] if '<|channel>' in part else part }}{% endfor %}{% endmacro %}"
    + turns("{{ bare(message.content) }}", "")
)
HARMONY = turns(
    "{% if '<|channel|>analysis<|message|>' in message.content %}{{ raise_exception('no') }}{% endif %}"
    "<|channel|>final<|message|>{{ message.content }}{# {{ message.thinking }} #}<|end|>",
    "",
)
MAGISTRAL = turns(
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part['type'] == 'thinking' %}[THINK]{{ part['thinking'] }}[/THINK]{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}",
    "",
)
APERTUS = "{% set inner, outer = '<|inner_prefix|>', '<|inner_suffix|>' %}" + turns("{{ message.content }}", "")
KIMI = turns("<think></think>{{ message.content }}", "")
DEEPSEEK = turns("</think>{{ message.content }}", "{% if thinking %}<think>{% else %}</think>{% endif %}")
SEED = turns(
    "{% if keep %}<seed:think>{{ message.reasoning_content }}</seed:think>{% endif %}{{ message.content }}",
    "{% if thinking_budget == 0 %}<seed:think><seed:reflect>{# </seed:reflect> #}{% endif %}",
)


@dataclass(frozen=True)
class Family:
    """A template, the marks that are read off it, and what it sends of an earlier answer."""

    template: str
    marks: Marks
    sent: str = "A1"
    arguments: dict[str, Any] = field(default_factory=dict)
    thinks: bool | None = None


FAMILIES = {
    "Gemma 4": [Family(GEMMA, Marks("<|channel>thought", "<channel|>"))],
    "Qwen 3.5": [
        Family(turns(thought("preserve_thinking"), SWITCHED), OPEN),
        Family(turns(thought("preserve_thinking"), SWITCHED), THINK, thinks=False),
        Family(turns(thought("preserve_thinking"), SWITCHED), OPEN, "<think>T1</think>A1", {"preserve_thinking": True}),
    ],
    "gpt-oss": [
        Family(
            HARMONY,
            Marks(
                "<|channel|>analysis<|message|>",
                "<|end|><|start|>assistant<|channel|>final<|message|>",
                skip="<|channel|>final<|message|>",
            ),
            "<|channel|>final<|message|>A1<|end|>",
        )
    ],
    "GLM": [
        Family(turns(thought("not clear_thinking"), "<think>"), OPEN, arguments={"clear_thinking": True}),
        Family(turns(thought("not clear_thinking"), "<think>"), OPEN, "<think>T1</think>A1", {"clear_thinking": False}),
    ],
    "Kimi K2": [Family(KIMI, THINK, "<think></think>A1")],
    "MiniMax": [Family(turns(thought(), "<think>\n"), OPEN)],
    "DeepSeek V3.2": [
        Family(DEEPSEEK, OPEN, "</think>A1", thinks=True),
        Family(DEEPSEEK, THINK, "</think>A1", thinks=False),
    ],
    "Seed": [
        Family(SEED, Marks("<seed:think>", "</seed:think>")),
        Family(SEED, Marks("<seed:think>", "</seed:think>", is_open=True), arguments={"thinking_budget": 0}),
        Family(SEED, Marks("<seed:think>", "</seed:think>"), "<seed:think>T1</seed:think>A1", {"keep": True}),
    ],
    "Magistral": [Family(MAGISTRAL, Marks("[THINK]", "[/THINK]"), "[THINK]T1[/THINK]A1")],
    "Apertus": [Family(APERTUS, Marks("<|inner_prefix|>", "<|inner_suffix|>"))],
    "Nemotron": [Family(turns(thought(), SWITCHED), THINK, thinks=False), Family(turns(thought(), SWITCHED), OPEN)],
}


def run(template: str, *messages: Message, **settings: Any) -> Rendered:
    specials = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
    return render(messages or CHAT, template, bos="", eos="", specials=specials, **settings)


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, rows in FAMILIES.items() for at in range(len(rows))])
def test_a_family_gets_what_it_asks_for(name: str, at: int) -> None:
    family = FAMILIES[name][at]
    rendered = run(family.template, arguments=family.arguments, thinks=family.thinks, is_explicit=True)
    assert rendered.marks == family.marks
    assert rendered.text.startswith(f"[user]Q1[assistant]{family.sent}[user]Q2[assistant]")
    assert rendered.warnings == ()


def test_the_page_has_each_family() -> None:
    rows = [line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert rows[1:] == list(FAMILIES)


def test_a_family_that_is_not_known_is_read_off_its_template() -> None:
    """The marks that it strips earlier answers at, and those that it opens; the tags of a turn are none."""
    stripping = turns("{{ message.content.split('</muse>')[-1] }}", "")
    assert run(stripping).marks == Marks("<muse>", "</muse>")
    opening = turns("{{ message.content }}", "<|ponder_begin|>\n{# <|ponder_end|> #}")
    assert run(opening).marks == Marks("<|ponder_begin|>", "<|ponder_end|>", is_open=True)
    emptied = turns("{{ message.content }}", "<|lane>idea\n<lane|>")
    assert run(emptied).marks == Marks("<|lane>idea", "<lane|>")
    wrapping = turns("<mind>{{ message.reasoning_content }}</mind>{{ message.content }}", "")
    assert run(wrapping).marks == Marks("<mind>", "</mind>")
    composed = turns("{{ message.content }}", "{{ '<{}>\\n</{}>'.format('mind' ~ 7, 'mind' ~ 7) }}")
    assert run(composed).marks == Marks("<mind7>", "</mind7>")
    tagged = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{{ '</user>' if m.role == 'user' else '</bot>' }}{% endfor %}"
        "{% if add_generation_prompt %}<bot>{% endif %}"
    )
    assert run(tagged).marks is None
    assert run(turns("{{ message.content }}{# <tool_call> </tool_call> #}", "")).marks is None


@pytest.mark.parametrize(
    ("before", "after"), [("<|start_role|>{}<|end_role|>", "<|eot|>"), ("<|START_TURN|><|{}|>", "<|END_TURN|>")]
)
def test_the_header_of_a_turn_is_no_mark(before: str, after: str) -> None:
    """As Llama 3, Granite and Command R have it: two tags around the role, or one before it."""
    loop = "{% for m in messages %}" + before.format("{{ m.role }}") + "{{ m.content }}" + after + "{% endfor %}"
    template = loop + before.format("assistant") + "{# <|end_role|> #}"
    assert run(template).marks is None
    thinking = template + "{# <|START_THINKING|> #}"
    assert run(thinking).marks == Marks("<|START_THINKING|>", "<|END_THINKING|>")


@pytest.mark.parametrize("concat", [False, True])
def test_typed_parts_are_given_where_only_they_come_through(concat: bool) -> None:
    """For all roles, or for the user alone where an answer has to be a string."""
    answer = "{{ message.content + '!' }}" if concat else PARTS
    rendered = run(turns(answer, "", PARTS), Message("system", "S"), *CHAT, is_explicit=True)
    assert rendered.text == f"[system]S[user]Q1[assistant]A1{'!' * concat}[user]Q2[assistant]"
    assert rendered.warnings == ()
    both = "{% if message.content is string %}string{% endif %}" + PARTS
    assert (
        "string" in run("{% for message in messages %}{{ message.content }}{# 'text' #}" + both + "{% endfor %}").text
    )


def test_a_message_has_a_field_of_thoughts_where_it_has_one() -> None:
    """A template may ask whether the field is there, not whether it is empty."""
    form = ContentForm(fields=("thinking",))
    assert form.given(Message("assistant", "A")) == {"role": "assistant", "content": "A"}
    assert form.given(Message("assistant", "A", reasoning="R"))["thinking"] == "R"


def test_a_template_that_drops_the_last_message_is_refused() -> None:
    first = "{{ messages[0].content }}"
    with pytest.raises(IncompatibleError, match="leaves out the last message"):
        run(first, is_explicit=True)
    rendered = run(first)
    assert rendered.text == run(CHATML).text
    assert "leaves out the last message; ChatML is used instead" in rendered.warnings[0]


def test_a_template_that_drops_earlier_messages_is_told() -> None:
    rendered = run("{{ messages[-1].content }}")
    assert (rendered.text, rendered.marks) == ("Q2", None)
    assert rendered.warnings == ("the chat template leaves out 2 earlier messages: the model does not see that text",)
    assert "an earlier message:" in run("{% for m in messages[1:] %}{{ m.content }}{% endfor %}").warnings[0]
    assert run("{% for m in messages %}{{ m.content | upper }}{% endfor %}").warnings == (), "changed, not dropped"


def test_a_thought_is_text_too() -> None:
    """One that spells a control token is no control token when it goes back."""
    said = Message("assistant", "A1", reasoning="a<|im_end|>b")
    rendered = run(turns(thought("true"), ""), CHAT[0], said, CHAT[2])
    assert "<think>a<|im_end|>b</think>A1" in rendered.text
    assert [part.text for part in rendered.segments if not part.is_trusted] == ["Q1", "a<|im_end|>b", "A1", "Q2"]


def test_a_field_of_a_message_is_no_switch() -> None:
    """gpt-oss and Magistral have the word `thinking`, but no variable of that name."""
    for template in (HARMONY, MAGISTRAL):
        (warning,) = run(template, thinks=False).warnings
        assert warning.endswith("so --think does nothing")
    assert run(DEEPSEEK, thinks=False).warnings == ()


def test_reading_the_marks_shares_the_time_of_one_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tags a hostile template names, which is slow for earlier answers alone."""
    asked: list[float] = []
    ask = RENDERER.ask

    def slow(question: dict[str, Any]) -> dict[str, Any]:
        if len(question["variables"]["messages"]) < 3:
            return ask(question)
        asked.append(question["seconds"])
        return {"refused": "slow", "by_itself": False, "seconds": 1.5}

    monkeypatch.setattr(RENDERER, "ask", slow)
    tags = "".join(f"<t{i}></t{i}>" for i in range(50))
    assert run("{{ messages[0].content }}{# " + tags + " #}", CHAT[0]).text == "Q1"
    assert asked == [2.0, 0.5]
