"""From messages to the text that a model expects, with what people wrote kept apart from what the template says.

Invariant: no text of a message can become a control token. Every template is rendered twice, once as it is and once
with a marker in the place of each text. If both spell the same control tokens in the same order, none came from a
message and the prompt is one trusted segment, tokenised as everybody does it. Otherwise the marked text is cut at its
markers: the template's parts are trusted, the messages are tokenised as plain text.

The markers also tell which messages come through. A template that loses one gets it as typed parts, then with the
system message inside the first question. One that loses the last message even so is refused.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from localspec.engine.text import Marks
from localspec.errors import IncompatibleError, LocalspecError, NotFoundError, ResourceError, UsageError
from localspec.prompt.markers import Markers, Prompt, Segment, controls
from localspec.prompt.message_forms import (
    STRINGS,
    UNKNOWN,
    ContentForm,
    Tools,
    as_plain,
    check_texts,
    forms_of,
    knows_tools,
)
from localspec.prompt.named_templates import CHATML, DIALOGUE, NAMED, stops_of
from localspec.prompt.reasoning_marks import marks_of, without_reasoning
from localspec.prompt.renderer import MAX_TEMPLATE, Program, Refused, RefusedByTemplate
from localspec.sanitize import decoded
from localspec.settings.request import Message

ROLES = ("system", "user", "assistant", "tool")
MERGED = "The chat template has no system message, so it was put before the first message"
GATHERED = (
    "The chat template takes one system message, at the start: those at the start were joined, and later ones were put"
    " before the next question"
)
THINKING = ("enable_thinking", "thinking")  # the names under which templates ask whether the model is to reason


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt, and what a person should know about how it came about. `stops` are texts that end the answer, and
    `marks` those around the model's reasoning. `written` is the prompt with a stand-in for each message, so that it
    tells of the template alone."""

    segments: Prompt
    warnings: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    marks: Marks | None = None
    written: str = ""

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    bos: str
    eos: str
    specials: frozenset[str]
    add_generation_prompt: bool
    now: datetime
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def run(self, program: Program, messages: Sequence[Message], form: ContentForm = STRINGS) -> str:
        variables = {
            "tools": None,
            "documents": None,
            **self.arguments,
            "messages": [form.given(message) for message in messages],
            "bos_token": self.bos,
            "eos_token": self.eos,
            "add_generation_prompt": self.add_generation_prompt,
        }
        return program.render(variables, sum(len(each.content) + len(each.reasoning) for each in messages))


def load_template(option: str) -> str:
    """Return the template that `--template` names: one of `NAMED`, or a file."""
    if option in NAMED:
        return NAMED[option].source
    names = ", ".join(NAMED)
    hint = f"--template {next(iter(NAMED))}, or a file with a Jinja template"
    path = Path(option)
    try:
        if not path.is_file():  # a pipe or a device could be read for ever
            if is_name(option):
                return option
            raise NotFoundError(f"--template {option!r} is neither a file nor one of {names}", hint=hint)
        with path.open("rb") as file:
            raw = file.read(MAX_TEMPLATE + 1)
        if len(raw) > MAX_TEMPLATE:
            raise UsageError(f"--template {option} is longer than {MAX_TEMPLATE} bytes", hint=hint)
        text = decoded(raw)
        if not text.strip():
            raise UsageError(f"--template {option} is empty", hint=hint)
        return text
    except OSError as error:
        raise NotFoundError(f"--template {option} cannot be read: {error.strerror}", hint=hint) from None
    except ValueError:
        raise UsageError(f"--template {option} is neither UTF-8 nor UTF-16 text", hint=hint) from None


def is_name(template: str) -> bool:
    """Whether a template is only the name of one; text without a brace would lose every message."""
    return re.fullmatch(r"[\w-]+", template) is not None


def chosen(asked: str | None, own: Callable[[str | None], str | None], names: Sequence[str]) -> str | None:
    """Return the text of the template to use: the one `asked` for, by text or by name, or the model's default one.
    `own` returns a template of the model by its name, the default one for None, and `names` are those that it has."""
    if asked is None or not is_name(asked):
        return asked or own(None)
    source = NAMED[asked].source if asked in NAMED else own(asked)
    if source is None:
        known = ", ".join((*names, *NAMED))
        reason = f"--template {asked!r} is no file, and no template of this model has that name"
        raise NotFoundError(reason, hint=f"--template NAME with one of {known}, or a file with a Jinja template")
    return source


