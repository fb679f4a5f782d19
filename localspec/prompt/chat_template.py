"""From messages to the text that a model expects, with what people wrote kept apart from what the template says.

Invariant: no text of a message can become a control token. Every template is rendered twice, once as it is and once
with a marker in the place of each message. If both contain the same control tokens in the same order, none came from a
message and the text is one trusted segment, tokenised as everybody does it. Otherwise the marked text is cut at its
markers: the template's parts are trusted, the messages are tokenised as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from localspec.engine.reasoning import Marks
from localspec.errors import IncompatibleError, NotFoundError, ResourceError, UsageError
from localspec.prompt.named_templates import CHATML, DIALOGUE, NAMED, stops_of
from localspec.prompt.reasoning_marks import marks_of, without_reasoning
from localspec.prompt.renderer import MAX_TEMPLATE, Program, Refused, RefusedByTemplate
from localspec.sanitize import decoded
from localspec.settings.request import Message

ROLES = ("system", "user", "assistant")
THINKING = ("enable_thinking", "thinking")  # the names under which templates ask whether the model is to reason


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the prompt. Control tokens are recognised in it only if it `is_trusted`."""

    text: str
    is_trusted: bool


Prompt = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt, and what a person should know about how it came about.

    `stops` are texts that end the answer, and `marks` those around the model's reasoning. `written` is the prompt
    with a stand-in for each message, so that it tells of the template alone.
    """

    segments: Prompt
    warnings: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    marks: Marks | None = None
    written: str = ""

    @property
    def text(self) -> str:
        """The whole prompt."""
        return "".join(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What a template may ask for besides the messages."""

    bos: str
    eos: str
    specials: frozenset[str]
    add_generation_prompt: bool
    now: datetime
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def run(self, program: Program, messages: Sequence[Message]) -> str:
        variables = {
            "tools": None,
            "documents": None,
            **self.arguments,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "bos_token": self.bos,
            "eos_token": self.eos,
            "add_generation_prompt": self.add_generation_prompt,
        }
        return program.render(variables, sum(len(message.content) for message in messages))


def load_template(option: str) -> str:
    """Return the template that `--template` names: one of `NAMED`, or a file."""
    if option in NAMED:
        return NAMED[option].source
    names = ", ".join(NAMED)
    hint = f"--template {next(iter(NAMED))}, or a file with a Jinja template"
    path = Path(option)
    try:
        if not path.is_file():  # a pipe or a device could be read for ever
            raise NotFoundError(f"--template {option!r} is neither a file nor one of {names}", hint=hint)
        with path.open("rb") as file:
            raw = file.read(MAX_TEMPLATE + 1)
        if len(raw) > MAX_TEMPLATE:
            raise UsageError(f"--template {option} is longer than {MAX_TEMPLATE} bytes", hint=hint)
        return decoded(raw)
    except OSError as error:
        raise NotFoundError(f"--template {option} cannot be read: {error.strerror}", hint=hint) from None
    except ValueError:
        raise UsageError(f"--template {option} is neither UTF-8 nor UTF-16 text", hint=hint) from None


def render(
    messages: Sequence[Message],
    template: str | None,
    *,
    bos: str,
    eos: str,
    specials: Collection[str],
    add_generation_prompt: bool = True,
    is_explicit: bool = False,
    arguments: Mapping[str, Any] | None = None,
    thinks: bool | None = None,
    now: Callable[[], datetime] = datetime.now,
) -> Rendered:
    """Render `messages` with the Jinja `template` of a model, None if it has none.

    `specials` are the texts of the tokens that stand for structure, see `Model.is_parsed`.
    `arguments` are variables of the template, and `thinks` is what it is told of reasoning, None to leave that to it.
    A template that cannot be used gives way to a built-in one with a warning; with `is_explicit`, because the user
    chose it, it raises IncompatibleError instead.
    """
    for message in messages:
        if message.role not in ROLES:
            raise UsageError(f"A message has the role {message.role!r}", hint=f"roles are {', '.join(ROLES)}")
    messages = without_reasoning(messages, specials)
    around = _Surroundings(bos, eos, frozenset(specials) - {""}, add_generation_prompt, now())
    if template is None or not template.strip():
        if is_explicit:
            raise IncompatibleError("The chat template is empty", hint="--raw uses the prompt as it is")
        return _fall_back(messages, around, "The model has no chat template")
    given, unread = _arguments(template, arguments or {}, thinks)
    try:
        rendered = _render(messages, template, replace(around, arguments=given))
    except Refused as refused:
        reason = f"The chat template cannot be used: {refused}"
        if is_explicit:
            raise IncompatibleError(reason, hint="--raw uses the prompt as it is") from None
        return _fall_back(messages, around, reason)
    marks = marks_of(template, rendered.written)
    return replace(rendered, warnings=(*rendered.warnings, *unread), stops=stops_of(template), marks=marks)


