"""The messages of a request, made of a path of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

from localspec.conversations.attachment import Attachment
from localspec.conversations.records import ASSISTANT, USER
from localspec.settings.request import Message


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