def render(
    messages: Sequence[Message],
    template: str | None,
    *,
    bos: str,
    eos: str,
    specials: Collection[str],
    add_generation_prompt: bool = True,
    is_explicit: bool = False,
    file: str = "",
    tools: Tools = (),
    arguments: Mapping[str, Any] | None = None,
    thinks: bool | None = None,
    now: Callable[[], datetime] = datetime.now,
) -> Rendered:
    """Render `messages` with the Jinja `template` of a model, None if it has none.

    `specials` are the texts of the tokens that stand for structure, see `Model.is_parsed`.
    `tools` are those that the answer may call; a template that knows none gets them as text. `arguments` are variables
    of the template, and `thinks` is what it is told of reasoning, None to leave that to it.
    A template that cannot be used gives way to a built-in one with a warning; with `is_explicit`, because the user
    chose it, it raises IncompatibleError instead, with the name of its `file`.
    """
    for message in messages:
        if message.role not in ROLES:
            raise UsageError(f"A message has the role {message.role!r}", hint=f"roles are {', '.join(ROLES)}")
    messages = without_reasoning(messages, specials)
    check_texts(messages, tools, specials)
    around = _Surroundings(bos, eos, frozenset(specials) - {""}, add_generation_prompt, now())
    plain = as_plain(messages, tools)
    if template is None or not template.strip():
        if is_explicit:
            raise _unusable("it is empty", file)
        return _fall_back(plain, around, "The model has no chat template")
    given, unread = _arguments(template, arguments or {}, thinks)
    if knows_tools(template):
        given |= {"tools": list(tools)} if tools else {}
    else:
        messages, unread = plain, (*unread, *([UNKNOWN] if tools else ()))
    try:
        rendered = _render(messages, template, replace(around, arguments=given))
    except Refused as refused:
        if is_explicit:
            raise _unusable(str(refused), file) from None
        return _fall_back(plain, around, f"The chat template cannot be used: {refused}")
    marks = marks_of(template, rendered.written)
    return replace(rendered, warnings=(*rendered.warnings, *unread), stops=stops_of(template), marks=marks)


def _unusable(why: str, file: str) -> IncompatibleError:
    named = f"--template {file}" if file else "The chat template"
    return IncompatibleError(f"{named} cannot be used: {why}", hint="--raw uses the prompt as it is")


