"""A last message of the assistant is gone on with, unless the request says otherwise."""

from pathlib import Path
from typing import Any

import pytest

from localspec.server import anthropic, ollama, openai
from localspec.server.refusal import Refusal
from tests.cli.harness import needs_pair
from tests.server.serving import serving
from tests.server.test_fields import HELLO, SERVED

BEGUN: list[dict[str, Any]] = [*HELLO, {"role": "assistant", "content": "Once upon"}]
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
THINKING = TEMPLATE.replace("[assistant]", "[assistant]<think>")


@pytest.mark.parametrize(
    ("fields", "resumes", "opens"),
    [
        ({}, True, True),
        ({"add_generation_prompt": True}, False, True),
        ({"add_generation_prompt": False}, True, False),
        ({"continue_final_message": False}, False, True),
        ({"continue_final_message": True, "add_generation_prompt": False}, True, False),
    ],
    ids=str,
)
def test_which_message_is_gone_on_with(fields: dict[str, Any], resumes: bool, opens: bool) -> None:
    request = openai.chat({"messages": BEGUN, **fields}, SERVED).request
    assert (request.resumes, request.opens_turn) == (resumes, opens)


def test_only_text_of_the_assistant() -> None:
    for read in (openai.chat, anthropic.messages, ollama.chat):
        assert read({"messages": BEGUN}, SERVED).request.resumes  # type: ignore[operator]
        for last in (HELLO[0], {"role": "assistant", "content": ""}):
            assert not read({"messages": [*HELLO, last]}, SERVED).request.resumes  # type: ignore[operator]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    called = [*HELLO, {"role": "assistant", "content": "x", "tool_calls": [call]}]
    assert not openai.chat({"messages": called}, SERVED).request.resumes
    with pytest.raises(Refusal) as caught:
        openai.chat({"messages": HELLO, "continue_final_message": True}, SERVED)
    assert caught.value.param == "continue_final_message"


@needs_pair
def test_the_prompt_ends_with_its_text(tmp_path: Path) -> None:
    for template, ends in (
        (TEMPLATE, {"": "[user]Hello[assistant]Once upon", "new": "[assistant]Once upon[assistant]"}),
        (THINKING, {"": "[assistant]<think></think>\n\nOnce upon", "new": "Once upon[assistant]<think>"}),
    ):
        (tmp_path / "t.jinja").write_text(template)
        with serving("--temp", "0", "-n", "4", "--template", str(tmp_path / "t.jinja")) as server:
            parts = [HELLO[0], {"role": "assistant", "content": [{"type": "text", "text": "Once upon"}]}]
            for messages in (BEGUN, parts):
                prompt = server.post("/apply-template", messages=messages)["prompt"]
                assert prompt.endswith(ends[""])
                assert server.post("/v1/chat/completions", messages=messages)["choices"][0]["message"]["content"]
            again = server.post("/apply-template", messages=BEGUN, add_generation_prompt=True)["prompt"]
            assert again.endswith(ends["new"])
            closed = server.post("/apply-template", messages=HELLO, add_generation_prompt=False)["prompt"]
            assert closed.endswith("[user]Hello")
