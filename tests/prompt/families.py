"""Templates in the form of the families of docs/templates.md, written for the tests, and what is read off each."""

from dataclasses import dataclass, field
from typing import Any

from localspec.engine.text import Marks
from localspec.prompt.chat_template import Rendered, render
from localspec.settings.request import Message

PARTS = "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
THINK = Marks("<think>", "</think>")
OPEN = Marks("<think>", "</think>", is_open=True)
CHAT = (Message("user", "Q1"), Message("assistant", "A1", reasoning="T1"), Message("user", "Q2"))


VISIBLE = (
    "{% macro visible(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}"
)
FIRST = (
    "{% if messages[0].role == 'system' %}[system]{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
)
ALONE = FIRST + (  # later ones are refused, or left out
    "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('not first') }}{% endif %}"
    "{% endfor %}"
)


def turns(answer: str, generation: str, other: str = "{{ message.content }}", head: str = "") -> str:
    """Return a template that writes `answer` for an answer, and `generation` at the end; `head` may take messages."""
    skipped = "{% if message.role == 'system' %}{% else %}" if head.startswith(FIRST) else "{% if true %}"
    return (
        head
        + "{%- for message in messages %}"
        + skipped
        + "[{{ message.role }}]{% if message.role == 'assistant' %}"
        + answer
        + "{% else %}"
        + other
        + "{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]"
        + generation
        + "{% endif %}"
    )


def in_parts(template: str) -> str:
    """Return a template that reads content as a string or as typed parts, where the given one reads a string."""
    return VISIBLE + template.replace("message.content", "visible(message.content)")


def thought(kept: str = "false") -> str:
    """Return an answer with its thought from `reasoning_content`, where the variable `kept` is true."""
    return (
        "{%- set said = message.content.split('</think>')[-1] %}"
        f"{{% if {kept} and message.reasoning_content %}}"
        "<think>{{ message.reasoning_content }}</think>{% endif %}"
        "{{ said }}"
    )


STRIPPED = "{{ message.content.split('</think>')[-1] }}"
SWITCHED = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
)
UNSAID = "{% for m in messages %}{% if '/no_think' in m.content %}{% set ns.thinks = false %}{% endif %}{% endfor %}"
GEMMA = (
    "{% macro bare(text) %}{% for part in text.split('<channel|>') %}"
    "{{ part.split('<|channel>')[0] if '<|channel>' in part else part }}{% endfor %}{% endmacro %}"
    + in_parts(turns("{{ bare(message.content) }}", "", head="{% if enable_thinking %}<|think|>{% endif %}"))
)
QWEN = in_parts(turns(thought("preserve_thinking"), SWITCHED, head=ALONE))
HARMONY = (
    "{% set effort = reasoning_effort or 'medium' %}{% if messages[0].role == 'system' %}"
    "[developer]{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
    + turns(
        "{% if '<|channel|>analysis<|message|>' in message.content %}{{ raise_exception('no') }}{% endif %}"
        "<|channel|>final<|message|>{{ message.content }}{# {{ message.thinking }} #}<|end|>",
        "",
    )
)
GLM = in_parts(
    turns(
        thought("not clear_thinking"),
        "{% if enable_thinking is defined and not enable_thinking %}</think>{% else %}<think>{% endif %}",
    )
)
MAGISTRAL = turns(
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part['type'] == 'thinking' %}[THINK]{{ part['thinking'] }}[/THINK]{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}",
    "",
    "{{ message.content if message.content is string else message.content[0]['text'] }}",
)
SAID_OR_BLOCKS = (
    "{% if message.content is string %}{{ message.content }}{% else %}{% for block in message.content.blocks %}"
    "{{ block.text }}{% endfor %}{% endif %}"
)
APERTUS = "{% set inner, outer = '<|inner_prefix|>', '<|inner_suffix|>' %}" + turns(
    SAID_OR_BLOCKS, "", SAID_OR_BLOCKS, "{% set thinks = enable_thinking %}"
)
KIMI = (
    "{{ tools or '' }}{% set ns = namespace(last=-1) %}{% for m in messages %}"
    "{% if m.role == 'assistant' and not m.tool_calls %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    + in_parts(
        turns(
            "<think>{% if loop.index0 > ns.last %}{{ message.reasoning_content }}{% endif %}</think>"
            "{{ message.content }}{{ message.tool_calls or '' }}",
            "",
        )
    )
)
MINIMAX = in_parts(turns(thought("loop.last"), "<think>\n", head=FIRST))


