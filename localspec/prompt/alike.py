"""Whether two models are given the same prompt: their chat templates compared by what they render, not by their text.

Templates of one family differ in the part for tools, or in a brace, and give the same prompt in any chat.
"""

from __future__ import annotations

from datetime import datetime

from localspec.errors import LocalspecError
from localspec.prompt.chat_template import render
from localspec.settings.request import Message

_SYSTEM = Message("system", "Be brief.")
_TURNS = (Message("user", "Hi there"), Message("assistant", "Hello."), Message("user", "And now?"))
SAMPLES = (_TURNS[:1], _TURNS, (_SYSTEM, *_TURNS[:1]), (_SYSTEM, *_TURNS))
DIFFER = "target and draft use different chat templates: fewer guesses may be accepted in a chat"


def template_warnings(target: str | None, draft: str | None) -> tuple[str, ...]:
    """Return a warning where the draft's template would have written another prompt than the target's."""
    if draft is None or renders_alike(target, draft):
        return ()
    return (DIFFER,)


def renders_alike(one: str | None, other: str | None) -> bool:
    """Whether both templates render the sample conversations to the same prompts, or refuse the same ones."""
    if one is None or other is None or one == other:
        return one == other
    return all(_prompt(one, sample) == _prompt(other, sample) for sample in SAMPLES)


def _prompt(template: str, messages: tuple[Message, ...]) -> str | None:
    """Return a prompt, None where the template refuses; dates and the names of BOS and EOS are the same for all."""
    try:
        rendered = render(messages, template, bos="<bos>", eos="<eos>", specials=(), is_explicit=True, now=_some_day)
    except LocalspecError:
        return None
    return rendered.text


def _some_day() -> datetime:
    return datetime(2024, 1, 1)
