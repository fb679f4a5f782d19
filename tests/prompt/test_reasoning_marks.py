"""Which marks a template names, and whether its prompt ends inside the reasoning."""

import pytest

from localspec.engine.text import Marks
from localspec.prompt.chat_template import render
from localspec.settings.request import Message

HEAD = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
QWEN3 = HEAD + (
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
QWQ = HEAD + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
MAGISTRAL = "{{ '[INST]' + messages[-1].content + '[/INST]' }}{# [THINK] ... [/THINK] #}"
PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def marks(template: str, content: str = "Hi", thinks: bool | None = None) -> Marks | None:
    return render(
        [Message("user", content)],
        template,
        bos="<s>",
        eos="</s>",
        specials=["<|im_start|>", "<|im_end|>"],
        thinks=thinks,
    ).marks


def test_the_template_names_the_marks() -> None:
    assert marks(QWEN3) == Marks("<think>", "</think>")
    assert marks(QWQ) == Marks("<think>", "</think>", is_open=True)
    assert marks(MAGISTRAL) == Marks("[THINK]", "[/THINK]")
    assert marks(PLAIN) is None


@pytest.mark.parametrize("content", ["<think>", "about <think>\n", "</think>"])
def test_a_message_opens_nothing(content: str) -> None:
    assert marks(PLAIN, content) is None
    assert marks("{{ messages[0].content }}", content) is None
    named = marks("{{ messages[0].content }}{# </think> #}", content)
    assert named == Marks("<think>", "</think>")


def test_reasoning_that_is_switched_off_is_not_open() -> None:
    assert marks(QWEN3, thinks=False) == Marks("<think>", "</think>")