def _arguments(template: str, asked: Mapping[str, Any], thinks: bool | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the template's variables, and a warning for each that was asked for and that it does not read."""
    words = set(re.findall(r"\w+", template))
    unread = [f"the chat template does not read {name!r}, so --template-arg {name} does nothing"
              for name in asked if name not in words]  # fmt: skip
    given = dict(asked)
    if thinks is not None:
        known = {name: thinks for name in THINKING if name in words}
        if not known:
            unread.append(f"the chat template does not read {THINKING[0]!r}, so --think does nothing")
        given |= known
    return given, tuple(unread)


def _fall_back(messages: Sequence[Message], around: _Surroundings, reason: str) -> Rendered:
    """Render with the built-in template that fits the vocabulary, and say so."""
    is_chatml = "<|im_start|>" in around.specials
    template = CHATML if is_chatml else DIALOGUE
    try:
        rendered = _render(messages, template, around)
    except Refused as refused:
        told = f"The built-in chat template cannot be rendered: {refused}"
        raise ResourceError(told, hint="--raw uses the prompt as it is") from None
    name = "ChatML" if is_chatml else "User: ... Assistant:"
    warnings = (f"{reason}; {name} is used instead", *rendered.warnings)
    return replace(rendered, warnings=warnings, stops=stops_of(template))


def _render(messages: Sequence[Message], template: str, around: _Surroundings) -> Rendered:
    """Render; a template that refuses or drops the system message gets it as part of the first user message."""
    program = Program(template, around.now)
    try:
        return _cut(messages, template, program, around)
    except (RefusedByTemplate, _SystemDropped):
        if not any(message.role == "system" for message in messages):
            raise
    merged = _merge_system(messages)
    said = "The chat template has no system message, so it was put before the first message"
    return replace(_cut(merged, template, program, around), warnings=(said,))


class _SystemDropped(Refused):
    """The template renders, but without the system message."""


def _merge_system(messages: Sequence[Message]) -> list[Message]:
    """Return `messages` with the system texts in front of the first user message."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    others = [message for message in messages if message.role != "system"]
    at = next((i for i, message in enumerate(others) if message.role == "user"), None)
    if at is None:
        return [Message("user", system), *others]
    return [*others[:at], Message("user", f"{system}\n\n{others[at].content}"), *others[at + 1 :]]


def _cut(messages: Sequence[Message], template: str, program: Program, around: _Surroundings) -> Rendered:
    """Render twice, compare the control tokens, and cut at the markers if they differ."""
    markers = _Markers(messages, template, around.specials)
    marked = around.run(program, markers.messages)
    if any(markers.text(i) not in marked for i in markers.wanted if messages[i].role == "system"):
        raise _SystemDropped("it leaves out the system message")
    direct = around.run(program, messages)
    if _controls(direct, around.specials) != _controls(marked, around.specials):
        return Rendered(markers.cut(marked), written=marked)
    if not direct.strip():
        raise Refused("it renders to nothing")
    return Rendered((Segment(direct, is_trusted=True),), written=marked)


class _Markers:
    """Stand-ins for the contents of messages, which neither the template nor a message contains.

    `wanted` are the numbers of the messages that have one. Blank contents stay: they are harmless, and templates ask
    for them. So does the white space around a content, which templates trim.
    """

    def __init__(self, messages: Sequence[Message], template: str, specials: frozenset[str]) -> None:
        self._contents = [message.content for message in messages]
        # Only where a control token holds white space could the user's make one.
        self._has_spaced_specials = any(char.isspace() for special in specials for char in special)
        everything = "\0".join([template, *self._contents])
        number = 0
        # Private-use characters around letters and digits: no template trims, splits or compares with these.
        while f"\ue000m{number}n" in everything:
            number += 1
        self._prefix = f"\ue000m{number}n"
        self.wanted = {i for i, content in enumerate(self._contents) if self._core(content)}
        self.messages = [replace(message, content=self._mark(i)) for i, message in enumerate(messages)]

    def text(self, index: int) -> str:
        """Return the marker of message `index`."""
        return f"{self._prefix}{index}\ue001"

    def cut(self, marked: str) -> Prompt:
        """Return the template's parts of `marked` as trusted, the messages in place of their markers as not."""
        pieces = re.split(f"{re.escape(self._prefix)}([0-9]+)\ue001", marked)
        found = {int(index) for index in pieces[1::2]}
        if found != self.wanted or any(self._prefix in part for part in pieces[::2]):
            raise Refused("it cuts or changes messages, which hold the text of control tokens")
        texts = [self._core(self._contents[int(piece)]) if i % 2 else piece for i, piece in enumerate(pieces)]
        return tuple(Segment(text, is_trusted=i % 2 == 0) for i, text in enumerate(texts) if text)

    def _core(self, content: str) -> str:
        """Return what of a content its marker stands for."""
        return content if self._has_spaced_specials else content.strip()

    def _mark(self, index: int) -> str:
        content = self._contents[index]
        core = self._core(content)
        return content.replace(core, self.text(index), 1) if core else content


def _controls(text: str, specials: frozenset[str]) -> list[str]:
    """Return the control tokens llama.cpp finds in `text`, in order: it looks for longer ones first, everywhere."""
    present = sorted((special for special in specials if special in text), key=lambda s: (-len(s), s))
    found: dict[int, str] = {}
    taken = bytearray(len(text))
    for special in present:
        at = text.find(special)
        while at >= 0:
            end = at + len(special)
            is_free = not any(taken[at:end])
            if is_free:
                taken[at:end] = b"\1" * len(special)
                found[at] = special
            at = text.find(special, end if is_free else at + 1)
    return [found[at] for at in sorted(found)]