def _arguments(template: str, asked: Mapping[str, Any], thinks: bool | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    words = set(re.findall(r"\w+", template))
    unread = [f"the chat template does not read {name!r}, so it does nothing"
              for name in asked if name not in words]  # fmt: skip
    given = dict(asked)
    if thinks is not None:
        # A field of a message or a string of the same name is not the variable.
        known = {name: thinks for name in THINKING if re.search(rf"(?<![\w.'\"]){name}\b", template)}
        if not known:
            unread.append(f"the chat template does not read {THINKING[0]!r}, so --think does nothing")
        given |= known
    return given, tuple(unread)


def _fall_back(messages: Sequence[Message], around: _Surroundings, reason: str) -> Rendered:
    is_chatml = "<|im_start|>" in around.specials
    template = CHATML if is_chatml else DIALOGUE
    try:
        rendered = _render(messages, template, around)
    except Refused as refused:
        message = f"The built-in chat template cannot be rendered: {refused}"
        raise ResourceError(message, hint="--raw uses the prompt as it is") from None
    name = "ChatML" if is_chatml else "User: ... Assistant:"
    warnings = (f"{reason}; {name} is used instead", *rendered.warnings)
    return replace(rendered, warnings=warnings, stops=stops_of(template))


def _render(messages: Sequence[Message], template: str, around: _Surroundings) -> Rendered:
    """Render; where the template refuses or drops a system message, that is put elsewhere."""
    program = Program(template, around.now)
    try:
        return _in_a_form(messages, template, program, around)
    except (RefusedByTemplate, _SystemDropped):
        if not any(message.role == "system" for message in messages):
            raise
    gathered = _gathered(messages)
    if gathered != list(messages):
        with suppress(RefusedByTemplate, _SystemDropped):
            rendered = _in_a_form(gathered, template, program, around)
            return replace(rendered, warnings=(GATHERED, *rendered.warnings))
    rendered = _in_a_form(_merge_system(messages), template, program, around)
    return replace(rendered, warnings=(MERGED, *rendered.warnings))


class _SystemDropped(Refused):
    """The template renders, but without the system message."""


def _gathered(messages: Sequence[Message]) -> list[Message]:
    """Return `messages` with one system message, of those at the start; later ones are put before the next question."""
    n = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    gathered = [Message("system", "\n\n".join(message.content for message in messages[:n]))] if n else []
    waiting: list[str] = []
    for message in messages[n:]:
        if message.role == "system":
            waiting.append(message.content)
            continue
        if waiting and message.role == "user":
            message = replace(message, content="\n\n".join([*waiting, message.content]), ids=())
            waiting = []
        gathered.append(message)
    return [*gathered, *([Message("user", "\n\n".join(waiting))] if waiting else [])]


def _merge_system(messages: Sequence[Message]) -> list[Message]:
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    others = [message for message in messages if message.role != "system"]
    at = next((i for i, message in enumerate(others) if message.role == "user"), None)
    if at is None:
        return [Message("user", system), *others]
    return [*others[:at], Message("user", f"{system}\n\n{others[at].content}"), *others[at + 1 :]]


def _in_a_form(messages: Sequence[Message], template: str, program: Program, around: _Surroundings) -> Rendered:
    """Render with the contents in the first form in which all of them come through, else in the best one."""
    markers = Markers(messages, template, around.specials)
    best: tuple[set[int], ContentForm, str] | None = None
    refused: Refused | None = None
    forms = list(forms_of(template, {message.role for message in messages}))
    if any(message.calls for message in messages):
        forms += [replace(form, has_text_arguments=True) for form in forms]
    for form in forms:
        try:
            marked = around.run(program, markers.messages, form)
        except Refused as reason:
            refused = refused or reason
            continue
        lost = markers.lost(marked)
        if best is None or len(lost) < len(best[0]):
            best = lost, form, marked
        if not lost:
            break
    if best is None:
        assert refused is not None
        raise refused
    lost, form, marked = best
    if any(messages[i].role == "system" for i in lost):
        raise _SystemDropped("it leaves out the system message")
    dropped = _dropped(lost, form, marked, markers, program, around)
    if len(messages) - 1 in dropped:
        raise Refused("it leaves out the last message")
    which = f"{len(dropped)} earlier messages" if len(dropped) > 1 else "an earlier message"
    warnings = (f"the chat template leaves out {which}: the model does not see that text",) if dropped else ()
    direct = around.run(program, messages, form)
    if controls(direct, around.specials) != controls(marked, around.specials):
        return Rendered(markers.cut(marked), warnings, written=marked)
    if not direct.strip():
        raise Refused("it renders to nothing")
    return Rendered(
        _trusted(direct, marked, markers, has_ids=not lost and any(message.ids for message in messages)),
        warnings,
        written=marked,
    )


def _trusted(direct: str, marked: str, markers: Markers, *, has_ids: bool) -> Prompt:
    """Return a prompt that may be read as it is, with the answers apart from it if they are known in tokens."""
    parts: Prompt = ()
    with suppress(Refused):
        parts = markers.cut(marked) if has_ids else ()
    if "".join(part.text for part in parts) != direct:
        return (Segment(direct, is_trusted=True),)
    return tuple(replace(part, is_trusted=True) for part in parts)


def _dropped(
    lost: set[int], form: ContentForm, marked: str, markers: Markers, program: Program, around: _Surroundings
) -> set[int]:
    last = len(markers.messages) - 1
    parts = [part for part in (lost & {last}, lost - {last}) if part]
    return {i for part in parts if around.run(program, markers.others(part), form) == marked for i in part}


_SYSTEM = Message("system", "Be brief.")
_TURNS = (Message("user", "Hi there"), Message("assistant", "Hello."), Message("user", "And now?"))
SAMPLES = (_TURNS[:1], _TURNS, (_SYSTEM, *_TURNS[:1]), (_SYSTEM, *_TURNS))
DIFFER = "target and draft use different chat templates: fewer guesses may be accepted in a chat"


def template_warnings(target: str | None, draft: str | None) -> tuple[str, ...]:
    """Return a warning where the draft's template would have written another prompt than the target's."""
    return () if draft is None or renders_alike(target, draft) else (DIFFER,)


def renders_alike(template: str | None, other: str | None) -> bool:
    if template is None or other is None or template == other:
        return template == other
    return all(_prompt(template, sample) == _prompt(other, sample) for sample in SAMPLES)


def _prompt(template: str, messages: tuple[Message, ...]) -> str | None:
    now = partial(datetime, 2024, 1, 1)
    try:
        return render(messages, template, bos="<bos>", eos="<eos>", specials=(), is_explicit=True, now=now).text
    except LocalspecError:
        return None
