"""Templates are compared by what they render."""

import os
from pathlib import Path

import pytest

from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import model_info
from localspec.prompt.chat_template import DIFFER, renders_alike, template_warnings
from localspec.prompt.named_templates import CHATML, NAMED
from tests.prompt.test_chat_template import GEMMA, LLAMA2

TOOLS = "{%- if tools %}{{ tools | tojson }}{{ '}}' }}{%- endif %}" + CHATML
REAL = Path(os.environ.get("LOCALSPEC_REAL", "/nonexistent"))


def test_another_text_may_be_the_same_template() -> None:
    assert TOOLS != CHATML
    assert renders_alike(CHATML, TOOLS)
    assert template_warnings(CHATML, TOOLS) == ()
    assert renders_alike(CHATML, CHATML + "{# a comment #}")
    assert renders_alike(None, None)


@pytest.mark.parametrize(
    "other",
    [
        LLAMA2,
        NAMED["phi4"].source,
        CHATML.replace("assistant\\n", "assistant\\n<think>"),  # the generation prompt alone
        CHATML + "{% if messages[0]['role'] == 'system' %}!{% endif %}",  # chats with a system message
        CHATML + "{% if messages | length > 2 %}!{% endif %}",  # later turns
        "{{ raise_exception('no') }}",
        "",
    ],
)
def test_prompts_that_differ_anywhere_are_told(other: str) -> None:
    assert not renders_alike(CHATML, other)
    assert template_warnings(CHATML, other) == (DIFFER,)


def test_what_both_refuse_makes_no_difference() -> None:
    assert renders_alike(GEMMA, GEMMA + "\n")
    assert renders_alike("{{ raise_exception('no') }}", "{{ raise_exception('never') }}")


def test_a_date_makes_no_difference() -> None:
    dated = "{{ strftime_now('%H:%M:%S') }}" + CHATML
    assert renders_alike(dated, dated + " ".strip() + "{# again #}")


def test_a_draft_without_a_template_has_none_to_differ() -> None:
    assert template_warnings(CHATML, None) == ()
    assert template_warnings(None, CHATML) == (DIFFER,)


@pytest.mark.skipif(not REAL.is_dir(), reason="LOCALSPEC_REAL names no folder of real models")
def test_the_real_pair_is_alike() -> None:
    """Its templates differ by two braces in the part for tools."""
    names = ("1.5b", "0.5b")
    found = [model_info(read_header(REAL / f"qwen2.5-coder-{name}-instruct-q4_k_m.gguf")) for name in names]
    assert found[0].chat_template != found[1].chat_template
    assert template_warnings(found[0].chat_template, found[1].chat_template) == ()
