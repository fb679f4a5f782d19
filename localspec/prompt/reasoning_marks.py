"""The marks around a model's reasoning, as its chat template names them; and gpt-oss's channels, which are such marks.

A model reasons if its template names the marks: to open the reasoning at the end of the prompt, or to leave that of
earlier answers out. Nothing is guessed from the answer itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from localspec.engine.reasoning import Marks
from localspec.settings.request import Message

# gpt-oss thinks aloud on a channel of its own, and its answer follows on another: marks that are part of what it wrote.
_CHANNEL = "<|channel|>"
_HEAD = re.compile(
    r"(?:\A\s*|<\|start\|>assistant[^<]*)<\|channel\|>(?P<channel>\w++)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
_REFUSED = re.compile(r"<\|channel\|>(analysis|final)<\|message\|>")  # by its template, wherever it stands
_FINAL = "<|channel|>final<|message|>"

KNOWN = (
    Marks("<think>", "</think>"),  # DeepSeek R1, Qwen3, GLM, MiniMax and most others
    Marks("<seed:think>", "</seed:think>"),
    Marks("<thinking>", "</thinking>"),
    Marks("<thought>", "</thought>"),
    Marks("<reasoning>", "</reasoning>"),
    Marks("[THINK]", "[/THINK]"),  # Magistral
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    Marks(f"{_CHANNEL}analysis<|message|>", f"<|end|><|start|>assistant{_FINAL}", skip=_FINAL),
)


def marks_of(template: str, prompt: str) -> Marks | None:
    """Return the marks that a template names, None if it names none; `prompt` is what it rendered."""
    for marks in KNOWN:
        if marks.start in template or marks.end in template:
            return replace(marks, is_open=prompt.rstrip().endswith(marks.start))
    return None


def without_reasoning(messages: Sequence[Message], specials: Collection[str]) -> Sequence[Message]:
    """Return `messages` without what was thought before earlier answers, as the template of gpt-oss insists.

    A thought that no answer followed is left out with its question: the template would make an empty answer of it.
    """
    if _CHANNEL not in specials:
        return messages
    kept: list[Message] = []
    for message in messages:
        if message.role == "assistant" and _CHANNEL in message.content:
            answer = _answer(message.content)
            if not answer.strip():
                if kept and kept[-1].role == "user":
                    kept.pop()
                continue
            # A space in a quotation costs less than the template, which would give way for the whole conversation.
            message = replace(message, content=_REFUSED.sub(r"<|channel|> \1<|message|>", answer))
        kept.append(message)
    return kept


def _answer(said: str) -> str:
    """Return what follows the first head of the final channel; without one, all that is no thought."""
    heads = list(_HEAD.finditer(said))
    for head in heads:
        if head["channel"] == "final":
            return said[head.end() :]
    ends = [*(head.start() for head in heads), len(said)]
    parts = [said[head.end() : end] for head, end in zip(heads, ends[1:], strict=True) if head["channel"] != "analysis"]
    return "\n\n".join(part.removesuffix("<|end|>") for part in (said[: ends[0]], *parts) if part.strip())
