"""What of a conversation is sent: the messages of a request, made of a path."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from localspec.conversations.records import ASSISTANT, USER, Message
from localspec.settings.request import Message as Sent


def to_send(path: Sequence[Message], system: str | None, content: str) -> tuple[Sent, ...]:
    """Return the messages to send so that `content`, a person's words, is answered; `path` is what was said before.

    They alternate: a message that got no answer, or an empty one, is left out with it.
    """
    head = [] if system is None else [Sent("system", system)]
    said = [Sent(message.role, message.content) for turn in _answered(path) for message in turn]
    return (*head, *said, Sent(USER, content))


def _answered(path: Sequence[Message]) -> list[tuple[Message, Message]]:
    """Return the turns of a path that were answered: a user's message and what was said to it."""
    return [
        (asked, said) for asked, said in pairwise(path) if (asked.role, said.role) == (USER, ASSISTANT) and said.text
    ]
