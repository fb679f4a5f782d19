"""The marks around a model's reasoning, as its chat template names them; and gpt-oss's channels, which are such marks.

A model reasons if its template shows the marks: it opens the reasoning at the end of the prompt, or leaves that of
earlier answers out. Both are seen by rendering. Nothing is guessed from the answer itself.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from localspec.engine.text import Marks
from localspec.prompt.renderer import Program, Refused
from localspec.settings.request import Message

# gpt-oss thinks aloud on a channel of its own, and its answer follows on another: marks that are part of what it wrote.
_CHANNEL = "<|channel|>"
_HEAD = re.compile(
    r"(?:\A\s*|<\|start\|>assistant[^<]*)<\|channel\|>(?P<channel>\w++)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
_REFUSED = re.compile(r"<\|channel\|>(analysis|final)<\|message\|>")  # by its template, wherever it stands
_FINAL = "<|channel|>final<|message|>"

KNOWN = (
    Marks("<think>", "</think>"),  # Qwen, DeepSeek, GLM, Kimi K2, MiniMax, Nemotron and most others
    Marks("<|channel>thought", "<channel|>"),  # Gemma 4
    Marks("<seed:think>", "</seed:think>"),
    Marks("<thinking>", "</thinking>"),
    Marks("<thought>", "</thought>"),
    Marks("<reasoning>", "</reasoning>"),
    Marks("[THINK]", "[/THINK]"),  # Magistral
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    Marks("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Marks("◁think▷", "◁/think▷"),  # Kimi VL
    Marks(
        f"{_CHANNEL}analysis<|message|>",
        f"<|end|><|start|>assistant{_FINAL}",
        skip=_FINAL,
        calls=(f"<|end|><|start|>assistant{_CHANNEL}commentary to=",),
    ),
)
_TAG = re.compile(r"<[^<>\s'\"{}]{1,40}>|\[/?[A-Z_]{2,40}\]|◁/?\w{1,40}▷")
_ENDINGS = (
    (r"^([<\[◁])(?=[^/|])", r"\1/"),  # <x> </x>, [X] [/X]
    (r"^<\|(?!/)", "<|/"),  # <|x|> <|/x|>
    (r"^<\|([^|]+)>$", r"<\1|>"),  # <|x> <x|>
    (r"START|BEGIN|OPEN", "END"),
    (r"start|begin|open", "end"),
    ("PREFIX", "SUFFIX"),
    ("prefix", "suffix"),
)
_TAIL = 256  # characters of a prompt in which it opens or closes a thought
_SOME_DAY = datetime(2026, 1, 1)
_ASKED, _THOUGHT, _SAID, _NEXT = (f"\ue000{word}\ue001" for word in ("asked", "thought", "said", "next"))


def marks_of(template: str, prompt: str) -> Marks | None:
    """Return the marks around a thought, None without any; `prompt` is what the template rendered. They are those that
    it opens or closes at the end of the prompt, or those at which it strips earlier answers or in which it wraps their
    thoughts. Only then is it searched for known ones."""
    tail, earlier = prompt.rstrip()[-_TAIL:], _earlier(template)
    for start, end in earlier.pairs:
        emptied = re.search(rf"{re.escape(start)}(\w*)\s*{re.escape(end)}$", tail)
        # A tag that follows each answer, or stands before a question, is the mark of a turn, not of a thought.
        is_turn = earlier.after.startswith(end) or start in earlier.before
        if (emptied or _is_open(tail, start, end)) and not is_turn:
            return _opened(_known(Marks(start + (emptied[1] if emptied else ""), end)), tail)
    if earlier.stripped is not None:
        return _opened(_known(earlier.stripped), tail)
    for marks in KNOWN:
        if marks.start in template or marks.end in template:
            return _opened(marks, tail)
    return None


def _opened(marks: Marks, tail: str) -> Marks:
    return replace(marks, is_open=_is_open(tail, marks.start, marks.end))


def _is_open(tail: str, start: str, end: str) -> bool:
    return re.search(rf"{re.escape(start)}(?:\s*(?!{re.escape(end)})<[^<>]*>)*$", tail) is not None


def _known(read: Marks) -> Marks:
    return next((marks for marks in KNOWN if marks.end == read.end and marks.start.startswith(read.start)), read)


def _pairs(template: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of tags that a template names; the first one of <x> and </x> may be missing."""
    tags = dict.fromkeys(_TAG.findall(template))
    tags |= dict.fromkeys(tag.replace("/", "", 1) for tag in tags if re.match(r"[<\[◁]/", tag))
    ends = ((tag, re.sub(pattern, by, tag, count=1)) for tag in tags for pattern, by in _ENDINGS)
    return tuple(dict.fromkeys((tag, end) for tag, end in ends if end != tag and end in tags))


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What a template does with an earlier answer, and the `pairs` of tags that it names. It writes `before` the
    question and `after` the answer. A thought is `stripped` or wrapped between two tags."""

    pairs: tuple[tuple[str, str], ...]
    before: str
    after: str
    stripped: Marks | None


@lru_cache(maxsize=16)
def _earlier(template: str) -> _Earlier:
    program = Program(template, _SOME_DAY)
    whole, beside = _rendered(program, _SAID), _rendered(program, _SAID, _THOUGHT)
    before, after = whole.partition(_ASKED)[0], whole.partition(_SAID)[2].lstrip()
    pairs = _pairs("\n".join((template, whole, beside)))  # a template may put its tags together
    for start, end in pairs:
        text = _rendered(program, f"{start}{_THOUGHT}{end}\n\n{_SAID}")
        wraps = re.search(rf"{re.escape(start)}\s*{_THOUGHT}\s*{re.escape(end)}", beside)
        if wraps or (_THOUGHT not in text and _SAID in text):
            return _Earlier(pairs, before, after, Marks(start, end))
    return _Earlier(pairs, before, after, None)


def _rendered(program: Program, said: str, thought: str = "") -> str:
    messages = [("user", _ASKED), ("assistant", said), ("user", _NEXT)]
    beside = {"reasoning_content": thought, "reasoning": thought} if thought else {}
    for content in (str, lambda text: [{"type": "text", "text": text}]):
        given = [{"role": role, "content": content(text)} for role, text in messages]
        given[1] |= beside
        variables = {"messages": given, "add_generation_prompt": True, "bos_token": "", "eos_token": "", "tools": None}
        with suppress(Refused):
            text = program.render(variables, len(said))
            if _NEXT in text:
                return text
    return ""


def without_reasoning(messages: Sequence[Message], specials: Collection[str]) -> Sequence[Message]:
    """Return `messages` without what was thought before earlier answers, as the template of gpt-oss insists. A thought
    that no answer followed is left out with its question: the template would make an empty answer of it."""
    if _CHANNEL not in specials:
        return messages
    remaining: list[Message] = []
    for message in messages:
        if message.role == "assistant" and _CHANNEL in message.content:
            answer = _answer(message.content)
            if not answer.strip():
                if remaining and remaining[-1].role == "user":
                    remaining.pop()
                continue
            # A space in a quotation costs less than the template, which would give way for the whole conversation.
            message = replace(message, content=_REFUSED.sub(r"<|channel|> \1<|message|>", answer))
        remaining.append(message)
    return remaining


def _answer(said: str) -> str:
    heads = list(_HEAD.finditer(said))
    for head in heads:
        if head["channel"] == "final":
            return said[head.end() :]
    ends = [*(head.start() for head in heads), len(said)]
    parts = [said[head.end() : end] for head, end in zip(heads, ends[1:], strict=True) if head["channel"] != "analysis"]
    return "\n\n".join(part.removesuffix("<|end|>") for part in (said[: ends[0]], *parts) if part.strip())