def deepseek(name: str) -> str:
    """Return the template of V3.2 or of V3.1: the variable `name` opens the thought."""
    answer = "{% if loop.last %}{{ message.get('reasoning_content', '') }}{% endif %}</think>{{ message.content }}"
    return turns(answer, f"{{% if {name} %}}<think>{{% else %}}</think>{{% endif %}}", head=FIRST)


DEEPSEEK = deepseek("thinking")
SEED = turns(
    "{% if keep %}<seed:think>{{ message.reasoning_content }}</seed:think>{% endif %}{{ message.content }}",
    "{% if thinking_budget == 0 %}<seed:think><seed:reflect>{# </seed:reflect> #}{% endif %}",
    head=FIRST,
)
NEMOTRON = turns(STRIPPED, SWITCHED, head=FIRST)
NEMOTRON_2 = turns(
    STRIPPED,
    "{% if ns.thinks %}<think>\n\n{% else %}<think></think>{% endif %}",
    head=FIRST + "{% set ns = namespace(thinks=true) %}" + UNSAID,
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
        Family(QWEN, OPEN),
        Family(QWEN, THINK, thinks=False),
        Family(QWEN, OPEN, "<think>T1</think>A1", {"preserve_thinking": True}),
    ],
    "gpt-oss": [
        Family(
            HARMONY,
            Marks(
                "<|channel|>analysis<|message|>",
                "<|end|><|start|>assistant<|channel|>final<|message|>",
                skip="<|channel|>final<|message|>",
                calls=("<|end|><|start|>assistant<|channel|>commentary to=",),
            ),
            "<|channel|>final<|message|>A1<|end|>",
        )
    ],
    "GLM": [
        Family(GLM, OPEN, arguments={"clear_thinking": True}),
        Family(GLM, OPEN, "<think>T1</think>A1", {"clear_thinking": False}),
        Family(GLM, THINK, arguments={"clear_thinking": True}, thinks=False),
    ],
    "Kimi K2": [Family(KIMI, THINK, "<think></think>A1")],
    "MiniMax": [Family(MINIMAX, OPEN)],
    "DeepSeek V3.2": [
        Family(deepseek("enable_thinking"), OPEN, "</think>A1", thinks=True),
        Family(deepseek("enable_thinking"), THINK, "</think>A1", thinks=False),
        Family(DEEPSEEK, OPEN, "</think>A1", thinks=True),
    ],
    "Seed": [
        Family(SEED, Marks("<seed:think>", "</seed:think>")),
        Family(SEED, Marks("<seed:think>", "</seed:think>", is_open=True), arguments={"thinking_budget": 0}),
        Family(SEED, Marks("<seed:think>", "</seed:think>"), "<seed:think>T1</seed:think>A1", {"keep": True}),
    ],
    "Magistral": [Family(MAGISTRAL, Marks("[THINK]", "[/THINK]"), "[THINK]T1[/THINK]A1")],
    "Apertus": [Family(APERTUS, Marks("<|inner_prefix|>", "<|inner_suffix|>"))],
    "Nemotron": [Family(NEMOTRON, THINK, thinks=False), Family(NEMOTRON, OPEN), Family(NEMOTRON_2, OPEN)],
}


def run(template: str, *messages: Message, **settings: Any) -> Rendered:
    specials = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
    return render(messages or CHAT, template, bos="", eos="", specials=specials, **settings)
