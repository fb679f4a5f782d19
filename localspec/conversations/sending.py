"""The messages of a request, made of a path of a conversation.

What a conversation began with and keeps, beside its pair and system message: its last answer tells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Protocol

from localspec.conversations.records import ASSISTANT, USER, Attachment
from localspec.settings.request import LoadSettings, Message, Request
from localspec.settings.values import with_tuples


class Said(Protocol):
    """A message of a path, from the store or from memory."""

    @property
    def role(self) -> str:
        """Who said it."""

    @property
    def text(self) -> str:
        """The words."""

    @property
    def content(self) -> str:
        """The words with the attachments."""

    @property
    def reasoning(self) -> str:
        """What came before an answer; a template decides whether it is sent."""

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The texts that came with a question."""

    @property
    def stats(self) -> dict[str, Any] | None:
        """The figures of an answer."""


def to_send(path: Sequence[Said], system: str | None, content: str) -> tuple[Message, ...]:
    """Return the messages to send so that `content`, a person's words, is answered after `path`.

    They alternate: a message that got no answer, or an empty one, is left out with it.
    """
    head = [] if system is None else [Message("system", system)]
    said = [
        Message(
            message.role,
            message.content,
            message.reasoning,
            files=tuple(each.name for each in message.attachments),
            ids=tuple((message.stats or {}).get("ids") or ()),
        )
        for turn in _answered(path)
        for message in turn
    ]
    return (*head, *said, Message(USER, content))


def left_out(path: Sequence[Said]) -> tuple[int, ...]:
    """Return the turns that the last answer of a path was given without, as `Request.left_out` has them."""
    told = ((message.stats or {}).get("left_out") for message in reversed(path))
    return tuple(next((turns for turns in told if turns is not None), ()))


def _answered(path: Sequence[Said]) -> list[tuple[Said, Said]]:
    """Return the turns of a path that were answered: a user's message and the answer to it."""
    return [
        (asked, said) for asked, said in pairwise(path) if (asked.role, said.role) == (USER, ASSISTANT) and said.text
    ]


@dataclass(frozen=True, slots=True)
class KeptSettings:
    """The text or the name of the template, what it is told, and the target's adapters, as the settings have them."""

    template: str | None
    template_args: tuple[tuple[str, Any], ...]
    think: str
    lora: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, path: Sequence[Said]) -> KeptSettings | None:
        """Return what the last answer of a path was given with; None where none tells, as with earlier versions."""
        for message in reversed(path):
            told = (message.stats or {}).get("params") or {}
            if all(each.name in told for each in fields(cls)):
                return cls(**with_tuples({each.name: told[each.name] for each in fields(cls)}))
        return None

    def request(self, request: Request, chosen: Collection[str] = ()) -> Request:
        """Return the request with these settings, but for those that were `chosen` anew."""
        names = {"template", "template_args", "think"} - set(chosen)
        return replace(request, **{name: getattr(self, name) for name in names})

    def load(self, settings: LoadSettings) -> LoadSettings:
        """Return the settings with the adapters."""
        return replace(settings, lora=self.lora)
