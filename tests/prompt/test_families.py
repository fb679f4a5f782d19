"""What the families of docs/templates.md ask for, each by a template of our own in the same form."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.engine.text import Marks
from localspec.errors import IncompatibleError
from localspec.prompt.chat_template import render
from localspec.prompt.message_forms import ContentForm, forms_of
from localspec.prompt.named_templates import CHATML
from localspec.prompt.renderer import RENDERER
from localspec.settings.request import Message
from tests.prompt.families import (
    CHAT,
    DEEPSEEK,
    FAMILIES,
    HARMONY,
    KIMI,
    MAGISTRAL,
    NEMOTRON_2,
    OPEN,
    PARTS,
    THINK,
    run,
    thought,
    turns,
)

PAGE = Path(__file__).parents[2] / "docs" / "templates.md"


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, rows in FAMILIES.items() for at in range(len(rows))])
def test_a_family_gets_what_it_asks_for(name: str, at: int) -> None:
    family = FAMILIES[name][at]
    rendered = run(family.template, arguments=family.arguments, thinks=family.thinks, is_explicit=True)
    assert rendered.marks == family.marks
    assert rendered.text.startswith(f"[user]Q1[assistant]{family.sent}[user]Q2[assistant]")
    assert rendered.warnings == ()


def rows() -> dict[str, dict[str, str]]:
    """Return the table of the page: the cells of each family, by the names of their columns."""
    head, _, *lines = [
        re.split(r" \| |\|-", line.strip("| ")) for line in re.findall(r"^\|.*$", PAGE.read_text(), re.M)
    ]
    return {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in lines}


def named(cell: str) -> list[str]:
    return [each.replace("\\|", "|") for each in re.findall("`([^`]+)`", cell)]


def contents(template: str, shape: Callable[[str], Any]) -> str:
    """Return what a template makes of a chat whose contents have a shape, "" where it fails."""
    wire = [{"role": each.role, "content": shape(each.content)} for each in CHAT]
    with suppress(UndefinedError):
        return ImmutableSandboxedEnvironment().from_string(template).render(messages=wire, add_generation_prompt=True)
    return ""


def test_the_page_has_each_family() -> None:
    assert list(rows()) == list(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_takes_the_content_that_its_row_tells(name: str) -> None:
    shapes: dict[str, Callable[[str], Any]] = {
        "parts": lambda text: [{"type": "text", "text": text}],
        "blocks": lambda text: {"blocks": [{"type": "response", "text": text}]},
    }
    cell = rows()[name]["content"]
    for family in FAMILIES[name]:
        as_text = contents(family.template, str)
        taken = [form for form, shape in shapes.items() if contents(family.template, shape) == as_text]
        assert " or ".join(["string", *taken]) == cell


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_the_marks_that_its_row_tells(name: str) -> None:
    cell = rows()[name]["marks"]
    for family in FAMILIES[name]:
        told = [family.marks.start, family.marks.end]
        assert all(any(mark in part for part in told) for mark in named(cell)[:1])
    assert any(family.marks.is_open for family in FAMILIES[name]) >= ("opened" in cell)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_sends_the_system_message_as_its_row_tells(name: str) -> None:
    """One that comes later goes before the next question where the template takes the first alone."""
    cell = rows()[name]["system message"]
    role = "developer" if "developer" in cell else "system"
    system, later = Message("system", "S"), Message("system", "L")
    for family in FAMILIES[name]:
        asked = {"arguments": family.arguments, "thinks": family.thinks, "is_explicit": True}
        rendered = run(family.template, system, *CHAT, **asked)
        assert f"[{role}]S" in rendered.text
        assert rendered.warnings == ()
        rendered = run(family.template, system, CHAT[0], later, CHAT[2], **asked)
        if cell == "first only":
            assert f"[{role}]S" in rendered.text
            assert "[user]Q1[user]L\n\nQ2" in rendered.text
            assert "later ones were put before the next question" in rendered.warnings[0]
        else:
            assert "[user]Q1[system]L[user]Q2" in rendered.text


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_gets_the_thought_in_the_field_that_its_row_tells(name: str) -> None:
    cell = rows()[name]["field of a thought"]
    for family in FAMILIES[name]:
        form = next(iter(forms_of(family.template, {"user", "assistant"})))
        assert form.has_thoughts == ("parts" in cell)
        assert form.fields == tuple(field for field in named(cell) if not form.has_thoughts)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_reads_the_arguments_that_its_row_tells(name: str) -> None:
    told = [word for cell in rows()[name].values() for word in named(cell) if re.fullmatch(r"\w+_\w+|thinking", word)]
    fields = set(named(rows()[name]["field of a thought"]))
    templates = [family.template for family in FAMILIES[name]]
    for argument in set(told) - fields:
        assert any(not run(template, arguments={argument: True}).warnings for template in templates), argument
    switch = {"enable_thinking", "thinking"} & set(named(rows()[name]["arguments"]))
    unread = [any("--think does nothing" in each for each in run(each, thinks=True).warnings) for each in templates]
    assert all(unread) == (not switch)


def test_kimi_keeps_the_thoughts_behind_its_last_answer() -> None:
    """Those that led to a call, whose result is asked about."""
    calls = '[{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]'
    call = Message("assistant", "C", reasoning="T2", calls=calls)
    rendered = run(KIMI, *CHAT, call, Message("tool", "R", name="f", call_id="1"), is_explicit=True)
    assert "[assistant]<think></think>A1[user]Q2[assistant]<think>T2</think>C" in rendered.text


@pytest.mark.parametrize("specials", [(), ("<think>", "</think>")])
@pytest.mark.parametrize("is_taken_out", [False, True])
@pytest.mark.parametrize("said", ["Q </think>", "Q"])
def test_a_word_of_a_message_switches_reasoning(specials: tuple[str, ...], said: str, is_taken_out: bool) -> None:
    """As Nemotron has it: the prompt ends otherwise, and so the marks, whether or not they are control tokens."""
    other = "{{ message.content.replace('/no_think', '').strip() }}" if is_taken_out else "{{ message.content }}"
    template = NEMOTRON_2.replace("{{ message.content }}{% endif %}{% endif %}", other + "{% endif %}{% endif %}")
    assert is_taken_out == (template != NEMOTRON_2)
    for word, marks in ((" /no_think", THINK), ("", OPEN), (" not/thinking", OPEN)):
        rendered = render((Message("user", said + word),), template, bos="", eos="", specials=specials)
        shown = said + word * (word != " /no_think" or not is_taken_out)
        ending = "<think></think>" if marks == THINK else "<think>\n\n"
        assert (rendered.text, rendered.marks) == (f"[user]{shown}[assistant]{ending}", marks)
        assert all("</think>" not in part.text or not part.is_trusted or "[assistant]" in part.text
                   for part in rendered.segments if specials)  # fmt: skip


@pytest.mark.parametrize("word", ["/no_think", "/nothink"])
def test_only_the_words_that_a_template_looks_for_are_taken_out(word: str) -> None:
    """`/think` is text for a template that knows the other word alone."""
    taken_out = "{{ message.content.replace('/no_think', '').strip() }}"
    template = NEMOTRON_2.replace("{{ message.content }}{% endif %}{% endif %}", taken_out + "{% endif %}{% endif %}")
    said = Message("user", f"open /think </think> {word}")
    rendered = render((said,), template.replace("/no_think", word), bos="", eos="", specials=("<think>", "</think>"))
    assert rendered.text == "[user]open /think </think>[assistant]<think></think>"


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
