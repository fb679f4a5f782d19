"""What of a conversation is sent: the messages of a request, made of a path."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from localspec.config import Message as Sent
from localspec.conversations.records import ASSISTANT, USER, Message


def to_send(path: Sequence[Message], system: str | None, *, without: int = 0) -> tuple[Sent, ...]:
    """Return the messages to send so that the last of `path`, a user's, is answered.

    They alternate: a message that got no answer, or an empty one, is left out with it. `without` leaves out so many of
    the oldest turns, where all of them do not fit.
    """
    assert path, "there is something to answer"
    assert path[-1].role == USER, "the last word is a person's"
    head = [] if system is None else [Sent("system", system)]
    turns = answered(path[:-1])[without:]
    said = [Sent(message.role, message.content) for turn in turns for message in turn]
    return (*head, *said, Sent(USER, path[-1].content))


def answered(path: Sequence[Message]) -> list[tuple[Message, Message]]:
    """Return the turns of a path that were answered: a user's message and what was said to it."""
    return [
        (asked, said) for asked, said in pairwise(path) if (asked.role, said.role) == (USER, ASSISTANT) and said.text
    ]
